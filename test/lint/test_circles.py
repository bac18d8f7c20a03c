# SPDX-License-Identifier: BSD-3-Clause
"""Who uses whom in component/: no circle of files, and no arrow against the order of the rooms.

A file uses another if its object file needs a global symbol, function or data, that the other's
defines. Calls through an operations table are not seen, and are meant to be free. Headers are
followed by their #include lines, because an inline function or a type is used just the same.
"""
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tables import BUILD
from tree import TOP, files

# A room may use its own level and those before it. Rooms of one level may not form a circle.
LEVELS = [{"base"}, {"pool", "registration", "transport"}, {"compat", "onesided", "rendezvous"}, {"btl", "library"}]
LEVEL = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
# The same for the folders inside a room, of which none uses another one of its level: so a transport
# knows nothing of another, and a monitor nothing of the cache. In transport/, what lies in no folder
# is the contract and what they share, but for the catalogue, which lists them all.
LAYERS = {"transport": [{"contract"}, {"shm", "verbs"}, {"catalog"}],
          "registration": [{"monitor"}, {"cache"}]}
LAYER = {(room, layer): number for room, levels in LAYERS.items()
         for number, layers in enumerate(levels) for layer in layers}

Uses = dict[str, dict[str, set[str]]]  # user → used → by which symbols, or "#include"


def room(path: str) -> str:
    return path.split("/", 1)[0]


def circles(uses: Mapping[str, Mapping[str, object]]) -> list[set[str]]:
    """Those sets of nodes of which each can be reached from each; the largest first."""
    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            fresh = set(uses.get(left.pop(), ())) - found
            found |= fresh
            left += fresh
        return found

    reach = {node: reached(node) for node in uses}
    sets = {frozenset(other for other in there if node in reach.get(other, ()))
            for node, there in reach.items() if node in there}
    return [set(nodes) for nodes in sorted(sets, key=lambda nodes: (-len(nodes), sorted(nodes)))]


def shown(uses: Uses, nodes: Iterable[str]) -> str:
    """The arrows among some files, one per line, with what makes each."""
    inside = sorted(nodes)
    return "\n".join(f"  {user} → {used}: {', '.join(sorted(uses[user][used]))}"
                     for user in inside for used in inside if used in uses.get(user, {}))


def symbols(objects: Iterable[Path]) -> dict[Path, tuple[set[str], set[str]]]:
    """The global symbols that each object file defines, and those that it needs."""
    found: dict[Path, tuple[set[str], set[str]]] = {path: (set(), set()) for path in objects}
    listing = subprocess.run(["nm", "--extern-only", "--format=posix", "--print-file-name", *found],
                             capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        defined, needed = found[Path(path)]
        (needed if kind in "Uvw" else defined).add(name)
    return found


def object_of(source: Path, build: Path) -> Path | None:
    """Of several, as of a source that is built into a test's variant too, the newest."""
    found = [path for path in (build / source.parent).glob("*.o")
             if path.stem.rpartition("-")[2] == source.stem]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def uses_by_symbol(objects: Mapping[str, Path]) -> Uses:
    """objects: each file's name and its object file."""
    found = symbols(objects.values())
    tables = {name: found[path] for name, path in objects.items()}
    where: dict[str, list[str]] = {}
    for name, (defined, _) in tables.items():
        for symbol in defined:
            where.setdefault(symbol, []).append(name)
    uses: Uses = {name: {} for name in tables}
    for name, (defined, needed) in tables.items():
        for symbol in needed - defined:
            definers = where.get(symbol, [])
            assert len(definers) < 2, f"{name} uses {symbol}, which is defined in {definers}"
            for other in definers:
                uses[name].setdefault(other, set()).add(symbol)
    return uses


def uses_by_include(texts: Mapping[str, str]) -> Uses:
    """texts: what each file holds; its #include lines name others from component/."""
    return {name: {used: {"#include"} for used in
                   re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE) if used in texts}
            for name, text in texts.items()}


def against(uses: Uses) -> set[tuple[str, str]]:
    """The arrows from a room to one of a later level."""
    return {(user, used) for user, others in uses.items() for used in others
            if LEVEL[room(user)] < LEVEL[room(used)]}


def layer(path: str) -> tuple[str, str] | None:
    """Of a file in a room that has some."""
    parts = path.split("/")
    if parts[0] not in LAYERS:
        return None
    if len(parts) > 2:
        return parts[0], parts[1]
    if parts[0] == "registration":
        return parts[0], "cache"
    return parts[0], "catalog" if Path(path).stem == "catalog" else "contract"


def against_inside(uses: Uses) -> set[tuple[str, str]]:
    """The arrows inside a room from a folder to one of its own or a later level."""
    def forbidden(user: tuple[str, str] | None, used: tuple[str, str] | None) -> bool:
        return (user is not None and used is not None and user != used and user[0] == used[0]
                and LAYER[user] <= LAYER[used])

    return {(user, used) for user, others in uses.items() for used in others
            if forbidden(layer(user), layer(used))}


def of_rooms(uses: Uses) -> Uses:
    """The same between rooms: who uses whom, by which files."""
    total: Uses = {}
    for user, others in uses.items():
        for used in others:
            if room(user) != room(used):
                total.setdefault(room(user), {}).setdefault(room(used), set()).add(
                    f"{user} → {used}")
    return total


def test_circles_and_wrong_arrows_are_seen() -> None:
    uses = uses_by_include({"base/a.h": '#include "btl/b.h"\n', "btl/b.h": '#include "base/a.h"\n',
                            "transport/shm/c.h": '#include "transport/catalog.h"\n',
                            "transport/catalog.h": "#include <stdio.h>\n"})
    assert circles(uses) == [{"base/a.h", "btl/b.h"}] and against(uses) == {("base/a.h", "btl/b.h")}
    assert against_inside(uses) == {("transport/shm/c.h", "transport/catalog.h")}


@pytest.fixture(scope="module", name="sources")
def component_sources() -> list[Path]:
    return [path for path in files(".c", ".h") if path.parts[0] == "component"]


@pytest.fixture(scope="module")
def by_symbol(sources: list[Path]) -> Uses:
    objects, unbuilt = {}, []
    for source in sources:
        if source.suffix != ".c":
            continue
        found = object_of(source, BUILD)
        if found:
            objects["/".join(source.parts[1:])] = found
        else:
            unbuilt.append(str(source))
    # Built for something that this machine has not.
    optional = ("component/transport/verbs/", "component/compat/", "component/library/")
    assert not [name for name in unbuilt if not name.startswith(optional)]
    return uses_by_symbol(objects)


@pytest.fixture(scope="module")
def by_include(sources: list[Path]) -> Uses:
    return uses_by_include({"/".join(path.parts[1:]): (TOP / path).read_text()
                            for path in sources})


def test_every_room_has_its_place(sources: list[Path]) -> None:
    assert {path.parts[1] for path in sources} == set(LEVEL)
    assert {layer("/".join(path.parts[1:])) for path in sources} - {None} == set(LAYER)


def test_no_circle_of_files(by_symbol: Uses) -> None:
    found = circles(by_symbol)
    if found:
        pytest.fail("circles of files:\n" + "\n".join(
            f"{sorted(circle)}\n{shown(by_symbol, circle)}" for circle in found), pytrace=False)


def test_no_circle_of_headers(by_include: Uses) -> None:
    found = circles(by_include)
    assert not found, "\n".join(shown(by_include, circle) for circle in found)


def test_no_arrow_against_the_order(by_symbol: Uses, by_include: Uses) -> None:
    found = {arrow for uses in (by_symbol, by_include)
             for arrow in against(uses) | against_inside(uses)}
    if found:
        pytest.fail("against the order of the rooms, or of the folders of one:\n" + "\n".join(
            f"  {user} → {used}: " + ", ".join(sorted(
                by_symbol.get(user, {}).get(used, set())
                | by_include.get(user, {}).get(used, set())))
            for user, used in sorted(found)), pytrace=False)


def test_no_circle_of_rooms(by_symbol: Uses, by_include: Uses) -> None:
    """Of one level; between levels the order forbids it."""
    both = {user: {**by_include.get(user, {}), **by_symbol.get(user, {})}
            for user in {*by_symbol, *by_include}}
    rooms = of_rooms({user: {used: why for used, why in others.items()
                             if LEVEL[room(user)] == LEVEL[room(used)]}
                      for user, others in both.items()})
    found = circles(rooms)
    assert not found, "circles of rooms:\n" + "\n".join(shown(rooms, circle) for circle in found)
