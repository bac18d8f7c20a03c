# SPDX-License-Identifier: BSD-3-Clause
"""Commands that documents show: compare takes their words, mpirun's lines run."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from launch import TOP, Mpi
from sample import Case, write

from tools import compare

SHOWN = re.compile(r"^ {4}(\S.*)$|`([^`\n]+)`", re.M)
STANDS_FOR = {"M": "1", "N": "1", "FILE": "strategies.conf", "CMD": "mpirun ./program"}


def shown(program: str) -> list[tuple[str, ...]]:
    """The words of each command that begins so, without what stands behind it on its line."""
    documents = [path for path in TOP.rglob("*.md") if ".build" not in path.parts]
    texts = [line or quoted for path in documents for line, quoted in SHOWN.findall(path.read_text())]
    commands = [re.split(r"  +#|…|, ", text)[0] for text in texts if re.match(rf"({program})( |$)", text)]
    return sorted({tuple(shlex.split(command)) for command in commands})


def test_compare_takes_the_documented_words(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
                                            pytestconfig: pytest.Config) -> None:
    monkeypatch.chdir(TOP / "osu-configs")
    osu = pytestconfig.getoption("--osu")
    commands = [words[1:] for words in shown("(osu-configs/)?compare")
                if "--from" not in words and (osu or "--osu" not in words)]
    assert len(commands) > 10
    for words in commands:
        given = [{**STANDS_FOR, "DIR": str(osu)}.get(word, word).removeprefix("osu-configs/") for word in words]
        monkeypatch.setattr(sys, "argv", ["compare", "--dry-run", "--no-build", *given])
        assert compare.main() == 0, (words, capfd.readouterr().err)
        assert "mpirun" in capfd.readouterr().out, words


def test_the_documented_lines_of_mpirun_run(mpi: Mpi, tmp_path: Path) -> None:
    lines = shown("mpirun --mca")
    assert len(lines) >= 3
    for words in lines:
        settings = dict(zip(words[2::3], words[3::3]))
        assert words == ("mpirun", *(w for name, value in settings.items() for w in ("--mca", name, value)), "./program")
        settings.pop("btl_regx_explain", None)  # said to the reader
        mpi("transfer", write([Case(8), Case(1 << 20)], tmp_path), pml=settings.pop("pml"), btl=settings.pop("btl"),
            mca=settings).checked(ranks=2)
