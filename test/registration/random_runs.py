# SPDX-License-Identifier: BSD-3-Clause
"""Runs of the programs `property` and `storm`, and of mutants of them."""
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

STALE, UNAVAILABLE = 1, 77


@dataclass(frozen=True)
class Run:
    """What a run printed, and the counts in its last line."""
    command: str
    status: int
    output: str
    counts: dict[str, int]

    def __str__(self) -> str:
        return f"$ {self.command}\nstatus {self.status}\n{self.output[-3000:]}"


def run(program: Path, *arguments: object, timeout: float = 3600) -> Run:
    words = [str(program), *map(str, arguments)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, check=False)
    last = re.search(r"^seed \d+ .*$", done.stdout, re.MULTILINE)
    pairs = re.findall(r"(\w+) (\d+)", last[0]) if last else []
    return Run(" ".join(words), done.returncode, done.stdout,
               {name: int(value) for name, value in pairs})
