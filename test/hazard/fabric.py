# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts with a pretended RDMA device (test/fabric): a transport named verbs that is shared memory,
which reaches across the hosts of one machine, and a folder where the kernel lists such devices."""
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from job import Job
from launch import Build, Mpi
from namespace import two_hosts

# Before the program, in a mount namespace of its own: the kernel shows a device.
DEVICE = ["unshare", "--mount", "sh", "-c", """
    net=$(mktemp -d) && mount --bind /sys/class/net $net && mount -t tmpfs tmpfs /sys/class &&
    mkdir -p /sys/class/net /sys/class/infiniband/fake0 /sys/class/infiniband/fake1 &&
    mount --move $net /sys/class/net && rmdir $net || exit 99
    exec "$@" """, "sh"]


class Fabric:
    """Two hosts, each with the pretended device."""

    def __init__(self, mpi: Mpi, folder: Path, around: list[str], options: list[str]) -> None:
        self.mpi = mpi
        self.path = mpi.build.path(folder)
        self.around = around
        self.options = options

    def __call__(self, name: str, *arguments: object, ranks: int = 4,
                 within: list[str] | None = None, environment: dict[str, str] | None = None,
                 regx: dict[str, Any] | None = None, **how: Any) -> Job:
        return self.mpi(name, *arguments, ranks=ranks, around=self.around, options=self.options,
                        within=[*DEVICE, *(within or [])],
                        environment={**self.path, **(environment or {})}, regx=regx, **how)


@pytest.fixture
def plugins(build: Build, tmp_path: Path) -> Path:
    """The component and its transports, of which verbs is the pretended one."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    fake = build.programs.parent / "fabric" / "regx_transport_verbs.so"
    for made in (build.component / "mca_btl_regx.so", fake):
        (folder / made.name).symlink_to(made)
    return folder


@pytest.fixture
def fabric(mpi: Mpi, plugins: Path, tmp_path: Path) -> Iterator[Fabric]:
    with two_hosts(tmp_path) as (around, options):
        yield Fabric(mpi, plugins, around, options)
