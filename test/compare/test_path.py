# SPDX-License-Identifier: BSD-3-Clause
"""What regx's reports say: the path that a run's bytes took, and the sum over ranks."""

import json
import subprocess
from pathlib import Path

import pytest
from launch import TOP

from tools import report

MIB = 1 << 20
LARGE = 1.0  # the share of bytes in messages that do not go eagerly
ROW = {"peers": "this node", "to": 4 * MIB - 1, "wire": "shm", "backend": "none", "messages": 2, "bytes": 3 * MIB,
       "way": "direct", "why": "fastest when tried", "from": MIB, "MB/s": 2500}  # fmt: skip


def prove(tmp_path: Path, claim: report.Claim, ranks: int = 2, **counters: object) -> report.Proof:
    file = tmp_path / "report"
    line = {"transport": "shm", "backend": "none", **counters}
    file.write_text("".join(json.dumps({"rank": rank, **line}) + "\n" for rank in range(ranks)))
    return report.prove(file, claim)


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "read", "together", "staged", "remap", "auto"])
def test_a_path_is_proven_by_the_report(tmp_path: Path, strategy: str) -> None:
    path = strategy if strategy != "auto" else "direct"
    proof = prove(tmp_path, report.Claim(strategy, LARGE), bytes_shm=MIB, hits=3, rendezvous=strategy, explain=[ROW],
                  **{f"bytes_{path}": 3 * MIB})  # fmt: skip
    assert (proof.problem, proof.wire, proof.backend, proof.counts) == ("", "shm", "none", {"hits": 6})
    assert proof.decisions == ({"direct: fastest when tried": 4} if strategy == "auto" else {})


SMALL_BYTES, LARGE_BYTES = MIB, 4 * MIB
MIXED = 0.8  # the share of the latter


@pytest.mark.parametrize(("claim", "counters", "problem"), [
    (report.Claim("bounce", 0), {"bytes_eager": 9}, ""),
    (report.Claim("bounce", 0), {}, "regx carried nothing"),
    (report.Claim("bounce", LARGE), {"bytes_frag": MIB}, "bounce carried only 0 B; eager 0 B, frag 2 MiB"),
    (report.Claim("auto", LARGE), {"bytes_eager": MIB}, "auto carried only 0 B; eager 2 MiB, frag 0 B"),
    (report.Claim("direct", MIXED), {"bytes_eager": SMALL_BYTES, "bytes_direct": LARGE_BYTES}, ""),
    (report.Claim("direct", MIXED), {"bytes_eager": SMALL_BYTES, "bytes_frag": LARGE_BYTES // 2,
                                     "bytes_direct": LARGE_BYTES // 2}, "direct carried only 4 MiB; eager"),
    (report.Claim("direct", LARGE), {"bytes_direct": MIB, "bytes_bounce": 2},
     "direct carried 2 MiB, but also bounce 4 B"),
    (report.Claim("bounce", LARGE), {"bytes_bounce": MIB, "messages_fallback": 1, "bytes_fallback": 1024,
                                     "fallbacks": {"no slots": 1}}, "2 messages (2 KiB) fell back: no slots 2"),
    (report.Claim("bounce", LARGE, backend="hooks"), {"bytes_bounce": MIB},
     "the backend was none, not hooks"),
    (report.Claim("direct", LARGE, transport="verbs"), {"bytes_direct": MIB, "bytes_verbs": MIB}, ""),
    (report.Claim("direct", LARGE, transport="verbs"), {"bytes_direct": MIB, "bytes_verbs": MIB, "bytes_shm": 1},
     "2 MiB were to go over verbs; the wires carried shm 2 B, verbs 2 MiB"),
    (report.Claim("direct", LARGE, transport="verbs"), {"bytes_direct": MIB, "bytes_verbs": 9},
     "2 MiB were to go over verbs; the wires carried shm 0 B, verbs 18 B"),
    (report.Claim("read", LARGE, transport="pinned"), {"bytes_read": MIB, "bytes_pinned": MIB, "bytes_shm": 9}, ""),
    (report.Claim("read", LARGE, transport="pinned"), {"bytes_read": MIB, "bytes_pinned": 9, "bytes_shm": MIB},
     "2 MiB were to go over pinned; the wires carried shm 2 MiB, verbs 0 B, pinned 18 B"),
    (report.Claim("bounce", LARGE, transport="pinned"), {"bytes_bounce": MIB, "bytes_shm": MIB}, ""),
    (report.Claim("auto", 0, one_sided=True), {"bytes_eager": 9, "onesided": 1}, ""),
    (report.Claim("auto", 0, one_sided=True), {"bytes_eager": 9}, "regx carried no operation on a window"),
    (report.Claim("bounce", LARGE, ranks=4), {"bytes_bounce": MIB}, "regx reported for 2 of 4 ranks"),
])  # fmt: skip
def test_the_verdict(tmp_path: Path, claim: report.Claim, counters: dict, problem: str) -> None:
    proof = prove(tmp_path, claim, **counters)
    assert proof.problem.removeprefix("path not proven: ").startswith(problem) and bool(proof.problem) == bool(problem)


def test_no_report_or_a_malformed_one_proves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "report"
    claim = report.Claim("bounce", LARGE)
    assert report.prove(file, claim).problem == "path not proven: regx reported for 0 of 2 ranks"
    for text, why in (("oops\n", "malformed: Expecting value"), ("[1]\n", "malformed: not a report of regx"),
                      ('{"rank": 0, "x": -1}\n', 'malformed: "x" is neither')):
        file.write_text(text)
        assert report.prove(file, claim).problem.startswith(f"path not proven: {file}:1: {why}")


def test_the_command_adds_ranks_up(tmp_path: Path) -> None:
    prove(tmp_path, report.Claim("bounce", LARGE), messages_bounce=2, bytes_bounce=MIB, slots_high=5, hits=0,
          explain=[ROW])
    run = subprocess.run([TOP / "osu-configs/report", tmp_path / "report"], capture_output=True, text=True,
                         timeout=60, check=True)  # fmt: skip
    lines = {line.split()[0]: line.split()[1:] for line in run.stdout.splitlines() if line}
    assert lines["bounce"] == ["4", "2,097,152"] and lines["slots_high"] == ["5"] and "hits" not in lines
    assert "fastest when tried" in run.stdout
    run = subprocess.run([TOP / "osu-configs/report", tmp_path / "gone"], capture_output=True, text=True,
                         timeout=60, check=False)  # fmt: skip
    assert run.returncode == 2 and run.stderr == f"report: {tmp_path}/gone: cannot be read: No such file or directory\n"
