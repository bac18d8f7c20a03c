# SPDX-License-Identifier: BSD-3-Clause
"""The backends of registration, one after the other, where they can be used."""
from collections.abc import Callable

import pytest

from fabric import fabric, plugins  # noqa: F401 (fixtures)
from launch import Mpi
from tables import words

BACKENDS = [word for word in words("backend") if word not in ("auto", "odp")]  # odp: of verbs


@pytest.fixture(scope="session")
def refusals() -> dict[str, str]:
    """Of each backend that was tried, what was said against it, or nothing."""
    return {}


@pytest.fixture
def usable(mpi: Mpi, refusals: dict[str, str]) -> Callable[[str], str]:
    """Skips where the backend does not work here, which is a clear refusal that tells why."""
    def ask(name: str) -> str:
        if name not in refusals:
            job = mpi("collective", "--sizes", "1", "bcast", regx={"backend": name})
            refusals[name] = ""
            if job.status != 0 and any("btl_regx_backend" in line for line in job.complaints):
                refusals[name] = " ".join(job.complaints)
            else:
                job.checked(ranks=2)
        if refusals[name]:
            pytest.skip(f"not usable here: {refusals[name]}")
        return name

    return ask


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, usable: Callable[[str], str]) -> str:
    return usable(request.param)
