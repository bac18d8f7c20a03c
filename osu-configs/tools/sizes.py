# SPDX-License-Identifier: BSD-3-Clause
"""Message sizes: as people write them, and doubled from the first to the last."""

import re

UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
LARGEST = 1 << 30


def parse(text: str) -> int:
    """Bytes; ValueError says what is allowed."""
    match = re.fullmatch(r"([0-9]{1,10})([KMG]?)", text.strip())
    value = int(match[1]) << UNITS[match[2]] if match else 0
    if not 1 <= value <= LARGEST:
        raise ValueError(f'malformed size "{text}"; allowed: 1 to 1G, with K, M or G (powers of 1024)')
    return value


def show(value: float) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << shift:
            return f"{value / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"
    return f"{value:.0f} B"


def several(text: str) -> tuple[int, ...]:
    """Of words that are SIZE or MIN:MAX, which is doubled from the first to the last."""
    found: set[int] = set()
    for word in text.split():
        first, colon, last = word.partition(":")
        size = parse(first)
        end = parse(last) if colon else size
        if size > end:
            raise ValueError(f'malformed "{word}"; MIN is above MAX')
        found |= {size << n for n in range((end // size).bit_length())}
    if not found:
        raise ValueError("wanted: sizes and MIN:MAX, for example 8 1K 64K:4M")
    return tuple(sorted(found))
