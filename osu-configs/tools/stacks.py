#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""stacks.py [STACK...]: make osu-configs/stale.md anew, or the columns of those stacks: which of them carry wrong
bytes after which change of memory, and whether regx-check says so. Where an RDMA device is; from the top of the tree:
test/machine/run --timeout 3600 -- python3 -B osu-configs/tools/stacks.py
A stack of Debian 13 is left out unless this was done before, outside:
test/machine/debian trixie sh -c "apt-get update && apt-get install --yes openmpi-bin ibverbs-providers\""""
import argparse
import os
import re
import shlex
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
OBJ = Path(os.environ.get("REGX_BUILD_DIR", TOP / ".build/obj"))
MODULE = Path("/mnt/regx_notify.ko")  # in the emulated machine
OPENMPI = os.environ.get("REGX_PKGLIBDIR", "/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3")
FILE = TOP / "osu-configs/stale.md"
# For mca_btl_openib.so of Debian's source (apt-get source openmpi; configure --with-verbs; make -C opal) where librdmacm-dev
# is installed. Debian's own is without.
OPENIB = TOP / ".build/stacks"
# Of Debian's source of MPICH (configure --prefix=.../.build/stacks/mpich --with-device=ch4:ofi --with-libfabric=/usr
# --disable-fortran; make install; bin/mpicc -Wl,-rpath,.../lib -o bin/rounds osu-configs/rounds.c).
MPICH = TOP / ".build/stacks/mpich/bin"
TRIXIE = TOP / ".build/machine/debian-trixie/root"
# A command in another root, its device and this tree in it.
ENTER = ["unshare", "--mount", "sh", "-ec", 'for at in /dev /sys /proc /tmp "$1"; do mkdir -p "$0$at"; mount --rbind "$at" "$0$at"'
         '; done; exec chroot "$0" env -C "$@"']
ROUNDS = 4  # by each of two ranks, with each side changing
HEAD = """\
<!-- made by osu-configs/tools/stacks.py -->
# Which stacks carry wrong data, in silence

Two processes over Soft-RoCE, in the emulated machine (Debian 12: Open MPI 4.1.4, UCX 1.13.1; UCX 1.18.1 is Debian
13's, under Open MPI 5.0.7), exchange 256 KiB (MPI_Sendrecv) in {each} rounds for the send buffer, whose memory is
changed before each round but the first, and in {each} for the receive buffer. Counted in both processes these are
{rounds} rounds, {changed} of them after a change. A cell has the number of rounds whose bytes were wrong: **{changed} of {rounds}**
means each round after a change. No stack reported any of them. The changes are made by libc, where hooks may see
them, unless the system call is named.

Each job ran under `regx-check`. It reported {said}.

Two processes of one node use a device only if they are told to. UCX's jobs had these options:

    {ucx}

Without the last one UCX does not reach its peer over Soft-RoCE, and ends after half a minute (`UD endpoint ...
unhandled timeout error`). Open MPI 4.1 does without the second and third where the first names the PML. The MTL ofi and
MPICH's mpiexec had others (`OFI`, `MPICH_OFI` in `tools/stacks.py`).

| change | {stacks} |
|{lines}|
"""
TAIL = """
The BTL openib is Debian's source of Open MPI 4.1.4, built with librdmacm, without which Debian's own does not start
over Soft-RoCE. The MTL ofi is Debian 12's own, with libfabric 1.17.0. Its cache hears of changes from Open MPI's hooks,
whatever FI_MR_CACHE_MONITOR says; with `-x FI_MR_CACHE_MAX_COUNT=0` the bytes were right. MPICH ofi is Debian 12's
source of MPICH 4.0.2, built for ch4:ofi with the same libfabric. There FI_MR_CACHE_MONITOR is heeded: with `disabled`
the bytes were right after munmap and mmap by the system call, and with `userfaultfd` too, but then wrong after
SHM_REMAP.

## Longer runs

In the same machine some 470,000 random messages between buffers that are made anew, given back, unmapped and replaced
meanwhile (as in `test/mpi/shadow.c`; each byte is compared) ran over pml/ucx 1.13 and over regx (`none`, `notifier`,
`hooks+notifier`), and so did the OSU benchmarks and 308 of mpi4py's tests. All bytes were right, and regx-check
reported no use of stale memory. Where other memory is moved onto parts of the buffers (mremap), 774 of some 82,000
messages over pml/ucx were wrong. regx-check reported each of these, and six uses of memory that had changed although
all bytes were right. Two cases it cannot judge, and says only that remote access is possible: an offer that names no
length, beyond its first page; and an offer that a peer uses again much later, as one of a window.

## What a report says

regx-check runs any program that uses libibverbs, over any stack. In this one, over pml/ucx, rank 0 sends its halo,
gives the memory back by the system call (pool_trim), and takes memory at the same address before the next step.

    $ regx-check --require mpirun -np 2 --mca pml ucx -x UCX_TLS=rc_verbs,ud_verbs,self ./halo
    step 1: 0 of 262144 bytes are wrong
    regx-check: rank 0: stale and different: 262144 bytes at 0x7f16e4239000
      registered at 5.750 s in uct_ib_reg_mr+0x59 (libuct_ib.so) < ... < PMPI_Send+0x11a < send_halo+0x39 < main+0x6a
      made stale by munmap in syscall+0x18 (libc.so) < pool_trim+0x1b < main+0x6f
      used by an offer to a peer in uct_rc_verbs_ep_am_short+0x145 (libuct_ib.so) < ... < PMPI_Send+0x11a < send_halo+0x39 < main+0x6a
    step 2: 262144 of 262144 bytes are wrong
    regx-check: registrations that cannot be watched (shared memory, files): 4, compared at each use
    regx-check: 11 registrations, 12273 postings, 4 of 1 KiB or more; stale uses: 1 different, 0 same, 0 not compared
    regx-check: 1 time: rank 0: stale and different: 262144 bytes at 0x7f16e4239000
      made stale by munmap in syscall+0x18 (libc.so) < pool_trim+0x1b < main+0x6f

The status of the command is 3. Over Soft-RoCE the line needs `-x UCX_IB_GID_INDEX=0` as well. Without `UCX_TLS` both
ranks' messages go by shared memory. UCX registers and posts all the same, to connect, so that `0 different` says
nothing; the last line then says so, and the status is 4 (`--require`).
`addr2line -fie halo pool_trim+0x1b` prints the line of the call, if the program was built with `-g`.

The lines `step` are the program's. UCX's hooks do not see the system call, and its cache finds the old registration,
whose key goes to the peer in a message; the peer reads the old pages. `made stale by` names the call. The four
registrations that cannot be watched are UCX's own.
"""
REGX = "--mca pml ob1 --mca btl regx --mca btl_regx_transport verbs --mca btl_regx_rendezvous direct --mca btl_regx_backend "
UCX = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any -x UCX_TLS=rc_verbs,ud_verbs,self -x UCX_IB_GID_INDEX=0"
OFI = "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' -x FI_UNIVERSE_SIZE=4"
MPICH_OFI = "-env MPIR_CVAR_NOLOCAL 1 -env FI_PROVIDER 'verbs;ofi_rxm' -env FI_UNIVERSE_SIZE 4"
STACKS = {
    "pml/ucx": UCX,
    "pml/ucx 1.18": UCX,
    **{f"regx {backend}": REGX + backend for backend in ("notifier", "none", "hooks", "kernel", "hooks+notifier", "odp")},
    "mtl ofi": OFI,
    "MPICH ofi": MPICH_OFI,
    "btl openib": "--mca pml ob1 --mca btl openib,self --mca btl_openib_cpc_include rdmacm"
                  " --mca btl_openib_receive_queues P,65536,256,192,128 --mca mpi_leave_pinned 1",
}
ROOTS = {"pml/ucx 1.18": TRIXIE}
LINE = re.compile(r"^(.+): (\d+) rounds, (\d+) wrong, (\d+) missed, (\d+) more$", re.M)
NOT_RUN = "not run"
Column = dict[str, str]


def job(stack: str, side: str, *changes: str) -> Column:
    """Of those changes, or of each: wrong, missed, more, rounds."""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if stack not in ROOTS:
        own = OPENIB if "openib" in stack else OBJ / "component"  # mpirun fails if there is no such folder
        environment["OMPI_MCA_opal_mca_base_component_path"] = f"{own}:{OPENMPI}"
    enter = [*ENTER, str(ROOTS[stack]), str(TOP)] if stack in ROOTS else []
    mpich = stack == "MPICH ofi"
    run = [str(MPICH / "mpiexec"), "-n", "2"] if mpich else ["mpirun.openmpi", "-np", "2", "--bind-to", "none"]
    command = ["chrt", "-i", "0", *enter, *run, *shlex.split(STACKS[stack]), str(OBJ / "component/check/regx-check"),
               str((MPICH if mpich else OBJ / "osu-configs") / "rounds"), side, str(ROUNDS), *changes]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode()
    (TOP / ".build/stacks.log").open("a").write(" ".join(command) + "\n" + output)
    return {change: f"{wrong} {missed} {more} {rounds}" for change, rounds, wrong, missed, more in LINE.findall(output)}


def column(stack: str, *changes: str) -> Column:
    """A cell for each change, of both sides: wrong, and of these those that were missed."""
    sides = [job(stack, side, *changes) for side in ("send", "receive")]
    cells = {}
    for change in dict.fromkeys(change for side in sides for change in side):
        if not all(change in side for side in sides):
            cells[change] = "ends the job"
            continue
        wrong, missed, more, rounds = (sum(int(side[change].split()[i]) for side in sides) for i in range(4))
        cells[change] = (f"**{wrong} of {rounds}**" if wrong else "0") + (f", {missed} missed" if missed else "") + \
            (f", {more} reported that were right" if more else "")
    return cells


def read() -> dict[str, Column]:
    """The columns that the file has."""
    rows = [line.strip("| ").split(" | ") for line in FILE.read_text().splitlines() if line.startswith("| ")] if FILE.exists() else []
    return {stack: {row[0]: row[number] for row in rows[1:]} for number, stack in enumerate(rows[0]) if number} if rows else {}


def write(columns: dict[str, Column]) -> None:
    stacks = [stack for stack in STACKS if columns.get(stack)]  # of those that start
    changes = list(dict.fromkeys(change for column in columns.values() for change in column))
    cells = [cell for column in columns.values() for cell in column.values()]
    said = "every round with wrong bytes" + (" that is not counted as missed" if any("missed" in cell for cell in cells) else "")
    said += ", and no other" if not any("right" in cell for cell in cells) else ""
    FILE.write_text(HEAD.format(each=ROUNDS, rounds=4 * ROUNDS, changed=4 * (ROUNDS - 1), said=said, ucx=UCX, stacks=" | ".join(stacks), lines="|".join(["---"] * (len(stacks) + 1))) +
                    "".join(f"| {change} | " + " | ".join(columns[stack].get(change, NOT_RUN) for stack in stacks) + " |\n"
                            for change in changes) + TAIL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stacks", nargs="*", metavar="STACK", help=", ".join(STACKS))
    wanted = parser.parse_args().stacks or [stack for stack in STACKS if stack not in ROOTS or ROOTS[stack].exists()]
    if MODULE.exists():
        subprocess.run(["insmod", MODULE], check=False)
    for stack in wanted:
        columns = read()
        columns[stack] = column(stack)
        write(columns)
        print(stack, columns[stack], flush=True)


if __name__ == "__main__":
    main()
