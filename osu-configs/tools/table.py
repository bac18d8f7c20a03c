# SPDX-License-Identifier: BSD-3-Clause
"""What was measured as a frame, in the columns of a results.csv."""

from pathlib import Path
from typing import Any

import numpy
import pandas

from tools.output import COLUMNS
from tools.trouble import Trouble

Frame = pandas.DataFrame
NUMBERS = ("size", "job", "round", "run", "value", "line", "copy", "moved", "ranks", "others")


def of(records: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> Frame:
    frame = Frame(records, columns=list(columns))
    for name in columns:
        frame[name] = pandas.to_numeric(frame[name]) if name in NUMBERS else frame[name].fillna("")
    return frame


def read(files: list[Path], columns: tuple[str, ...] = COLUMNS, command: str = "compare") -> Frame:
    """Of a results.csv, or several. Trouble names the file, the line and the column that is wrong."""
    frames = []
    for file in files:
        try:
            frame = pandas.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8").fillna("")
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except (ValueError, UnicodeDecodeError) as error:  # pandas' own are ValueErrors
            raise Trouble(f"{file}: cannot be read: {error}".splitlines()[0]) from None
        if missing := [name for name in columns if name not in frame]:
            raise Trouble(f"{file}:1: no results.csv of {command}: no column {missing[0]}")
        for name in set(NUMBERS) & set(columns):
            numbers = pandas.to_numeric(frame[name], errors="coerce")
            for at in frame.index[(frame[name] != "") & ~numpy.isfinite(numbers)][:1]:
                raise Trouble(f'{file}:{at + 2}: {name}: "{frame[name][at]}": allowed: a number')
            frame[name] = numbers
        if frames and "job" in frame:  # jobs of another file are others
            frame["job"] += 1000 * len(frames)
        frames.append(frame[list(columns)])
    found = pandas.concat(frames, ignore_index=True)
    if found.empty:
        raise Trouble(f"{', '.join(map(str, files))}: no runs in it")
    return found


def number(value: float) -> str:
    """Three digits or more, without an exponent."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def layout(columns: dict[str, list[str]], labels: list[str], width: int) -> list[str]:
    """Columns side by side, continued below where the width does not take all of them."""
    frame = Frame(columns, index=labels)
    frame = frame[(frame != "").any(axis=1)]  # of single runs there are no intervals
    return [line.rstrip(" \\") for line in frame.to_string(line_width=width).splitlines()]
