# SPDX-License-Identifier: BSD-3-Clause
"""The files that a command leaves. Figures are added line by line, as they come; all else is replaced as a whole, so
that it is complete at any moment, also after Ctrl-C."""

import csv
import datetime
import os
import shutil
from pathlib import Path
from typing import Any

from tools.installation import BUILD
from tools.trouble import Trouble

# Of compare's results.csv: one line for each slice, and for each event, which has a text and perhaps a value.
COLUMNS = ("row", "kind", "benchmark", "buffers", "ranks", "pin_cost", "options", "size", "unit", "job", "round", "value",
           "line", "copy", "moved", "event", "text")  # fmt: skip


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


class Records:
    """What was measured, in memory and in a file. A file that cannot be written loses nothing of the former."""

    def __init__(self, file: Path, columns: tuple[str, ...] = COLUMNS):
        self.file, self.columns, self.lines, self.problem = file, columns, list[dict[str, Any]](), ""
        try:
            self.out = file.open("w", newline="", encoding="utf-8", buffering=1)
        except OSError as error:
            raise Trouble(f"{file} cannot be written: {error.strerror}", 1) from None
        self.writer = csv.DictWriter(self.out, columns, lineterminator="\n")
        self.write(dict(zip(columns, columns)))

    def write(self, line: dict[str, Any]) -> None:
        try:
            if not self.problem:
                self.writer.writerow(line)
        except OSError as error:
            self.problem = f"{self.file} cannot be written: {error.strerror}"

    def keep(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        self.write(line)


def width() -> int:
    """Of a table: the terminal's, else 160."""
    return max(shutil.get_terminal_size((160, 24)).columns, 80)
