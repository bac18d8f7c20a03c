# SPDX-License-Identifier: BSD-3-Clause
"""The documents: what they link to and name is there, and the front door stays short."""
import re
from pathlib import Path

from tree import TOP, files

README_WORDS = 1000
FENCE = re.compile(r"```.*?```", re.S)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
# What is in backquotes or stands by itself and can only be a file of the tree.
FOLDERS = "component|mca-params|osu-configs|test|btl|compat|rendezvous|pool|registration|transport|base"
NAME = re.compile(rf"(?<![\w./\-{{])((?:{FOLDERS})/[\w.+/-]*[\w/])")
FOR_EXAMPLE = re.compile(r"(^|/)(LAYER|NAME|NOUN|DIR)\b|LAYER|test_NOUN|NAME\.c")
MADE = ("mca-params/regx.7",)


def anchor(heading: str) -> str:
    """As github makes it of a heading's text."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(text: str, folder: Path) -> list[str]:
    """Those into the tree that lead nowhere; #PART must be a heading."""
    broken = []
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue  # to a host: test_tree.py
        file, _, part = link.partition("#")
        target = folder / file if file else None
        if target is not None and not target.exists():
            broken.append(link)
        elif part:
            there = target.read_text() if target is not None else text
            headings = re.findall(r"^#+ +(.*?) *$", there, re.M)
            if part not in map(anchor, headings):
                broken.append(link)
    return broken


def missing_files(text: str, *folders: Path) -> list[str]:
    """Names of files and folders that are in none of those folders."""
    return sorted({name for name in NAME.findall(text)
                   if not FOR_EXAMPLE.search(name) and name not in MADE
                   and not any((folder / name).exists() or (folder / f"{name}.c").exists()
                               for folder in folders)})


def test_readme_is_short() -> None:
    words = (TOP / "README.md").read_text().split()
    assert len(words) <= README_WORDS, f"README.md has {len(words)} words, at most {README_WORDS}"


def test_the_lines_of_compare_in_the_readme_are_of_its_table() -> None:
    """Each figure stands in one line of the table with the same size, or is a line of it."""
    readme = (TOP / "README.md").read_text()
    part = re.search(r"^ +regx bounce .*?\n\n", readme, re.M | re.S)
    link = re.search(r"\((osu-configs/results/strategies-\S+\.txt)\)", readme)
    assert part and link
    table = (TOP / link[1]).read_text().splitlines()
    for line in part[0].splitlines():
        words = line.split()
        if words:
            assert any(set(words) <= set(there.split()) for there in table), line


def test_hazards_that_tests_number_are_listed() -> None:
    """hazards.md has each number that a test names: "Hazards 4 and 12", hazard_16_many_mappings."""
    listed = set(re.findall(r"^\| (\d+) \|", (TOP / "test/hazard/hazards.md").read_text(), re.M))
    named = {(number, str(path)) for path in files(".c", ".h", ".py") if path.parts[0] == "test"
             for numbers in re.findall(r"hazards?[ _](\d+(?:(?:, | and )\d+)*)", (TOP / path).read_text(), re.I)
             for number in re.findall(r"\d+", numbers)}
    assert len({number for number, _ in named}) > 20, named
    assert not [name for name in named if name[0] not in listed]


def test_links_lead_somewhere() -> None:
    broken = {str(path): broken_links((TOP / path).read_text(), TOP / path.parent)
              for path in files(".md")}
    assert not {path: links for path, links in broken.items() if links}


def test_the_files_that_are_named_are_there() -> None:
    """Named from the top of the tree, from component/, or from the document's folder."""
    missing = {str(path): missing_files((TOP / path).read_text(), TOP, TOP / "component",
                                        TOP / path.parent) for path in files(".md")}
    assert not {path: names for path, names in missing.items() if names}


def test_what_leads_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, it is\n")
    text = "[a](there.md) [b](gone.md) [c](there.md#a-heading-it-is) [d](#gone) base/gone.h test/unit/LAYER/x\n"
    assert broken_links(text, tmp_path) == ["gone.md", "#gone"]
    assert missing_files(text, tmp_path) == ["base/gone.h"]
