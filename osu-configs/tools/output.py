# SPDX-License-Identifier: BSD-3-Clause
"""The files that a command leaves. Each is replaced as a whole, so that it is complete at any moment,
also after Ctrl-C."""

import csv
import datetime
import io
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from tools.installation import BUILD
from tools.trouble import Trouble

# Of results.csv: one line for each value, count and event. A size is empty where a line is of the
# whole run; the unit tells values (us, MB/s, ns) from counts ("count", "choice") and events ("").
COLUMNS = ("row", "kind", "benchmark", "buffers", "ranks", "options", "metric", "unit", "size", "run",
           "value", "reference", "phase", "mailbox", "width", "others", "backend", "wire",
           "problem", "about", "pin_cost")  # fmt: skip


def folder(asked: Path | None, command: str) -> Path:
    """A new one: as --output says, else in .build/COMMAND/, by date and time."""
    date = datetime.datetime.now().strftime("%Y-%m-%d-%H%M%S")
    path = (asked or BUILD / command / date).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Trouble(f"--output: {path} cannot be made: {error.strerror}") from None
    if (path / "results.csv").exists():
        raise Trouble(f"--output: {path} holds results already; choose another folder")
    return path


def replace(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}.new")
    try:
        with new.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())  # also out of the emulated machine, which may be ended
        os.replace(new, file)
    except OSError as error:
        raise Trouble(f"{file} cannot be written: {error.strerror}", 1) from None


def write_records(file: Path, records: Iterable[dict]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    replace(file, text.getvalue())


def width() -> int:
    """Of a table: the terminal's, else 160."""
    return max(shutil.get_terminal_size((160, 24)).columns, 80)
