# SPDX-License-Identifier: BSD-3-Clause
"""compare --program: a program under each row, for real; and how rows are told apart, by made-up times."""

import re
import subprocess
from pathlib import Path

import numpy
import pytest
from test_commands import rows_file, run

from tools import program
from tools.launch import Outcome

# Prints "rate: N", which is twice as much without regx; under bounce it fails.
SOURCE = """\
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char buffer[1 << 20];
int main(int argc, char **argv)
{
    const char *way = getenv("OMPI_MCA_btl_regx_rendezvous"), *btl = getenv("OMPI_MCA_btl");
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(buffer, sizeof buffer, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("# 7 ranks\\nrate: %g\\n", btl != NULL && strcmp(btl, "regx") == 0 ? 10.0 : 20.0);
    MPI_Finalize();
    return way != NULL && strcmp(way, "bounce") == 0 ? 3 : 0;
}
"""
ROWS = """\
[defaults]
benchmark = companion_bw
sizes = 8
[direct]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_backend none --mca btl_regx_rendezvous direct
[bounce]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_backend none --mca btl_regx_rendezvous bounce
[vader]
mca = --mca pml ob1 --mca btl vader,self
"""


def built(tmp_path: Path) -> str:
    (tmp_path / "program.c").write_text(SOURCE)
    subprocess.run(["mpicc", tmp_path / "program.c", "-o", tmp_path / "program"], check=True, timeout=60)
    return f"mpirun --allow-run-as-root --oversubscribe -n 2 {tmp_path}/program"


def test_a_program_is_run_under_each_row(tmp_path: Path) -> None:
    command = built(tmp_path)
    done = run("compare", "--no-build", "-f", rows_file(tmp_path, ROWS), "--program", command, "--metric", "rate:", "--higher",
               "--output", tmp_path / "output")  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED: bounce: failed with status 3" in done.stdout
    assert any(f"Use {text}." in done.stdout for text in ("vader: --mca pml ob1 --mca btl vader,self", "own, Open MPI's own choice: set nothing"))
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.startswith(("direct", "own", "vader"))}
    assert lines["direct"][1:3] == ["10.0", "0.50"] and "slower" in lines["direct"] and lines["own"][1] == lines["vader"][1] == "20.0"
    assert "Path: in all 3 runs regx's report proves" in done.stdout and "Decided: 2 of 2 rows" in done.stdout


@pytest.mark.parametrize(("words", "complaint"), [
    (["--program", "true", "--minutes", "0.1"], "no rank of it reported: it does not use MPI"),
    (["--metric", "x"], "--metric is of --program"),
    (["--program", "true", "-n", "3"], "--program: not with --rdma"),
    (["--program", "true", "--metric", "("], '--metric: "(" is no regular expression: missing )'),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_a_line(tmp_path: Path, words: list[str], complaint: str) -> None:
    done = run("compare", "--no-build", "-f", rows_file(tmp_path, ROWS.partition("[bounce]")[0]), *words,
               "--output", tmp_path / "output")  # fmt: skip
    assert done.returncode in (1, 2) and complaint in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_five_percent_between_two_rows_are_decided_in_few_runs() -> None:
    """Of runs that vary by 2 %, though the machine drifts by ten."""
    random = numpy.random.default_rng(0)
    lines, alive, number = [], {"auto": 1.0, "staged": 1.05, "own": 1.0, "ucx": 1.4}, 0
    while len(alive) > 1 and number < 30:
        number += 1
        drift = random.normal(0, 0.1)
        lines += [{"row": row, "kind": "regx", "benchmark": "program", "buffers": "same", "ranks": 2, "size": 1, "unit": "s",
                   "job": number, "round": number, "value": 10 * time * numpy.exp(drift + random.normal(0, 0.02)), "moved": 0}
                  for row, time in alive.items()]  # fmt: skip
        if number >= program.FEWEST:
            best, found = program.verdicts(lines)
            assert best in ("auto", "own")
            alive = {row: time for row, time in alive.items() if found[row] != "slower"}
            if "open" not in found.values():
                break
    assert set(alive) == {"auto", "own"} and number < 30


@pytest.mark.parametrize(("text", "pattern", "value"), [
    ("ranks 4\nG-FFT = 3.5e2 Gflop/s\n", "G-FFT", 350.0), ("a: 0\n", "a", "it printed no number above 0 behind a"),
    ("nothing\n", "a", "it printed no number above 0 behind a"), ("t1 (8) = 5 s", r"t1 \(8\)", 5.0),
])  # fmt: skip
def test_the_first_number_behind_the_expression_counts(text: str, pattern: str, value: object) -> None:
    import re

    assert program.value_of(Outcome(0, text, "", 9), re.compile(pattern)) == value
