# SPDX-License-Identifier: BSD-3-Clause
"""A strategy is its file, its row in base/counters.h and the build; a backend its file, its row in
monitor.h and the build; a transport its folder, its row in transport/catalog.h and the
build. Whatever others want to know of one is a field of its own (component/README.md), so that no
list of names is forgotten."""
import re
from pathlib import Path

import pytest

from tables import strategies, words
from tree import TOP

# auto says between which paths it chooses; a whole read over a device is counted as a read.
ELSEWHERE = {"component/rendezvous/auto.c": strategies(),
             "component/rendezvous/exposed.c": ["read"]}
FALLBACK = "bounce"  # carries what another path could not: any file may name it
NEUTRAL = ["auto", "none", FALLBACK]  # not only of these two parameters
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# library/ is for programs of libibverbs, whose header is <infiniband/verbs.h>.
OF_TRANSPORTS = ("component/transport/", "component/library/")


def sources() -> dict[str, str]:
    return {str(file.relative_to(TOP)): file.read_text(encoding="utf-8")
            for pattern in ("*.[ch]", "*.def") for file in sorted((TOP / "component").rglob(pattern))}


def named() -> dict[str, list[str]]:
    """Files that name a path, and which."""
    return {file: [path for path in re.findall(r"\bREGX_PATH_([a-z]+)\b", text) if path in strategies()]
            for file, text in sources().items()}


def own_file(kind: str, name: str) -> str:
    definition = f"const regx_{kind}_t regx_{kind}_{name.replace('+', '_')} = {{"
    files = [file for file, text in sources().items() if definition in text]
    assert len(files) == 1, f"{len(files)} files define {name}"
    return files[0]


def listed(text: str, names: list[str]) -> list[str]:
    """The names that are values in its strings: a string of nothing else, or behind "allowed: ".
    What is told to people in sentences may name any."""
    found = []
    for literal in LITERAL.findall(COMMENT.sub("", text)):
        _, allowed, values = literal.rpartition("allowed: ")
        elements = [element.strip() for element in values.split(",") if element.strip()]
        known = [element for element in elements if element in names]
        found += known if allowed or known == elements else []
    return found


def in_code(text: str, names: list[str]) -> list[str]:
    """The names that are identifiers of it, such as a field's."""
    return re.findall(rf"\b(?:{'|'.join(names)})\b", LITERAL.sub('""', COMMENT.sub("", text)))


def test_a_strategy_is_named_in_its_own_file_alone() -> None:
    own = {strategy: own_file("strategy", strategy) for strategy in strategies()}
    wrong = [f"{file} names {path}" for file, paths in named().items() for path in set(paths)
             if path != FALLBACK and file != own[path] and path not in ELSEWHERE.get(file, [])]
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize("kind,parameter", [("strategy", "rendezvous"), ("backend", "backend")])
def test_no_other_file_compares_or_lists_its_name(kind: str, parameter: str) -> None:
    own = {name: own_file(kind, name) for name in words(parameter) if name not in NEUTRAL}
    wrong = {f"{file}: \"{name}\"" for file, text in sources().items()
             for name in listed(text, list(own)) if file != own[name]}
    assert not wrong, "\n".join(sorted(wrong))


def test_a_transport_is_named_in_transport_alone() -> None:
    transports = [word for word in words("transport") if word not in NEUTRAL]
    wrong = {f"{file}: {name}" for file, text in sources().items() if not file.startswith(OF_TRANSPORTS)
             for name in listed(text, transports) + in_code(text, transports)}
    assert transports and not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize("line,found", [
    ('return strcmp(name, "odp") != 0;', ["odp"]),
    ('const char *tells[] = {"hooks", "hooks+notifier", NULL};', ["hooks", "hooks+notifier"]),
    ('"backend=%s; allowed: hooks, notifier", name', ["hooks", "notifier"]),
    ('usable_instead("odp", ", odp")', ["odp", "odp"]),
    ('/* As "odp". */ tally("odp: pinned, not where a page begins", "see hooks")', []),
])
def test_it_sees_names_as_values_and_not_in_sentences(line: str, found: list[str]) -> None:
    assert listed(line, ["hooks", "notifier", "hooks+notifier", "odp"]) == found


@pytest.mark.parametrize("line,found", [
    ("config.verbs = &settings->transports.verbs;", ["verbs", "verbs"]),
    ("/* verbs */ regx_verbs_owns(\"verbs\"); say(\"transport verbs is not used\");", []),
    ('#include "transport/verbs/present.h"', []),
])
def test_it_sees_names_as_identifiers(line: str, found: list[str]) -> None:
    assert in_code(line, ["uct", "verbs"]) == found
