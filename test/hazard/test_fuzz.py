# SPDX-License-Identifier: BSD-3-Clause
"""A fuzzer over every byte that a peer can write: test/fuzz has a harness for each parser."""
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch import TOP, Build
from skips import can_fuzz

HANG = 600  # seconds
LONG = 600  # seconds of each harness with --full
ENOUGH = 300_000  # inputs: by then a planted defect is found


@dataclass(frozen=True)
class Harness:
    name: str
    inputs: int  # in a short run: about a second
    # A defect to be planted: what no test may pass.
    source: str  # in component/
    right: str
    wrong: str

    def mutant(self) -> str:
        text = (TOP / "component" / self.source).read_text()
        assert text.count(self.right) == 1, f"{self.source} has changed: {self.right}"
        return text.replace(self.right, self.wrong)


HARNESSES = [
    Harness("control", 60000, "rendezvous/control.c",
            "length == 24 + 8 * (size_t)count;", "length >= 24;"),
    Harness("modex", 40000, "btl/address.c",
            " || record.length > (size_t)(end - at)) {", ") {"),
    Harness("onesided", 10000, "onesided/origin.c",
            "message->data_length > request->length - request->moved ||", ""),
    Harness("rendezvous", 5000, "rendezvous/bounce.c",
            "rndv->slots[slot].length != control->length) {", "false) {"),
    Harness("shm", 5000, "transport/shm/shm_poll.c",
            "frame->length > inbound->pool_size - frame->offset) {", "false) {"),
    Harness("verbs", 500, "transport/verbs/cq.c",
            "malloc(REGX_VERBS_ZCOPY_MAX)", "malloc(7 * REGX_VERBS_RECEIVE_SIZE + 100)"),
]
each_harness = pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)


def make(build: Build, *arguments: str | Path) -> None:
    subprocess.run(["make", "-s", "-C", build.programs.parents[1], *arguments], check=True,
                   timeout=HANG, stdin=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def programs(build: Build) -> Path:
    if not can_fuzz():
        pytest.skip("no clang with libFuzzer (Debian: clang libclang-rt-dev)")
    make(build, "-j2", "fuzz")
    return build.programs.parents[1] / "test/fuzz"


def program_of(harness: Harness, programs: Path) -> Path:
    program = programs / f"fuzz_{harness.name}"
    if harness.name == "verbs" and not program.exists():
        pytest.skip("built without rdma-core")
    return program


def run(program: Path, *arguments: str | Path, **environment: str) \
        -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False,
                          timeout=HANG + LONG, env={**os.environ, "UCX_ERROR_SIGNALS": "",
                               "ASAN_OPTIONS": "quarantine_size_mb=64", **environment})


def seeds(program: Path, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = run(program, REGX_FUZZ_SEEDS=str(folder))
    assert made.returncode == 0, made.stderr
    return sorted(folder.glob("seed*"))


def what_broke_it(done: subprocess.CompletedProcess[str], artifacts: Path) -> str:
    found = [f"{file.name}: {file.read_bytes().hex()}" for file in artifacts.glob("*-*")
             if file.is_file()]
    return "\n".join([done.stderr[-6000:], *found])


@each_harness
def test_real_messages_are_accepted(harness: Harness, programs: Path, tmp_path: Path) -> None:
    """A fuzzer that is refused at the first byte proves nothing."""
    program = program_of(harness, programs)
    files = seeds(program, tmp_path / "seeds")
    done = run(program, *files, REGX_FUZZ_TELL="1")
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert len(files) > 1 and len(words) >= len(files), done.stdout
    assert set(words) == {"accepted"}, words


@each_harness
def test_no_input_does_harm(harness: Harness, programs: Path, full: bool, seed: int,
                            tmp_path: Path) -> None:
    """Short runs are nearly the same for the same seed. Long ones go on from what earlier ones have found."""
    program = program_of(harness, programs)
    corpus = TOP / ".build/fuzz" / harness.name if full else tmp_path / "corpus"
    seeds(program, corpus)
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    amount = [f"-max_total_time={LONG}", "-use_value_profile=1"] if full \
        else [f"-runs={harness.inputs}", f"-seed={seed}"]
    done = run(program, f"-artifact_prefix={artifacts}/", "-timeout=120", "-rss_limit_mb=4096",
               *amount, corpus)
    assert done.returncode == 0, what_broke_it(done, artifacts)
    print(done.stderr.splitlines()[-1])


@pytest.mark.full  # each is built anew
@each_harness
def test_planted_defect_is_found(harness: Harness, programs: Path, build: Build, seed: int,
                                 tmp_path: Path) -> None:
    files = seeds(program_of(harness, programs), tmp_path / "corpus")
    source = tmp_path / "mutant.c"
    source.write_text(harness.mutant())
    for old in ("fuzz_mutant", "obj/mutant.o"):
        (programs / old).unlink(missing_ok=True)
    make(build, "test/fuzz/fuzz_mutant", f"HARNESS={harness.name}", f"MUTANT={source}")
    program = Path(shutil.move(programs / "fuzz_mutant", tmp_path / "mutant"))
    done = run(program, *files)  # it is found by what is made of them, not by them
    assert done.returncode == 0, done.stderr
    done = run(program, f"-artifact_prefix={tmp_path}/", f"-seed={seed}", f"-runs={ENOUGH}",
               tmp_path / "corpus")
    assert done.returncode != 0, "not found"
    assert "Sanitizer" in done.stderr or "deadly signal" in done.stderr, done.stderr[-3000:]
    print("\n".join(line for line in done.stderr.splitlines() if "SUMMARY" in line))
