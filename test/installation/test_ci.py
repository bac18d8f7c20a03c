# SPDX-License-Identifier: BSD-3-Clause
""".ci/run, with stubs for what it calls: the real OSU benchmarks where their source is beside the checkout;
elsewhere all other tests, and a line that says so."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launch import TOP

STUB = '#!/bin/sh\necho "$(basename "$0")" "$@"\n'


def stub(path: Path, script: str = STUB) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if not (TOP / ".ci").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(TOP / ".ci/run", folder / ".ci/run")
    stub(folder / "component/config/setup")
    stub(folder / "test/run")
    return folder


def source(checkout: Path) -> Path:
    """Where .ci/run looks for what builds OSU's benchmarks."""
    found = re.search(r"\bsource=(\S+)", (checkout / ".ci/run").read_text())
    assert found
    return checkout / found[1]


def said(checkout: Path, *words: str) -> tuple[str, str]:
    (checkout / ".build").mkdir(exist_ok=True)
    run = subprocess.run([checkout / ".ci/run", *words], capture_output=True, text=True, check=True, timeout=60)
    return run.stdout, run.stderr


def test_without_osus_source_all_else_is_tested_and_a_line_says_so(checkout: Path) -> None:
    out, err = said(checkout, "--full")
    assert out == "setup test\nrun --require-all --full\n"
    assert re.fullmatch(r"\.ci/run: OSU's benchmarks are not tested: .*--osu DIR.*\n", err)


def test_with_osus_source_they_are_built_once_and_tested(checkout: Path) -> None:
    stub(source(checkout), '#!/bin/sh\necho build\nmkdir "$1"\n')
    osu = checkout / ".build/osu"
    assert said(checkout) == (f"setup test\nbuild\nrun --require-all --osu {osu}\n", "")
    assert said(checkout) == (f"setup test\nrun --require-all --osu {osu}\n", "")
