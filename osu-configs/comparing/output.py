# SPDX-License-Identifier: BSD-3-Clause
"""Where the results of a command go, and how: files in a folder, a table on the terminal.

Each file is replaced as a whole, so that at any moment, also after Ctrl-C, it is complete.
"""

import csv
import datetime
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from comparing.installation import BUILD
from comparing.trouble import Trouble

T = TypeVar("T")
WIDTH = 160  # of a table where no terminal says another


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


def replace_csv(file: Path, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    replace(file, text.getvalue())


def replace_json(file: Path, document: dict) -> None:
    replace(file, json.dumps(document, indent=1, default=str) + "\n")


def show(command: str, path: Path, render: Callable[[int], str]) -> None:
    """Says where the results are, and prints the table as wide as the terminal is."""
    print(f"{command}: results are in {path}", file=sys.stderr)
    print(render(width()), flush=True)


def again(
    saved: tuple[T, dict[str, str]],
    render: Callable[[T, dict[str, str]], str],
    status: Callable[[T], int],
) -> int:
    """Of what was measured before, and of what, the table."""
    results, about = saved
    print(render(results, about), flush=True)
    return status(results)


def width() -> int:
    """Of the terminal."""
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, 80)
