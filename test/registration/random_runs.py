# SPDX-License-Identifier: BSD-3-Clause
"""Runs of the programs `property` and `storm`, and of mutants of them."""
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from shrink import shrink

STALE, UNAVAILABLE = 1, 77
SHRINK_RUNS = 1000


@dataclass(frozen=True)
class Run:
    """What a run printed, and the counts in its last line."""
    command: str
    status: int
    output: str
    counts: dict[str, int]

    def __str__(self) -> str:
        return f"$ {self.command}\nstatus {self.status}\n{self.output[-3000:]}"

    @property
    def failed_at(self) -> int:
        """The operation whose transfer was wrong."""
        match = re.search(r"^stale: .*operation (\d+)", self.output, re.MULTILINE)
        assert match, str(self)
        return int(match[1])


def run(program: Path, *arguments: object, timeout: float = 3600) -> Run:
    words = [str(program), *map(str, arguments)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, check=False)
    last = re.search(r"^seed \d+ .*$", done.stdout, re.MULTILINE)
    pairs = re.findall(r"(\w+) (\d+)", last[0]) if last else []
    return Run(" ".join(words), done.returncode, done.stdout,
               {name: int(value) for name, value in pairs})


def reproduction(program: Path, backend: str, failed: Run, folder: Path) -> str:
    """For people: a short list of operations that fails as that run of `property` did."""
    seed = failed.counts["seed"]
    subset = folder / "operations"

    def fails(numbers: list[int]) -> bool:
        subset.write_text("\n".join(map(str, numbers)))
        return run(program, backend, seed, 0, subset).status == STALE

    numbers = shrink(fails, failed.failed_at, SHRINK_RUNS)
    subset.write_text("\n".join(map(str, numbers)))
    again = run(program, backend, seed, 0, subset)
    return (f"{failed}\n\nshrunk to {len(numbers)} operations (seed {seed}, in {subset}: "
            f"{' '.join(map(str, numbers[:100]))}):\n{again}")
