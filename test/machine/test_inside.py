# SPDX-License-Identifier: BSD-3-Clause
"""The tests that need an RDMA device, in the machine that has one, unless there is one here."""
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import device
from launch import TOP, Build

RUN = Path(__file__).with_name("run")
OBJECTS = TOP / ".build/obj"
UNITS = [*(f"test/unit/transport/verbs/test_{noun}"
           for noun in ("ends", "faults", "frames", "gets", "puts", "settings"))]
PYTEST = ["/usr/bin/python3", "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfEs",
          f"--rootdir={TOP}"]
# Those that take longest come first.
FILES = ["test/mpi/test_over_verbs.py", "test/hazard/test_verbs.py",
         "test/registration/test_staleness_verbs.py", "test/hazard/test_verbs_faults.py",
         "test/mpi/test_on_demand.py", "test/hazard/test_verbs_hazards.py",
         "test/hazard/test_verbs_ports.py", "test/hazard/test_verbs_auto.py",
         "test/hazard/test_verbs_stale.py"]
# Too short for a machine of its own: in that of another file.
LIBFABRIC = "test/registration/test_libfabric_verbs.py"
ALONG = {"test/registration/test_staleness_verbs.py": ["test/registration/test_library_verbs.py",
                                                        LIBFABRIC],
         "test/hazard/test_verbs_stale.py": ["test/hazard/test_verbs_grant.py",
                                             "test/mpi/test_shadow_verbs.py"]}
SIDE_BY_SIDE = 2  # one emulated machine leaves a good part of two cores idle
SHORT = "test/mpi/test_over_verbs.py"
WITHOUT_PAGING = "bookworm"  # a suite whose kernel can less


@pytest.fixture(autouse=True, scope="module")
def reason_not_to(build: Build) -> None:
    if device.is_there():
        pytest.skip("they run on the device that is here")
    if os.geteuid() != 0:
        pytest.skip("only root can make the machine")
    if not (build.component / "regx_transport_verbs.so").exists():
        pytest.skip("built without rdma-core")


FAILED = ("FAILED ", "ERROR ", "[  FAILED  ]")


def failed_first(run: subprocess.CompletedProcess[str]) -> str:
    """What was printed, after the lines that name what failed: a log may be cut."""
    names = [line for line in run.stdout.splitlines() if line.startswith(FAILED)]
    return "\n".join([*names, f"status {run.returncode}", run.stdout, run.stderr])


def test_what_failed_in_the_machine_is_named_first() -> None:
    out = "before\nFAILED a::b - why\n[  FAILED  ] c\n"
    run = subprocess.CompletedProcess([], 1, stdout=out, stderr="after")
    assert failed_first(run) == f"FAILED a::b - why\n[  FAILED  ] c\nstatus 1\n{out}\nafter"


def inside(command: list[str], *options: str, timeout: float = 1800) -> str:
    """What a command prints that succeeds in the machine."""
    run = subprocess.run([RUN, "--timeout", str(timeout), *options, "--", *command],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         errors="replace", check=False, timeout=timeout + 600)
    assert run.returncode == 0, failed_first(run)
    return run.stdout


def along(file: str) -> list[str]:
    """Files that run in the machine of that one. Without libfabric test_library_install says so."""
    built = (OBJECTS / "test/registration/fabric_steps").exists()
    return [name for name in ALONG.get(file, []) if built or name != LIBFABRIC]


@pytest.fixture(scope="module")
def outputs(request: pytest.FixtureRequest, reason_not_to: None, full: bool,
            seed: int) -> Iterator[dict[str, Future[str]]]:
    """What pytest prints of each of the files that this run is to test."""
    files = [item.callspec.params["file"] for item in request.session.items
             if item.path == request.path and "outputs" in item.fixturenames]
    options = [f"--seed={seed}", *(["--full"] if full else [])]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        try:
            yield {file: pool.submit(inside, [*PYTEST, file, *along(file), *options],
                                     timeout=10800 if full else 1800) for file in files}
        finally:
            pool.shutdown(cancel_futures=True)


def run_units(folder: Path, *options: str) -> None:
    """The cmocka programs of one build, one after the other."""
    programs = [str(folder / unit) for unit in UNITS]
    out = inside(["sh", "-ec", 'for program; do "$program"; done', "sh", *programs], *options)
    assert out.count("[       OK ]") == out.count("[ RUN") > 0, out


@pytest.mark.parametrize("suite", ["trixie-backports", WITHOUT_PAGING])
def test_unit_tests_pass_in_the_machine(suite: str) -> None:
    subprocess.run(["make", "-s", "-C", OBJECTS, *UNITS], check=True, timeout=300)
    run_units(OBJECTS, "--kernel", suite)


@pytest.mark.parametrize("sanitizer", ["asan", "tsan"])
def test_sanitized_unit_tests_pass_in_the_machine(sanitizer: str) -> None:
    folder = TOP / ".build" / sanitizer
    if not (folder / UNITS[0]).exists():
        pytest.skip("test/run builds it (the thread sanitizer's with --full)")
    run_units(folder)


@pytest.mark.parametrize("file", FILES)
def test_files_of_pytest_pass_in_the_machine(file: str, outputs: dict[str, Future[str]]) -> None:
    out = outputs[file].result()
    assert " passed" in out and "skipped" not in out, out


def test_without_paging(seed: int) -> None:
    """The other kernel: the same wire, fewer of the kernel's ways to tell of changed memory."""
    out = inside([*PYTEST, SHORT, "-k", "short", f"--seed={seed}"], "--kernel", WITHOUT_PAGING)
    assert " passed" in out and "skipped" not in out, out


def test_messages_larger_than_memory(full: bool) -> None:
    """In a machine that has less memory than they take."""
    if not full:
        pytest.skip("with --full: ten minutes of swapping and more")
    out = inside([*PYTEST, "test/hazard/test_working_set.py"], "--memory", "512", "--swap", "1024",
                 timeout=7200)
    assert " passed" in out and "skipped" not in out, out
