# SPDX-License-Identifier: BSD-3-Clause
"""What the kernel says of this node, where regx itself does not say it. Nothing is changed."""
import os
import re
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import List

LIMITS = ["etc/security/limits.conf", "etc/security/limits.d/*.conf"]
SCHEDULERS = ("slurmd", "pbs_mom", "sge_execd", "lim", "condor_startd", "flux-broker", "sshd")


def read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def size(count: int) -> str:
    """Bytes for people."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.4g} {unit}"
    return f"{count} bytes"


# --- memory that may be locked

def limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else size(value)


def own_memlock() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return limit(soft) if soft == hard else f"{limit(soft)} (ulimit -l can raise it to {limit(hard)})"


def who_sets_memlock() -> List[str]:
    """For logins the files of pam_limits; for a job the daemon that starts it, by the daemon's own
    limit, which its children inherit."""
    said = []
    for pattern in LIMITS:
        for path in sorted(Path("/").glob(pattern)):
            for line in read(str(path)).splitlines():
                words = line.split("#")[0].split()
                if len(words) == 4 and words[2] == "memlock":
                    said.append(f"{path}: {' '.join(words)}")
    for path in Path("/proc").glob("[0-9]*"):
        name = read(f"{path}/comm")
        if name in SCHEDULERS and read(f"{path}/stat").split(" ")[3:4] == ["1"]:
            found = re.search(r"^Max locked memory +(\S+)", read(f"{path}/limits"), re.M)
            if found:
                value = int(found[1]) if found[1].isdigit() else resource.RLIM_INFINITY
                said.append(f"what {name} (process {path.name}) starts: {limit(value)}")
    unit = re.findall(r"/([^/]+\.service)(?:/|$)", read("/proc/self/cgroup"))
    if unit:
        said.append(f"this process belongs to {unit[-1]}: {_systemd_limit(unit[-1])}")
    return said


def _systemd_limit(unit: str) -> str:
    try:
        shown = subprocess.run(["systemctl", "show", "-p", "LimitMEMLOCK", unit], check=False,
                               capture_output=True, text=True, timeout=10,
                               stdin=subprocess.DEVNULL).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        shown = ""
    return shown or "systemctl does not say with which LimitMEMLOCK"


# --- shared memory and pages

def shared_memory() -> "tuple[int, int]":
    """All of /dev/shm and what is free, in bytes; 0, 0: there is none."""
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return 0, 0
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def cores() -> int:
    return len(os.sched_getaffinity(0))


def huge_pages() -> str:
    found = re.search(r"\[(\w+)\]", read("/sys/kernel/mm/transparent_hugepage/enabled"))
    kept = []
    for folder in sorted(Path("/sys/kernel/mm/hugepages").glob("hugepages-*")):
        count = read(f"{folder}/nr_hugepages")
        if count not in ("", "0"):
            kept.append(f"{count} of {folder.name.replace('hugepages-', '')}")
    return (f"transparent huge pages: {found[1] if found else 'none'}; set aside: "
            f"{', '.join(kept) or 'none'}")


# --- what may refuse system calls

def refusers() -> List[str]:
    """Why the kernel may have refused process_vm_readv between two processes of a user."""
    said = []
    yama = read("/proc/sys/kernel/yama/ptrace_scope")
    if yama not in ("", "0", "1"):
        said.append(f"kernel.yama.ptrace_scope is {yama} (0 and 1 allow it)")
    seccomp = re.search(r"^Seccomp:\s*(\d)", read("/proc/self/status"), re.M)
    if seccomp and seccomp[1] == "2":
        said.append("a seccomp filter is in force (a container's profile, or systemd's SystemCallFilter)")
    return said


# --- RDMA devices

@dataclass
class Port:
    name: str  # device:port
    state: str
    physical: str
    layer: str
    rate: str
    subnets: List[str]  # of its GIDs
    interfaces: List[str]

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        behind = f" on {', '.join(self.interfaces)}" if self.interfaces else ""
        subnets = f", subnet {' and '.join(self.subnets)}" if self.subnets else ", no address"
        return f"{self.name}{behind}: {self.layer}, {self.state} ({self.physical}), {self.rate}{subnets}"


def _word(path: str) -> str:
    """Of "4: ACTIVE" the word."""
    return read(path).partition(": ")[2] or "unknown"


def _subnet(gid: str) -> str:
    """Of a GID its first half; of RoCE's GIDs for IPv4 the address, as the mask is not in them."""
    if gid.startswith("0000:0000:0000:0000:0000:ffff:"):
        numbers = bytes.fromhex(gid[30:].replace(":", ""))
        return ".".join(map(str, numbers))
    return gid[:19]


def ports() -> List[Port]:
    found = []
    for folder in sorted(Path("/sys/class/infiniband").glob("*/ports/*")):
        gids = [read(str(path)) for path in sorted(folder.glob("gids/*"))]
        prefixes = {_subnet(gid) for gid in gids if gid.strip("0:")}
        interfaces = {read(str(path)) for path in folder.glob("gid_attrs/ndevs/*")} - {""}
        found.append(Port(f"{folder.parents[1].name}:{folder.name}", _word(f"{folder}/state"),
                          _word(f"{folder}/phys_state"), read(f"{folder}/link_layer") or "unknown",
                          read(f"{folder}/rate") or "no rate", sorted(prefixes), sorted(interfaces)))
    return found
