# SPDX-License-Identifier: BSD-3-Clause
"""The backends of registration, one after the other, where they can be used."""
import pytest

from launch import Mpi
from tables import words

BACKENDS = [word for word in words("backend") if word not in ("auto", "odp")]  # odp: of verbs


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, mpi: Mpi) -> str:
    """An explicit backend that does not work here is a clear refusal, which tells why."""
    name: str = request.param
    job = mpi("collective", "--sizes", "1", "bcast", regx={"backend": name})
    if job.status != 0 and any("btl_regx_backend" in line for line in job.complaints):
        pytest.skip(f"not usable here: {' '.join(job.complaints)}")
    job.checked(ranks=2)
    return name
