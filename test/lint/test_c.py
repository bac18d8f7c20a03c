# SPDX-License-Identifier: BSD-3-Clause
"""The C sources: layout and static analysis."""
import os
import re
import subprocess

import pytest

from tree import TOP, files

# Debian bookworm's. Others break lines elsewhere, and find other faults.
CLANG_FORMAT, CPPCHECK = "14", "2.10"


def need(program: str, wanted: str) -> None:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if not re.search(rf"\b{re.escape(wanted)}(\.\d|$)", said):
        pytest.skip(f"needs {program} {wanted}, found: {said}")


def test_clang_format() -> None:
    need("clang-format", CLANG_FORMAT)
    run = subprocess.run(["clang-format", "--dry-run", *files(".c", ".h")], cwd=TOP, capture_output=True, text=True,
                         check=True)
    differ = re.findall(r"^([^:\n]+):\d+:\d+: warning", run.stderr, re.MULTILINE)
    assert not differ, "clang-format -i " + " ".join(sorted(set(differ)))


def test_no_line_is_longer_than_120_columns() -> None:  # clang-format leaves comments as they are
    assert not [f"{path}:{number}" for path in files(".c", ".h")
                for number, line in enumerate((TOP / path).read_text().splitlines(), 1) if len(line) > 120]


# What the compiler has defined here. Without it cppcheck goes through each file once for each #ifdef.
DEFINED = ["-D__x86_64__", "-DMADV_POPULATE_WRITE=23", "-DREGX_HAVE_UCM"]


def test_cppcheck() -> None:
    need("cppcheck", CPPCHECK)
    run = subprocess.run(
        ["cppcheck", "--quiet", "--error-exitcode=1", "--std=c11", "--inline-suppr", f"-j{os.cpu_count()}",
         "--enable=warning,performance,portability", "-Icomponent", *DEFINED, "--library=test/lint/cmocka.cfg",
         "--suppressions-list=test/lint/cppcheck-suppressions", *files(".c")],
        cwd=TOP, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
