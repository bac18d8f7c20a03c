# SPDX-License-Identifier: BSD-3-Clause
"""The guest's root: this machine's release of Debian, so that what is built here runs there."""
import tempfile
from pathlib import Path

from packages import bootstrap, codename, output

# binutils: openmpi.py tells by it whether Open MPI's own defect has ended a job.
PACKAGES = ["binutils", "ibverbs-providers", "ibverbs-utils", "iproute2", "kmod", "libasan8",
            "libcmocka0", "libhwloc15", "libibverbs1", "librdmacm1", "libtsan2", "libubsan1",
            "openmpi-bin", "perftest", "procps", "python3-pytest", "rdma-core", "strace",
            "ucx-utils"]
SIZE = "3G"  # of the image, mostly a hole


def make(cache: Path) -> None:
    """Puts `root.img` into a folder."""
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder = Path(name)
        tree = bootstrap(codename(), folder, f"--include={','.join(PACKAGES)}")
        image = folder / "root.img"
        output(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", tree, image, SIZE])
        image.rename(cache / "root.img")
