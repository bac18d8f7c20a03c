# SPDX-License-Identifier: BSD-3-Clause
"""What administrators start from (mca-params/site): files of defaults that Open MPI takes as they
are."""
import re
from pathlib import Path

import pytest

from launch import TOP, Build, Mpi

SITE = TOP / "mca-params" / "site"
FILES = sorted(SITE.glob("*.conf"))
PROGRAM = ["collective", "--sizes", "10,300000", "bcast"]


def with_file(build: Build, file: Path) -> dict[str, str]:
    """The environment in which Open MPI reads this file before its own."""
    own = build.mpirun.resolve().parent.parent / "etc" / "openmpi-mca-params.conf"
    debian = Path("/etc/openmpi/openmpi-mca-params.conf")
    return {"OMPI_MCA_mca_base_param_files": f"{file},{own if own.exists() else debian}"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_parameter_of_the_file_exists(build: Build, file: Path) -> None:
    """And none of them is btl, which would end jobs where regx is not installed."""
    names = re.findall(r"^#?(\w+) = ", file.read_text(), re.M)
    assert "btl_regx_enable" in names and "btl" not in names
    assert {name for name in names if name.startswith("btl_regx_")} <= set(build.parameters)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_regx_carries_jobs_that_name_nothing(mpi: Mpi, build: Build, file: Path) -> None:
    """As on a cluster: neither pml nor btl is on the command line. Beside Open MPI's own BTLs
    but vader, to which these files but workstation's leave the node. With all of the pool locked, also
    within the limit that low-memlock is for."""
    options = [] if file.stem == "workstation" else ["--mca", "btl", "^vader"]
    limit = ["sh", "-c", "ulimit -l 8192; exec setpriv --bounding-set -ipc_lock --inh-caps "
             '-ipc_lock "$@"', "sh"] if file.stem == "low-memlock" else []
    job = mpi(*PROGRAM, pml=None, btl=None, options=options, within=limit, environment=with_file(build, file))
    for report in job.checked(ranks=2).reports:
        assert report["bytes_shm"] > 0 or report["rank"] == 1, report
        if file.stem == "low-memlock":
            assert report["pool_bytes"] == report["pool_pinned_bytes"] == 2 << 20, report
    if file.stem == "workstation":  # large messages go by rendezvous, also beside vader
        assert job.total("messages_frag") == 0 and job.total("bytes_eager") < 300_000, str(job)
