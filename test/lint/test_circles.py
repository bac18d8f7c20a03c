# SPDX-License-Identifier: BSD-3-Clause
"""Who uses whom in component/: no circle of files, and no arrow against the order of the layers.

A file uses another if its object file needs a global symbol, function or data, that the other's
defines. Calls through an operations table are not seen, and are meant to be free. Headers are
followed by their #include lines, because an inline function or a type is used just the same.
"""
import re
import subprocess
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tables import BUILD
from tree import TOP, files

# A layer may use its own level and those before it. Layers of one level may not form a circle.
LEVELS = [{"base", "kernel"}, {"pool", "registration", "transport"}, {"compat", "onesided", "rendezvous"}, {"btl", "library", "check"}]
LEVEL = {layer: number for number, layers in enumerate(LEVELS) for layer in layers}
# The same for the folders inside a layer, of which none uses another one of its level: so a transport
# knows nothing of another (but pinned of shm, of which it is a variant), and a monitor nothing of the cache. In
# transport/, what lies in no folder is the contract and what they share, but for the catalogue, which lists them all.
PARTS = {"transport": [{"contract"}, {"shm", "verbs"}, {"pinned"}, {"catalog"}],
          "registration": [{"monitor"}, {"cache"}]}
PART = {(layer, part): number for layer, levels in PARTS.items()
         for number, parts in enumerate(levels) for part in parts}

# Layers in which a file and its header, counted as one, include another that includes them.
TIED = {"btl", "transport"}

Uses = dict[str, dict[str, set[str]]]  # user → used → by which symbols, or "#include"


def layer(path: str) -> str:
    return path.split("/", 1)[0]


def part(path: str) -> tuple[str, str]:
    """Layer and folder; of a layer that has no parts, the layer."""
    parts = path.split("/")
    if parts[0] not in PARTS:
        return parts[0], ""
    if len(parts) > 2:
        return parts[0], parts[1]
    if parts[0] == "registration":
        return parts[0], "cache"
    return parts[0], "catalog" if Path(path).stem == "catalog" else "contract"


def forbidden(user: str, used: str) -> bool:
    """From a layer to one of a later level, or inside one from a folder to another of its own or a later level."""
    if layer(user) != layer(used):
        return LEVEL[layer(user)] < LEVEL[layer(used)]
    return part(user) != part(used) and PART[part(user)] <= PART[part(used)]


def circle(uses: Mapping[str, Iterable[str]]) -> list[str]:
    """One, if there is any."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def symbols(objects: Iterable[Path]) -> dict[Path, tuple[set[str], set[str]]]:
    """The global symbols that each object file defines, and those that it needs."""
    found: dict[Path, tuple[set[str], set[str]]] = {path: (set(), set()) for path in objects}
    listing = subprocess.run(["nm", "--extern-only", "--format=posix", "--print-file-name", *found],
                             capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        defined, needed = found[Path(path)]
        if name.startswith("ibv_") or name in ("fallocate", "ftruncate"):
            continue  # libibverbs' and libc's, also where regx-check stands before them
        (needed if kind in "Uvw" else defined).add(name)
    return found


def object_of(source: Path) -> Path | None:
    """Of several, as of a source that is built into a test's variant too, the newest."""
    found = [path for path in (BUILD / source.parent).glob("*.o")
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


def as_one(uses: Uses) -> dict[str, set[str]]:
    """A file and its header are one. Of each layer: what it uses of its own."""
    ones: dict[str, set[str]] = {}
    for user, others in uses.items():
        name = user.rpartition(".")[0]
        ones.setdefault(name, set()).update(
            other for used in others if (other := used.rpartition(".")[0]) != name and layer(other) == layer(name))
    return ones


def test_circles_and_wrong_arrows_are_seen() -> None:
    uses = uses_by_include({"base/a.h": '#include "btl/b.h"\n', "btl/b.h": '#include "base/a.h"\n'})
    assert set(circle(uses)) == {"base/a.h", "btl/b.h"}
    assert forbidden("base/a.h", "btl/b.h") and not forbidden("btl/b.h", "base/a.h")
    assert forbidden("transport/shm/c.h", "transport/catalog.h")
    uses = uses_by_include({"base/a.h": "", "base/b.h": '#include "base/a.h"\n', "base/a.c": '#include "base/b.h"\n'})
    assert not circle(uses) and set(circle(as_one(uses))) == {"base/a", "base/b"}


@pytest.fixture(scope="module", name="sources")
def component_sources() -> list[Path]:
    return [path for path in files(".c", ".h") if path.parts[0] == "component"]


@pytest.fixture(scope="module", name="uses")
def all_uses(sources: list[Path]) -> Uses:
    names = {"/".join(path.parts[1:]): path for path in sources}
    objects = {name: object_of(path) for name, path in names.items() if path.suffix == ".c"}
    # Built for something that this machine has not.
    optional = ("transport/verbs/", "compat/", "library/", "kernel/", "check/")
    assert not [name for name, path in objects.items() if not path and not name.startswith(optional)]
    uses = uses_by_include({name: (TOP / path).read_text() for name, path in names.items()})
    for name, used in uses_by_symbol({name: path for name, path in objects.items() if path}).items():
        uses[name].update(used)
    return uses


def test_every_layer_has_its_place(sources: list[Path]) -> None:
    places = {part("/".join(path.parts[1:])) for path in sources}
    assert {layer for layer, _ in places} == set(LEVEL)
    assert {place for place in places if place[0] in PARTS} == set(PART)


def test_no_circle_of_files(uses: Uses) -> None:
    found = circle(uses)
    assert not found, "\n".join(f"{user} → {used}: {sorted(uses[user].get(used, ()))}"
                                for used, user in zip(found, found[1:]))


def test_no_circle_of_files_with_their_headers(sources: list[Path]) -> None:
    names = {"/".join(path.parts[1:]): path for path in sources}
    uses = as_one(uses_by_include({name: (TOP / path).read_text() for name, path in names.items()
                                   if layer(name) not in TIED}))
    found = circle(uses)
    assert not found, " → ".join(reversed(found))


def test_no_arrow_against_the_order(uses: Uses) -> None:
    found = [f"{user} → {used}: {', '.join(sorted(why))}" for user, others in sorted(uses.items())
             for used, why in others.items() if forbidden(user, used)]
    assert not found, "\n".join(found)


def test_no_circle_of_layers(uses: Uses) -> None:
    """Of one level; between levels the order forbids it."""
    layers: dict[str, set[str]] = {}
    for user, others in uses.items():
        layers.setdefault(layer(user), set()).update(
            layer(used) for used in others
            if layer(used) != layer(user) and LEVEL[layer(used)] == LEVEL[layer(user)])
    assert not circle(layers)
