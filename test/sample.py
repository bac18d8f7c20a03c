# SPDX-License-Identifier: BSD-3-Clause
"""Cases for the program `transfer`: which messages there are, and a seeded sample of them."""
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = 4096
MIB = 1 << 20
LARGEST = 64 * MIB
ODD = [6185592, 6185593, 19145880, 19145881]  # sizes that broke others
LAYOUTS = ["contiguous", "vector", "indexed"]
SENDS = ["send", "isend", "persistent", "bsend", "ssend"]
RECEIVES = ["recv", "irecv", "persistent", "probe", "late"]
PATTERNS = ["pair", "both", "self", "fan", "mixed"]
IN_FLIGHT = 16 * MIB  # of a window, unless it is one message
MIX = [1, 1000, 2, 64]  # what the sizes of "mixed" are divided by, in turn
HEADER = 128  # more than ob1 adds to a message; so near the eager limit either way is right


@dataclass(frozen=True)
class Case:
    """One line of the program's file; see transfer.c."""
    size: int
    send_offset: int = 0
    receive_offset: int = 0
    send_layout: str = "contiguous"
    receive_layout: str = "contiguous"
    pattern: str = "pair"
    send: str = "isend"
    receive: str = "irecv"
    window: int = 1

    def __str__(self) -> str:
        return (f"{self.size} {self.send_offset} {self.receive_offset} {self.send_layout} "
                f"{self.receive_layout} {self.pattern} {self.send} {self.receive} {self.window}")

    @property
    def possible(self) -> bool:
        """No deadlock."""
        posted = self.receive in ("irecv", "persistent")
        waits = self.send in ("send", "ssend")
        return posted or not (waits and self.pattern in ("both", "self", "mixed"))

    @property
    def put(self) -> bool:
        """Whether ob1 puts such a message when it is above the eager limit."""
        return self.send_layout == self.receive_layout == "contiguous" and self.send != "bsend"

    def sizes(self) -> list[int]:
        """Of the messages of one window."""
        return [self.size // (MIX[n % len(MIX)] if self.pattern == "mixed" else 1)
                for n in range(self.window)]

    def windows(self, ranks: int, iterations: int) -> int:
        """How many there are in two ranks' run, in a fan, or to oneself."""
        if self.pattern == "fan":
            return iterations * (ranks - 1)
        if self.pattern == "self":
            return iterations * ranks
        assert ranks == 2
        return iterations * 2


def rendezvous_bytes(cases: Iterable[Case], eager: int, ranks: int, iterations: int) -> range:
    """What goes by rendezvous when ob1 sends nothing eagerly with its first header."""
    least = most = 0
    for case in filter(lambda case: case.put, cases):
        windows = case.windows(ranks, iterations)
        most += windows * sum(size for size in case.sizes() if size > eager - HEADER)
        least += windows * sum(size for size in case.sizes() if size > eager)
    return range(least, most + 1)


def boundaries(eager: int, chunk: int, slot: int, largest: int) -> list[int]:
    """Hazard 19: one byte around each size at which something changes."""
    steps = {1, 64, PAGE, 16 * 1024, 32 * 1024, eager, slot, chunk, largest}
    steps |= set(range(chunk, largest + 1, chunk))
    return sorted({0, *ODD} | {step + by for step in steps for by in (-1, 0, 1)})


def window(size: int, rng: random.Random) -> int:
    """Many small messages, few large ones."""
    chosen = rng.choice([1, 2, 8, 32] if size > 256 * 1024 else [1, 7, 64, 200])
    return max(1, min(chosen, IN_FLIGHT // max(size, 1)))


def of_size(size: int, rng: random.Random, plain: bool) -> Case:
    """A message of that size and any kind; plain: contiguous on both sides."""
    while True:
        case = Case(
            size, rng.choice([0, 1, PAGE - 1, rng.randrange(PAGE)]),
            rng.choice([0, 1, PAGE - 1, rng.randrange(PAGE)]),
            "contiguous" if plain else rng.choice(LAYOUTS),
            "contiguous" if plain else rng.choice(LAYOUTS), rng.choice(PATTERNS),
            rng.choice(SENDS), rng.choice(RECEIVES), window(size, rng))
        if case.possible:
            return case


def sample(sizes: Sequence[int], count: int | None, seed: int) -> list[Case]:
    """So many of the sizes (all, if None), each in a random kind, half of them plain."""
    rng = random.Random(seed)
    chosen = list(sizes) if count is None else rng.sample(sizes, min(count, len(sizes)))
    return [of_size(size, rng, number % 2 == 0) for number, size in enumerate(chosen)]


def every_kind(size: int, window_: int) -> list[Case]:
    """All possible combinations of pattern, send and receive at one size."""
    cases = [Case(size, 1, 2, pattern=pattern, send=send, receive=receive, window=window_)
             for pattern in PATTERNS for send in SENDS for receive in RECEIVES]
    return [case for case in cases if case.possible]


def write(cases: Iterable[Case], folder: Path) -> Path:
    file = folder / "cases"
    file.write_text("".join(f"{case}\n" for case in cases))
    return file
