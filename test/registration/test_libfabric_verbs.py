# SPDX-License-Identifier: BSD-3-Clause
"""libregx-libfabric: libfabric's cache of registrations over an RDMA device, with its own memory monitors and
with ours. Buffers are changed between two uses; what arrives is compared."""
import os
import re
import subprocess
from pathlib import Path

import pytest

import device
from launch import Build

pytestmark = device.needed

CHANGES = ["none", "munmap", "raw munmap", "mmap over it", "mremap onto it", "MADV_DONTNEED", "SHM_REMAP"]
# Else Soft-RoCE has too little room for what libfabric's rxm asks for, or it takes long to be pinned.
SMALL = {"FI_PROVIDER": "verbs;ofi_rxm", "FI_UNIVERSE_SIZE": "4", "FI_OFI_RXM_MSG_TX_SIZE": "64",
         "FI_OFI_RXM_MSG_RX_SIZE": "64"}
STATISTICS = {"FI_LOG_LEVEL": "info", "FI_LOG_SUBSYS": "mr"}
# After which changes the peer gets what was there before; see component/library/libregx-libfabric.3.in.
STALE = {
    "libfabric's memhooks": ["raw munmap", "mremap onto it"],  # its default
    "regx": ["SHM_REMAP"],
    "libfabric's userfaultfd": ["SHM_REMAP"],
    "regx that scans": [],
}
RUNS: dict[str, tuple[str, dict[str, str]]] = {
    "libfabric's memhooks": ("own", {"FI_MR_CACHE_MONITOR": "memhooks"}),
    "regx": ("regx", {}),
    "libfabric's userfaultfd": ("own", {"FI_MR_CACHE_MONITOR": "userfaultfd"}),
    "regx that scans": ("regx-scan", {}),
}
SHORT = ["regx"]  # starting libfabric takes ten seconds in the emulated machine


def address() -> str:
    """The IPv4 address of the interface that a device is of."""
    for name in device.DEVICES.glob("*/ports/*/gid_attrs/ndevs/0"):
        shown = subprocess.run(["ip", "-o", "-4", "address", "show", "dev", name.read_text().strip()],
                               capture_output=True, text=True, check=True, timeout=60).stdout
        if found := re.search(r"inet ([0-9.]+)/", shown):
            return found[1]
    raise AssertionError("no RDMA device has an interface with an IPv4 address")


def stale(build: Build, monitor: str, settings: dict[str, str]) -> list[str]:
    """After which changes what arrives is what was there before."""
    program: Path = build.programs.parent / "registration/fabric_steps"
    if not program.exists():
        pytest.skip("built without libfabric")
    done = subprocess.run([program, monitor, address()], capture_output=True, text=True, check=False,
                          env=os.environ | SMALL | STATISTICS | settings, timeout=300)
    if "notifier cannot be used" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = dict(re.findall(r"^(.*): (new|STALE)$", done.stdout, re.M))
    assert list(outcomes) == CHANGES
    # Of four uses before each change the first is not kept, and the second registers again. So two
    # hit, or one if the notifier's reader is late.
    hits = sum(int(count) for count in re.findall(r"MR cache stats: .* hits (\d+)", done.stderr))
    assert hits >= len(CHANGES), done.stderr
    return [change for change in CHANGES if outcomes[change] == "STALE"]


def test_ours_sees_what_libfabrics_own_monitors_do_not(build: Build, full: bool) -> None:
    columns = list(RUNS) if full else SHORT
    assert {column: stale(build, *RUNS[column]) for column in columns} == \
        {column: STALE[column] for column in columns}
