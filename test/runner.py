# SPDX-License-Identifier: BSD-3-Clause
"""test/run: installs what is missing, builds, runs the tests in phases that do not disturb each other,
and says how many passed."""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import results
from results import Result

TOP = Path(__file__).resolve().parent.parent
BUILD = TOP / ".build"
SETUP = TOP / "component/config/setup"
MACHINE = TOP / "test/machine/run"
GUEST_PYTHON = "/usr/bin/python3"
NO_MACHINE = 125  # test/machine/run: there is none
RELEASES = {"5.0": "trixie", "6.0": "sid"}  # of Debian, with that Open MPI
DEPENDS_ON_OPENMPI = ["test/unit/btl", "test/mpi", "test/hazard",
                      "test/registration/test_staleness.py"]
FLAKY_ALLOWED = 2
CORES = len(os.sched_getaffinity(0))
GUEST_PATIENCE, GUEST_PATIENCE_FULL = 1800, 14400  # seconds; the guest is emulated, and slow


class Phase(NamedTuple):
    """A part of the run. Its tests are those that conftest.py puts into it."""
    name: str
    what: str
    folders: tuple[str, ...] = ("test",)
    workers: bool = False  # two tests at a time
    full: bool = False  # only in a full run


def with_unit_tests() -> tuple[str, ...]:
    """The folders, so that all that is in others need not be imported."""
    return tuple(sorted({str(path.parent.relative_to(TOP)) for path in TOP.glob("test/**/test_*.c")}))


def needing_device() -> tuple[str, ...]:
    """Those files of pytest's, so that the emulated machine, which is slow, imports no others."""
    return tuple(str(path.relative_to(TOP)) for path in sorted(TOP.glob("test/*/test_*.py"))
                 if "device.needed" in path.read_text())


PHASES = [
    Phase("units", "unit tests, two at a time", folders=with_unit_tests(), workers=True),
    Phase("processes", "tests of one process, and MPI jobs that mostly wait, two at a time", workers=True),
    Phase("jobs", "MPI jobs, alone"),
    Phase("guest", "the emulated machine with an RDMA device, alone",
          folders=("test/unit", *needing_device())),
    Phase("machines", "other kernels, other Open MPIs, the package, alone", full=True),
]

EPILOG = """TEST, named from the top of the tree; without one: every test
  test/unit/base/test_param         a unit test, with or without its .c
  test/mpi/test_transfer.py         a file of pytest's; ::NAME behind it: one test of it
  test/hazard                       all tests of a folder

test/README.md has more."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="test/run", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Installs what is missing, builds, runs the tests and says how many passed.")
    parser.add_argument("--full", action="store_true",
                        help="everything there is, rather than what covers each thing once")
    parser.add_argument("--strict", action="store_true",
                        help="a failure that is a counter or a line only is not tried again")
    parser.add_argument("--require-all", action="store_true",
                        help="what cannot run here for want of a package or of the emulated "
                             "machine is a failure")
    parser.add_argument("--sanitizer", choices=["asan", "tsan"],
                        help="for the unit tests named (default: tsan for those with threads, "
                             "else asan, with undefined behaviour)")
    parser.add_argument("--machine", action="store_true",
                        help="run the tests named in the emulated machine (as root)")
    parser.add_argument("--openmpi", choices=list(RELEASES),
                        help="build and run the tests named, or those that depend on Open MPI's "
                             "version, with that one, in a root folder of the release of Debian "
                             "that has it (as root)")
    parser.add_argument("--osu", type=Path, metavar="DIR",
                        help="OSU micro-benchmarks to test with, as installed (DIR/libexec/...)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the samples")
    parser.add_argument("-k", metavar="EXPR", help="only tests that match, as pytest's")
    parser.add_argument("--no-install", action="store_true",
                        help="say what is missing rather than install it")
    parser.add_argument("tests", nargs="*", metavar="TEST", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    wanted.tests = [named(parser, test) for test in wanted.tests]
    if wanted.osu and not wanted.osu.is_dir():
        parser.error(f"--osu {wanted.osu}: no such folder")
    for option in ("machine", "sanitizer"):
        if getattr(wanted, option) and not wanted.tests:
            parser.error(f"--{option}: name the tests")
    if wanted.openmpi and (wanted.machine or wanted.osu or wanted.no_install):
        parser.error("--openmpi: not with --machine, --osu or --no-install")
    return wanted


def named(parser: argparse.ArgumentParser, test: str) -> str:
    """As pytest takes it, from the top of the tree."""
    path, colons, name = test.removeprefix(f"{TOP}/").removeprefix("./").partition("::")
    path = path.rstrip("/")
    if not (TOP / path).exists() and (TOP / f"{path}.c").exists():
        path += ".c"
    if not path.startswith("test/") or not (TOP / path).exists():
        parser.error(f"{test}: there is no such test")
    return path + colons + name


class Run:
    """What was asked for, and what came out so far."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        self.wanted = wanted
        self.folder = BUILD / ("results.named" if wanted.tests else "results")
        self.results: list[Result] = []
        self.files = 0
        options = ["--seed", str(wanted.seed)] if wanted.seed is not None else []
        options += ["-k", wanted.k] if wanted.k else []
        options += ["--full"] if wanted.full else []
        options += ["--require-all"] if wanted.require_all else []
        options += [f"--osu={wanted.osu.resolve()}"] if wanted.osu else []
        options += [f"--sanitizer={wanted.sanitizer}"] if wanted.sanitizer else []
        self.options = options

    def command(self, python: str, tests: list[str], more: list[str], file: Path) -> list[str]:
        return [python, "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rfE", "--no-header",
                f"--rootdir={TOP}", "-o", "junit_family=xunit1", f"--junitxml={file}",
                *more, *self.options, *(str(TOP / test) for test in tests)]

    def selection(self, phase: Phase | None) -> list[str]:
        """Of a phase; --named: the files of the guest's phase do not only say what is to be imported."""
        named = ["--named"] if self.wanted.tests else []
        return [f"--phase={phase.name}", *named] if phase else []

    def pytest(self, phase: Phase | None, tests: list[str]) -> list[Result]:
        """The results of one run of pytest; phase None: of these tests, whatever phase they are of."""
        self.files += 1
        file = self.folder / f"{self.files}-{phase.name if phase else 'named'}.xml"
        more = self.selection(phase)
        inside = phase is not None and phase.name == "guest" and not has_device()
        if inside:
            patience = GUEST_PATIENCE_FULL if self.wanted.full or self.wanted.tests else GUEST_PATIENCE
            words = [str(MACHINE), "--timeout", str(patience), "--",
                     *self.command(GUEST_PYTHON, tests, more, file)]
        else:
            if phase and phase.workers:
                more += ["-n", str(min(2, CORES)), "--dist=loadfile"]  # tests of a file share what they build
            words = self.command(os.environ["REGX_PYTHON"], tests, more, file)
        status = subprocess.run(words, cwd=TOP, stdin=subprocess.DEVNULL, check=False).returncode
        if inside and status == NO_MACHINE:
            return self.without_machine()
        return results.of(file, status, phase.name if phase else "")

    def without_machine(self) -> list[Result]:
        """The tests of the emulated machine where there is none: skipped, or failed if all was required."""
        print("not run: the tests that need an RDMA device, since there is no emulated machine (above)")
        outcome = "failed" if self.wanted.require_all else "skipped"
        return [Result(outcome, "those that need an RDMA device", "no emulated machine")]

    def phases(self, chosen: list[Phase]) -> None:
        for phase in chosen:
            if phase.full and not self.wanted.full:
                continue
            with timed(phase.what):
                self.results += self.pytest(phase, self.wanted.tests or list(phase.folders))

    def again(self) -> None:
        """Failures that are a counter or a line only are tried once more, alone: on a busy machine a
        thread may come too late for a count, which is no defect. Few are let pass, and none in silence."""
        failed = [result for result in self.results if result.outcome == "failed"]
        if self.wanted.strict or not 0 < len(failed) <= FLAKY_ALLOWED \
                or not all(result.excusable for result in failed):
            return
        by_name = {phase.name: phase for phase in PHASES}
        for result in failed:
            with timed(f"once more, alone: {result.test}"):
                phase = by_name[result.phase]._replace(workers=False)
                anew = self.pytest(phase, [result.test])
            if anew and all(other.outcome == "passed" for other in anew):
                self.results[self.results.index(result)] = result._replace(outcome="flaky")


def has_device() -> bool:
    states = Path("/sys/class/infiniband").glob("*/ports/*/state")
    return any("ACTIVE" in state.read_text() for state in states)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints what begins, and how long it took."""
    print(f"--- {what}", flush=True)
    began = time.monotonic()
    yield
    print(f"--- {what}: {time.monotonic() - began:.0f} s", flush=True)


def quietly(*words: str | Path) -> None:
    """What it prints goes to .build/units.log, and is shown if it fails."""
    log = BUILD / "units.log"
    with log.open("a") as file:
        status = subprocess.run(words, cwd=TOP, stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, check=False).returncode
    if status != 0:
        print("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
        sys.exit(f"test/run: failed: {' '.join(map(str, words[:6]))} ...; the whole log is {log}")


def must(*words: str | Path) -> None:
    status = subprocess.run(words, cwd=TOP, stdin=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        sys.exit(status)


def listed(name: str) -> list[str]:
    """One of the build's lists of programs."""
    return subprocess.run(["make", "-s", "--no-print-directory", "-C", BUILD / "obj", f"list-{name}"],
                          capture_output=True, text=True, check=True).stdout.split()


def build_units(wanted: argparse.Namespace) -> None:
    """The unit tests: those with threads under the thread sanitizer, the others under those of
    addresses and undefined behaviour; with --full each under both. But for those that a sanitizer spoils."""
    plain, threaded = listed("plain"), listed("threaded")
    tests = [test for test in listed("tests") if test not in plain]
    wants = [test.partition("::")[0].removesuffix(".c") for test in wanted.tests]

    def chosen(programs: list[str], build: str) -> list[str]:
        """Those that were asked for; they are to run in that build."""
        if wants:
            programs = [test for test in programs if any(
                test.removesuffix("_fake") == want or test.startswith(f"{want}/") for want in wants)]
        (BUILD / build).mkdir(parents=True, exist_ok=True)
        (BUILD / build / "programs").write_text("".join(f"{test}\n" for test in programs))
        return programs

    programs = chosen(plain, "plain")
    if programs:
        quietly("make", "--no-print-directory", "-C", BUILD / "obj", f"-j{CORES}", *programs)
    for sanitizer, configure in (("asan", "--enable-sanitizers"), ("tsan", "--enable-tsan")):
        programs = chosen([test for test in tests if wanted.full or (
            sanitizer == wanted.sanitizer if wanted.sanitizer
            else (test in threaded) == (sanitizer == "tsan"))], sanitizer)
        if not programs:
            continue
        folder = BUILD / sanitizer
        if not (folder / "Makefile").exists():
            quietly("env", "-C", folder, "../../configure", "-q", f"--prefix={folder}/prefix",
                 f"--cache-file={BUILD}/config.cache", configure)
        # A warning is a failure of the tests, not of a user's build with a newer compiler. A sanitizer
        # names lines; the rest of -g would take a quarter of the time.
        quietly("make", "--no-print-directory", "-C", folder, f"-j{CORES}",
             "CFLAGS=-O1 -g1 -Werror", *programs)


def prepare(wanted: argparse.Namespace) -> None:
    with timed("packages, and the emulated machine's kernel and root"):
        must(SETUP, "test", "--no-install" if wanted.no_install else "--packages")
        if os.geteuid() == 0 and not has_device() and (wanted.machine or not wanted.tests):
            # If there is none, the tests that need it say so.
            subprocess.run([MACHINE, "--fetch"], stdin=subprocess.DEVNULL, check=False)
    with timed("build"):
        (BUILD / "units.log").unlink(missing_ok=True)
        must(SETUP, "test", "--no-install")
        build_units(wanted)
    for line in (BUILD / "env").read_text().splitlines():
        key, _, value = line.partition("=")
        os.environ[key] = value
    # What the tests start by `python3` is this one: another may be a script that takes half a second to
    # find one.
    python = BUILD / "bin/python3"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {os.environ["REGX_PYTHON"]} "$@"\n')
    python.chmod(0o755)
    os.environ["PATH"] = f"{python.parent}:{os.environ['PATH']}"


def main() -> int:
    wanted = arguments()
    if wanted.openmpi:
        options = ["--full"] if wanted.full else []
        options += ["--seed", str(wanted.seed)] if wanted.seed is not None else []
        must(TOP / "test/machine/debian", RELEASES[wanted.openmpi], "test/run", *options,
             *(wanted.tests or DEPENDS_ON_OPENMPI))
        return 0
    began = time.monotonic()
    prepare(wanted)
    run = Run(wanted)
    shutil.rmtree(run.folder, ignore_errors=True)
    run.folder.mkdir()
    if wanted.machine:
        run.phases([phase for phase in PHASES if phase.name == "guest"])
    elif wanted.tests:
        run.results = run.pytest(None, wanted.tests)
    else:
        run.phases(PHASES)
        run.again()
    print(f"--- all: {time.monotonic() - began:.0f} s")
    return results.show(run.results, run.folder)


if __name__ == "__main__":
    sys.exit(main())
