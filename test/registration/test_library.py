# SPDX-License-Identifier: BSD-3-Clause
"""libregx-registration: its example, which compares what arrives, in buffers that are unmapped and mapped
again where they were; and a process that has the component too."""
import re

import pytest

import job
from example import check_none, check_notifier, run
from launch import Build, Mpi

TAKEN = "not watched: another userfaultfd has it"
ROUNDS, SIZE = 200, 20_480  # of the buffer that component and library use
USES = 4  # of each buffer, as in beside.c


def test_the_example_registers_each_buffer_once(build: Build) -> None:
    check_notifier(run(build, "example_fake", "notifier"))


def test_the_example_without_a_cache(build: Build) -> None:
    check_none(run(build, "example_fake", "none"))


def test_the_example_says_what_is_allowed(build: Build) -> None:
    done = run(build, "example_fake", "nonsense")
    assert done.returncode == 1
    assert done.stderr == ("example: backend=nonsense is not known; allowed: auto, none, hooks, notifier, "
                           "hooks+notifier, retain\n")


def beside(mpi: Mpi, build: Build, *arguments: object, **regx: object) -> tuple[job.Job, list[int]]:
    """The job, and how often the domain of each rank found its memory registered."""
    program = build.programs.parent / "registration/beside"
    if not program.exists():
        pytest.skip("built without rdma-core")
    done = mpi(program, *arguments, regx=regx)
    refused = re.search("not opened: (backend=notifier cannot be used.*)", done.stderr)
    if refused or any("btl_regx_backend" in line for line in done.complaints):
        pytest.skip(f"not usable here: {refused[1] if refused else ' '.join(done.complaints)}")
    done.checked(ranks=2)
    hits = dict(re.findall(r"^domain of rank (\d): hits (\d+)$", done.stderr, re.M))
    return done, [int(hits["0"]), int(hits["1"])]


@pytest.mark.parametrize("first", ["library", "component"])
@pytest.mark.parametrize(("backend", "how"), [("notifier", "raw"), ("hooks+notifier", "raw"), ("hooks", "libc")])
def test_beside_the_component_neither_uses_stale_memory(mpi: Mpi, build: Build, first: str, backend: str,
                                                        how: str) -> None:
    """Of the same buffer, by the library with the notifier and the component. Who comes second where both
    want the kernel to watch the memory says that it cannot, and registers it for each use. The program checks
    what arrives, and that no key of the library's outlives its memory."""
    done, hits = beside(mpi, build, first, "notifier", how, ROUNDS, SIZE, rendezvous="pipeline", backend=backend)
    told = done.stderr.count(f"domain: {TAKEN}")
    assert all(report["registrations"] >= ROUNDS for report in done.reports), str(done)
    # Where the reader is still busy with a change, even who comes first may leave a round to the other.
    if backend == "hooks":  # it does not ask the kernel
        assert min(hits) > 0 and told == 0 and done.total("hits") > 0, str(done)
    elif first == "library":
        assert min(hits) > 0, str(done)
        assert all(report["fallbacks"][TAKEN] > 0 for report in done.reports), str(done)
    else:
        assert done.total("hits") > 0 and told == 2, str(done)


@pytest.mark.parametrize("first", ["library", "component"])
def test_beside_the_component_moved_pages_are_registered_anew(mpi: Mpi, build: Build, first: str) -> None:
    """Where pages are moved under the address of a buffer that the library watches, it is told, or they are not
    moved. Before its first use of a new buffer a message may move them unseen."""
    rounds, pages = 50, 64
    done, hits = beside(mpi, build, first, "notifier", "raw", rounds, pages * 4096, rendezvous="remap", backend="none")
    moved = done.rank(1)["remap_pages"] / pages
    assert hits[1] + moved <= USES * rounds, str(done)
    assert hits[1] > 0 or moved > 0, str(done)
