# SPDX-License-Identifier: BSD-3-Clause
"""Columns of text: how tables are laid out and numbers written."""

MISSING = "-"


def number(value: float) -> str:
    """Three digits or more, without an exponent."""
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}"


def panels(first: list[str], columns: list[list[str]], width: int) -> list[list[str]]:
    """Columns side by side, continued below where the width does not take all of them."""

    def padded(column: list[str]) -> list[str]:
        wide = max(map(len, column)) + 2
        return [text.rjust(wide) for text in column]

    panels: list[list[str]] = []
    lines: list[str] = []
    for column in map(padded, columns):
        if not lines or len(lines[0]) + len(column[0]) > width:
            lines = padded(first)
            panels.append(lines)
        lines[:] = [line + cell for line, cell in zip(lines, column)]
    return [[line.rstrip() for line in panel] for panel in panels]
