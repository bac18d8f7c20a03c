# SPDX-License-Identifier: BSD-3-Clause
"""A reason that is counted (base/counters.h) must fit where it is kept, or its end is cut."""
import re

from tree import TOP, files

STRING = r'"(?:[^"\\\n]|\\.)*"'
STRINGS = rf"{STRING}(?:\s+{STRING})*"  # the compiler makes one of them
COUNTED = re.compile(r"\b(?:regx_tally|\w*_fall_?back)\(")
# As reasons begin, also those of a table or a variable: "verbs: ", "not watched: ".
BEGINS = re.compile(r"[a-z][a-z_=+ ]{1,19}: ")
# What begins alike and is an error that ends the start, or a help text.
OTHERS = re.compile(r"ucm: |userfaultfd: |on a node: |not used: |example: ")


def value(strings: str) -> str:
    return "".join(part[1:-1] for part in re.findall(STRING, strings))


def reasons(text: str) -> set[str]:
    """Constants that are counted, or look as if they were. A format is cut by who prints it."""
    found = {value(match.group()) for match in re.finditer(STRINGS, text)}
    found = {reason for reason in found if BEGINS.match(reason) and not OTHERS.match(reason)}
    for call in COUNTED.finditer(text):
        arguments = text[call.end():text.index(";", call.end())]
        found |= {value(match.group()) for match in re.finditer(STRINGS, arguments)}
    return {reason for reason in found if "%" not in reason}


def test_a_reason_fits_where_it_is_kept() -> None:
    counters = (TOP / "component/base/counters.h").read_text(encoding="utf-8")
    length = re.search(r"#define REGX_REASON_LENGTH (\d+)", counters)
    assert length
    most = int(length.group(1)) - 1
    found = {(str(path), reason) for path in files(".c") if path.parts[0] == "component"
             for reason in reasons((TOP / path).read_text(encoding="utf-8"))}
    assert len(found) > 50  # it sees them
    cut = [f"{path}: {len(reason)} of {most}: {reason}" for path, reason in sorted(found)
           if len(reason) > most]
    assert not cut, "\n".join(cut)
