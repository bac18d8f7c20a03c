# SPDX-License-Identifier: BSD-3-Clause
"""The programs of osu-configs can be found."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def programs() -> Path:
    return Path(os.environ["REGX_COMPANION"]).parent
