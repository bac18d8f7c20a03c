# SPDX-License-Identifier: BSD-3-Clause
"""A strategy is its file, its row in base/counters.h and the build (component/README.md)."""
import re

from tables import strategies
from tree import TOP

# auto says between which paths it chooses; a whole read over a device is counted as a read.
ELSEWHERE = {"component/rendezvous/auto.c": strategies(),
             "component/rendezvous/exposed.c": ["read"]}
FALLBACK = "bounce"  # carries what another path could not: any file may name it


def named() -> dict[str, list[str]]:
    """Files that name a path, and which."""
    found = {}
    for file in sorted((TOP / "component").rglob("*.[ch]")):
        paths = re.findall(r"\bREGX_PATH_([a-z]+)\b", file.read_text(encoding="utf-8"))
        found[str(file.relative_to(TOP))] = [path for path in paths if path in strategies()]
    return found


def own_file(strategy: str) -> str:
    definition = f"const regx_strategy_t regx_strategy_{strategy} = {{"
    files = [file for file in (TOP / "component/rendezvous").glob("*.c")
             if definition in file.read_text(encoding="utf-8")]
    assert len(files) == 1, f"{len(files)} files define {strategy}"
    return str(files[0].relative_to(TOP))


def test_a_strategy_is_named_in_its_own_file_alone() -> None:
    own = {strategy: own_file(strategy) for strategy in strategies()}
    wrong = [f"{file} names {path}" for file, paths in named().items() for path in set(paths)
             if path != FALLBACK and file != own[path] and path not in ELSEWHERE.get(file, [])]
    assert not wrong, "\n".join(sorted(wrong))
