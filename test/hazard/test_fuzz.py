# SPDX-License-Identifier: BSD-3-Clause
"""A fuzzer over what a peer can send to the rendezvous (test/fuzz)."""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from launch import TOP, Build
from skips import can_fuzz

HANG = 600  # seconds
LONG = 600  # seconds of a run with --full
ENOUGH = 1_000_000  # inputs: by then a planted defect is found; mostly within 300,000
INPUTS = 5000  # of a short run: about a second
LONGEST = "-max_len=1024"  # a message with more slots than are allowed, too
# What is to be found: file of component/rendezvous, what stands there, what instead.
PLANTED = [
    ("control.c", "control->slot_count <= slots_max &&", "control->slot_count < 255 &&"),
    ("bounce.c", "rndv->slots[slot].length != control->length) {", "false) {"),
]


def make(build: Build, *arguments: str) -> Path:
    """Answers where the fuzzer is."""
    top = build.programs.parents[1]
    subprocess.run(["make", "-s", "-C", top, *arguments], check=True, timeout=HANG,
                   stdin=subprocess.DEVNULL)
    return top / "test/fuzz"


@pytest.fixture(scope="module")
def folder(build: Build) -> Path:
    if not can_fuzz():
        pytest.skip("no clang with libFuzzer (Debian: clang libclang-rt-dev)")
    return make(build, "-j2", "fuzz")


def run(program: Path, *arguments: str | Path, **environment: str) \
        -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False, timeout=HANG + LONG,
                          env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=64", **environment})


def seeds(program: Path, corpus: Path) -> list[Path]:
    """Real messages, all of which are accepted: a fuzzer that is refused at the first byte proves
    nothing."""
    corpus.mkdir(parents=True, exist_ok=True)
    made = run(program, REGX_FUZZ_SEEDS=str(corpus))
    files = sorted(corpus.glob("seed*"))
    done = run(program, *files, REGX_FUZZ_TELL="1")
    assert made.returncode == done.returncode == 0, made.stderr + done.stderr
    words = done.stdout.split()
    assert len(words) >= len(files) > 1 and set(words) == {"accepted"}, done.stdout
    return files


def test_no_input_does_harm(folder: Path, full: bool, seed: int, tmp_path: Path) -> None:
    """Short runs are nearly the same for the same seed. Long ones go on from what earlier ones have found."""
    program = folder / "fuzz_rendezvous"
    corpus = TOP / ".build/fuzz" if full else tmp_path / "corpus"
    seeds(program, corpus)
    artifacts = tmp_path / "artifacts"
    artifacts.mkdir()
    amount = [f"-max_total_time={LONG}", "-use_value_profile=1"] if full \
        else [f"-runs={INPUTS}", f"-seed={seed}"]
    done = run(program, f"-artifact_prefix={artifacts}/", "-timeout=120", "-rss_limit_mb=4096",
               LONGEST, *amount, corpus)
    found = [f"{file.name}: {file.read_bytes().hex()}" for file in artifacts.iterdir()]
    assert done.returncode == 0, "\n".join([done.stderr[-6000:], *found])


@pytest.mark.full  # each is built anew
@pytest.mark.parametrize(("source", "right", "wrong"), PLANTED, ids=lambda word: word[:9])
def test_planted_defect_is_found(source: str, right: str, wrong: str, folder: Path, build: Build,
                                 seed: int, tmp_path: Path) -> None:
    text = (TOP / "component/rendezvous" / source).read_text()
    assert text.count(right) == 1, f"{source} has changed: {right}"
    mutant = tmp_path / "mutant.c"
    mutant.write_text(text.replace(right, wrong))
    for old in ("fuzz_mutant", "obj/mutant.o"):
        (folder / old).unlink(missing_ok=True)
    make(build, "test/fuzz/fuzz_mutant", f"MUTANT={mutant}")
    program = Path(shutil.move(folder / "fuzz_mutant", tmp_path / "mutant"))
    seeds(program, tmp_path / "corpus")  # it is found by what is made of them, not by them
    done = run(program, f"-artifact_prefix={tmp_path}/", f"-seed={seed}", f"-runs={ENOUGH}",
               LONGEST, tmp_path / "corpus")
    assert done.returncode != 0, "not found"
    assert "Sanitizer" in done.stderr or "deadly signal" in done.stderr, done.stderr[-3000:]
