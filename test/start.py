# SPDX-License-Identifier: BSD-3-Clause
"""What makes the start of a job cheaper, of which there are hundreds: the launcher does less. What carries
messages is chosen as ever."""
import ctypes
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# PMIx's data store zeroes two segments of 4 MiB. They grow.
SEGMENTS = {"NS_META_SEG_SIZE": "65536", "NS_DATA_SEG_SIZE": "65536"}
# Of the launcher, of its daemons and of what each rank has of them: what is for other machines, for tools
# and for other ways to place ranks is not loaded only to be unloaded.
UNUSED = {"ess": "^slurm,tool", "errmgr": "^default_tool", "iof": "^tool", "plm": "^slurm",
          "pmix": "^flux,isolated", "ras": "^gridengine,simulator,slurm",
          "rmaps": "^mindist,rank_file,resilient,seq", "schizo": "^flux,jsm,slurm", "state": "^novm,tool"}


def write_topology(file: Path) -> None:
    """What hwloc finds here. To ask each PCI device is expensive in a virtual machine."""
    hwloc = ctypes.CDLL("libhwloc.so.15")
    found = ctypes.c_void_p()
    refused = [hwloc.hwloc_topology_init(ctypes.byref(found)), hwloc.hwloc_topology_load(found),
               hwloc.hwloc_topology_export_xml(found, str(file).encode(), ctypes.c_ulong(0))]
    assert not any(refused), refused


@contextmanager
def cheap(series: tuple[int, int]) -> Iterator[dict[str, str]]:
    """The environment of mpirun; of Open MPI 4.1, since later ones have another launcher. Its own files go
    to a folder of this session's: of two jobs that share one, one may remove it while the other begins."""
    with tempfile.TemporaryDirectory(prefix="regx-") as name:
        folder = Path(name)
        folder.chmod(0o1777)  # some tests run as an ordinary user
        if series != (4, 1):
            yield {"UCX_LOG_LEVEL": "fatal"}  # UCX, which it loads, says on stdout that there is no /proc
            return
        write_topology(folder / "topology")
        yield {**SEGMENTS, "HWLOC_XMLFILE": str(folder / "topology"), "HWLOC_THISSYSTEM": "1",
               "OMPI_MCA_orte_tmpdir_base": name,
               **{f"OMPI_MCA_{framework}": value for framework, value in UNUSED.items()}}
