# SPDX-License-Identifier: BSD-3-Clause
"""The files of the project, as git sees them: committed, or about to be."""
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def files(*suffixes: str) -> list[Path]:
    """Paths from the top of the tree; all of them, or those that end like that."""
    if not (TOP / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=TOP, capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listing.split("\0") if name]
    return [path for path in paths
            if (TOP / path).is_file() and (not suffixes or path.suffix in suffixes)]
