# SPDX-License-Identifier: BSD-3-Clause
"""Message sizes: as people write them, and ranges of them, doubled from the first to the last."""

import re
from dataclasses import dataclass

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LARGEST = 1 << 30


def parse(text: str) -> int:
    """Bytes; ValueError says what is allowed."""
    match = re.fullmatch(r"([0-9]{1,10})([KMG]?)", text)
    value = int(match[1]) * UNITS[match[2]] if match else 0
    if not 1 <= value <= LARGEST:
        allowed = "allowed: 1 to 1G, with K, M or G (powers of 1024)"
        raise ValueError(f'malformed size "{text}"; {allowed}')
    return value


def show(value: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= factor and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} B"


@dataclass(frozen=True)
class Range:
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Range":
        first, colon, last = text.partition(":")
        if not colon:
            raise ValueError(f'malformed sizes "{text}"; wanted: MIN:MAX, for example 8:4M')
        result = cls(parse(first.strip()), parse(last.strip()))
        if result.first > result.last:
            raise ValueError(f'malformed sizes "{text}"; MIN is above MAX')
        return result

    def sizes(self) -> list[int]:
        sizes, size = [], self.first
        while size <= self.last:
            sizes.append(size)
            size *= 2
        return sizes

    def option(self) -> str:
        return f"{self.first}:{self.last}"

    def __str__(self) -> str:
        return f"{show(self.first)} to {show(self.last)}"
