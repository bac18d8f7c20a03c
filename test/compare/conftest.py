# SPDX-License-Identifier: BSD-3-Clause
"""The tools of osu-configs can be imported, and their programs found."""

import os
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "osu-configs"))


@pytest.fixture(scope="session")
def programs() -> Path:
    return Path(os.environ["REGX_COMPANION"]).parent
