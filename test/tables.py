# SPDX-License-Identifier: BSD-3-Clause
"""What the tables of parameters, strategies, backends and counters in component/ hold, so that no
test has a list of its own that could be forgotten."""
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("REGX_BUILD_DIR", TOP / ".build/obj"))
DESCRIBE = BUILD / "mca-params/describe"


@cache
def tables() -> dict[str, Any]:
    if not DESCRIBE.exists():
        pytest.fail(f"there is no {DESCRIBE}: run component/config/setup test first")
    return json.loads(subprocess.run([DESCRIBE, "json"], capture_output=True, text=True, check=True,
                                     timeout=60).stdout)


def parameters() -> dict[str, dict[str, Any]]:
    """regx's own, by their names without btl_regx_; not those that Open MPI registers."""
    return tables()["parameters"]


def words(parameter: str) -> list[str]:
    """What a parameter allows in this build, "auto" among them: of rendezvous the strategies, of
    backend the backends."""
    return parameters()[parameter]["words"]


def strategies() -> list[str]:
    """Without auto, which chooses among them; each is a path of the report, too."""
    return [word for word in words("rendezvous") if word != "auto"]


def paths() -> list[str]:
    """Of which the report counts messages and bytes."""
    return tables()["paths"]


def keys(kind: str) -> list[str]:
    """Keys of the report whose value is text, number or object."""
    return [key for key, its in tables()["report"].items() if its == kind]
