# SPDX-License-Identifier: BSD-3-Clause
"""The documents: what they link to and name is there, and the front door stays short."""
import lzma
import re
import subprocess
from pathlib import Path

import pytest

from tree import TOP, files

FENCE = re.compile(r"```.*?```", re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# What is in backquotes or stands by itself and can only be a file of the tree.
FOLDERS = "component|mca-params|osu-configs|test|btl|compat|rendezvous|pool|registration|transport|base"
NAME = re.compile(rf"(?<![\w./\-{{])((?:{FOLDERS})/[\w.+/-]*[\w/])")
FOR_EXAMPLE = re.compile(r"(^|/)(LAYER|NAME|NOUN|DIR)\b|LAYER|test_NOUN|NAME\.c")


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
        if file and not (folder / file).exists():
            broken.append(link)
        elif part:
            headings = re.findall(r"^#+ +(.*?) *$", (folder / file).read_text() if file else text, re.M)
            if part not in map(anchor, headings):
                broken.append(link)
    return broken


def missing_files(text: str, *folders: Path) -> list[str]:
    """Names of files and folders that are in none of those folders."""
    return sorted({name for name in NAME.findall(text)
                   if not FOR_EXAMPLE.search(name) and name != "mca-params/regx.7"  # which is made
                   and not any((folder / name).exists() or (folder / f"{name}.c").exists()
                               for folder in folders)})


def test_readme_is_short() -> None:
    assert len((TOP / "README.md").read_text().split()) <= 1000


def test_the_lines_of_compare_in_the_readme_are_of_its_table() -> None:
    """Each figure stands in one line of the table with the same size, or is a line of it."""
    readme = (TOP / "README.md").read_text()
    part = re.search(r"^ +regx bounce .*?\n\n", readme, re.M | re.S)
    link = re.search(r"\((osu-configs/results/strategies-\S+\.txt)\)", readme)
    assert part and link
    table = (TOP / link[1]).read_text().splitlines()
    for words in filter(None, map(str.split, part[0].splitlines())):
        assert any(set(words) <= set(there.split()) for there in table), words


def test_published_figures_are_of_a_commit_of_this_history() -> None:
    paths = files(".xz")
    if (TOP / ".git/shallow").exists():
        pytest.skip("not a git checkout with its history")
    for path in paths:
        about = set(re.findall(r"regx (\S+), Open MPI", lzma.decompress((TOP / path).read_bytes()).decode()))
        assert about, path
        for commit in about:
            subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], cwd=TOP, check=True)


def test_hazards_that_tests_number_are_listed() -> None:
    """hazards.md has each number that a test names: "Hazards 4 and 12", hazard_16_many_mappings."""
    listed = set(re.findall(r"^\| (\d+) \|", (TOP / "test/hazard/hazards.md").read_text(), re.M))
    named = {(number, str(path)) for path in files(".c", ".h", ".py") if path.parts[0] == "test"
             for numbers in re.findall(r"hazards?[ _](\d+(?:(?:, | and )\d+)*)", (TOP / path).read_text(), re.I)
             for number in re.findall(r"\d+", numbers)}
    assert len({number for number, _ in named}) > 20, named
    assert not [name for name in named if name[0] not in listed]


def test_links_lead_somewhere() -> None:
    assert not [(str(path), link) for path in files(".md")
                for link in broken_links((TOP / path).read_text(), TOP / path.parent)]


def test_the_files_that_are_named_are_there() -> None:
    """Named from the top of the tree, from component/, or from the document's folder."""
    assert not [(str(path), name) for path in files(".md")
                for name in missing_files((TOP / path).read_text(), TOP, TOP / "component", TOP / path.parent)]


def test_what_leads_nowhere_is_seen(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading, it is\n")
    text = "[a](there.md) [b](gone.md) [c](there.md#a-heading-it-is) [d](#gone) base/gone.h test/unit/LAYER/x\n"
    assert broken_links(text, tmp_path) == ["gone.md", "#gone"]
    assert missing_files(text, tmp_path) == ["base/gone.h"]
