# SPDX-License-Identifier: BSD-3-Clause
"""Finds a short subset of random operations that still fails.

An operation is made of the seed and its number alone, so any subset can be run. First the shortest
run of operations that ends with the one that failed, then parts of that left out, in so many runs."""
from collections.abc import Callable

Fails = Callable[[list[int]], bool]


def ending(fails: Fails, last: int) -> list[int]:
    """A run of operations up to `last`, as short as powers of two allow."""
    length = 1
    while length <= last:
        numbers = list(range(last + 1 - length, last + 1))
        if fails(numbers):
            return numbers
        length *= 2
    return list(range(last + 1))


def shrink(fails: Fails, last: int, runs: int) -> list[int]:
    """What remains fails, unless chance has a part in it."""
    numbers = ending(fails, last)
    parts = 2
    while len(numbers) > 1 and runs > 0:
        size = -(-len(numbers) // parts)
        for start in range(0, len(numbers), size):
            rest = numbers[:start] + numbers[start + size:]
            runs -= 1
            if rest and fails(rest):
                numbers, parts = rest, max(parts - 1, 2)
                break
            if runs <= 0:
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(numbers))
    return numbers
