# SPDX-License-Identifier: BSD-3-Clause
"""Records: the lines of a results.csv, as compare and its sisters write and read them."""

import csv
import math
from collections.abc import Collection, Iterator
from pathlib import Path

from comparing.phase import PHASES, UNMEASURED
from comparing.result import Conditions
from comparing.trouble import Trouble

CONDITIONS = ("phase", "mailbox_before", "mailbox_after", "attempt")


def conditions(of: Conditions) -> tuple[object, ...]:
    """As CONDITIONS names them."""
    before, after = (f"{time:.3f}" if time is not None else "" for time in of.mailbox)
    return of.phase, before, after, of.attempts


class Record:
    """One line. Trouble names the file, the line and the column, and says what is allowed there."""

    def __init__(self, fields: dict, where: str):
        self.fields = fields
        self.where = where

    def text(self, column: str) -> str:
        """Empty, too, where there is no such column."""
        return self.fields.get(column) or ""

    def wrong(self, column: str, allowed: str) -> Trouble:
        return Trouble(f'{self.where}: {column}: "{self.text(column)}": allowed: {allowed}')

    def whole(self, column: str, least: int = 0, default: int | None = None) -> int:
        """default: what stands for an empty field."""
        text = self.text(column)
        if not text and default is not None:
            return default
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise self.wrong(column, f"a whole number from {least} on")
        return int(text)

    def number(self, column: str) -> float:
        try:
            value = float(self.text(column))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(column, "a number")
        return value

    def word(self, column: str, allowed: Collection[str]) -> str:
        text = self.text(column)
        if text not in allowed:
            raise self.wrong(column, ", ".join(word or '""' for word in allowed))
        return text

    def conditions(self) -> dict:
        """Those of a Conditions. What the columns do not say is not known."""
        times = (self.number(name) if self.text(name) else None for name in CONDITIONS[1:3])
        return {
            "phase": self.word("phase", PHASES) if self.text("phase") else UNMEASURED,
            "mailbox": tuple(times),
            "attempts": self.whole("attempt", 1, default=1),
            "seconds": 0.0,
            "others": 0.0,
        }


def read(file: Path, command: str, wanted: Collection[str]) -> Iterator[Record]:
    """wanted: the columns without which it is no results.csv of that command."""
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            table = csv.DictReader(lines)
            missing = [name for name in wanted if name not in (table.fieldnames or ())]
            if missing:
                raise Trouble(
                    f"{file}:1: no results.csv of {command}: no column {missing[0]};"
                    f" wanted: {', '.join(wanted)}"
                )
            for fields in table:
                yield Record(fields, f"{file}:{table.line_num}")
    except OSError as error:
        raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Trouble(f"{file}: cannot be read: not a text file") from None
    except csv.Error as error:
        raise Trouble(f"{file}: cannot be read: {error}") from None


def read_table(
    file: Path, command: str, wanted: Collection[str], same: Collection[str]
) -> tuple[list[Record], dict[str, str]]:
    """All records, and what the columns in same say, which is the same in each line."""
    records = list(read(file, command, wanted))
    if not records:
        raise Trouble(f"{file}: no runs in it")
    about = {column: records[0].text(column) for column in same}
    for record in records:
        for column in same:
            record.word(column, (about[column],))
    return records, about
