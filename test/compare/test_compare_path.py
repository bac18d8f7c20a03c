# SPDX-License-Identifier: BSD-3-Clause
"""The verdict whether regx carried a run's bytes on the path that the row names."""

import json
from pathlib import Path

import pytest

from comparing import path

MIB = 1 << 20
LARGE = [MIB, 2 * MIB, 4 * MIB]


def prove(
    tmp_path: Path, strategy: str, sizes: list[int] = LARGE, ranks: int = 2, **counters: object
) -> path.Proof:
    file = tmp_path / "report"
    line = {"transport": "uct", "backend": "none", **counters}
    file.write_text("".join(json.dumps({"rank": r, **line}) + "\n" for r in range(ranks)))
    return path.prove(file, strategy, sizes)


@pytest.mark.parametrize("strategy", ["bounce", "pipeline", "direct", "read", "together", "remap"])
def test_a_path_is_proven_by_the_report(tmp_path: Path, strategy: str) -> None:
    proof = prove(tmp_path, strategy, bytes_shm=MIB, **{f"bytes_{strategy}": 3 * MIB})
    assert proof.problem is None
    assert proof.carried == f"{strategy} 6.0 MiB"
    assert proof.transport == "uct/shm" and proof.backend == "none"


def test_auto_may_take_any_path_but_not_none(tmp_path: Path) -> None:
    assert prove(tmp_path, "auto", bytes_bounce=MIB, bytes_direct=MIB).problem is None
    proof = prove(tmp_path, "auto", bytes_eager=4096)
    assert proof.problem == "path not proven: auto carried only 0 B; eager 8.0 KiB, frag 0 B"


def test_small_messages_go_eagerly_in_every_strategy(tmp_path: Path) -> None:
    assert prove(tmp_path, "bounce", sizes=[8, 16384], bytes_eager=9).problem is None
    proof = prove(tmp_path, "bounce", sizes=[8, 16384])
    assert proof.problem == "path not proven: regx carried nothing"


def test_small_messages_of_a_mixture_may_go_eagerly(tmp_path: Path) -> None:
    # As osu_latency does: 10,000 times 8 KiB and below, 1,000 times what is larger.
    sizes = [8 << i for i in range(20)]
    small = sum(s * (10000 if s <= 8192 else 1000) for s in sizes if s <= 32768)
    large = sum(s * 1000 for s in sizes if s > 32768)
    proof = prove(tmp_path, "direct", sizes, bytes_eager=small, bytes_direct=large)
    assert proof.problem is None
    # Had the half of the large ones gone in fragments, their share would give it away.
    proof = prove(
        tmp_path, "direct", sizes, bytes_eager=small, bytes_frag=large // 2, bytes_direct=large // 2
    )
    assert proof.problem is not None and "direct carried only 7.8 GiB; eager" in proof.problem


def test_large_messages_in_fragments_are_not_proven(tmp_path: Path) -> None:
    proof = prove(tmp_path, "bounce", bytes_frag=MIB)
    assert proof.problem == "path not proven: bounce carried only 0 B; eager 0 B, frag 2.0 MiB"


def test_what_is_packed_goes_in_fragments_alone(tmp_path: Path) -> None:
    assert prove(tmp_path, "frag", bytes_frag=15 * MIB, bytes_eager=MIB).problem is None
    proof = prove(tmp_path, "frag", bytes_frag=8 * MIB, bytes_eager=MIB)
    assert proof.problem == "path not proven: frag carried only 16.0 MiB; eager 2.0 MiB, " \
        "frag 16.0 MiB"
    proof = prove(tmp_path, "frag", bytes_frag=15 * MIB, bytes_bounce=1)
    assert proof.problem == "path not proven: frag carried 30.0 MiB, but also bounce 2 B"


def test_another_path_is_not_proven(tmp_path: Path) -> None:
    proof = prove(tmp_path, "direct", bytes_bounce=MIB)
    assert proof.problem == "path not proven: direct carried 0 B, but also bounce 2.0 MiB"


def test_another_path_beside_the_one_named_is_not_proven(tmp_path: Path) -> None:
    proof = prove(tmp_path, "direct", bytes_direct=MIB, bytes_pipeline=2)
    assert proof.problem == "path not proven: direct carried 2.0 MiB, but also pipeline 4 B"


def test_a_fallback_is_not_proven_and_says_why(tmp_path: Path) -> None:
    proof = prove(
        tmp_path,
        "bounce",
        bytes_bounce=MIB,
        messages_fallback=1,
        bytes_fallback=1024,
        fallbacks={"no slots": 1},
    )
    assert proof.problem == "path not proven: 2 messages (2.0 KiB) fell back: no slots 2"


def test_another_backend_than_the_one_named(tmp_path: Path) -> None:
    prove(tmp_path, "bounce", bytes_bounce=MIB, backend="hooks")
    file = tmp_path / "report"
    assert path.prove(file, "bounce", LARGE, "hooks").problem is None
    assert path.prove(file, "bounce", LARGE, "auto").problem is None
    problem = path.prove(file, "bounce", LARGE, "notifier").problem
    assert problem == "path not proven: the backend was hooks, not notifier"


@pytest.mark.parametrize(
    ("wires", "carried"),
    [
        ({"bytes_shm": MIB}, "shm 2.0 MiB, tcp 0 B, verbs 0 B"),
        ({"bytes_verbs": MIB, "bytes_tcp": 1}, "shm 0 B, tcp 2 B, verbs 2.0 MiB"),
        ({"bytes_verbs": MIB - 1}, "shm 0 B, tcp 0 B, verbs 2.0 MiB"),
    ],
)
def test_another_wire_than_the_one_named(
    tmp_path: Path, wires: dict[str, int], carried: str
) -> None:
    prove(tmp_path, "direct", bytes_direct=MIB, transport="verbs", bytes_verbs=MIB)
    file = tmp_path / "report"
    assert path.prove(file, "direct", LARGE, transport="verbs").problem is None
    prove(tmp_path, "direct", bytes_direct=MIB, transport="verbs", **wires)
    problem = path.prove(file, "direct", LARGE, transport="verbs").problem
    assert problem == (
        f"path not proven: 2.0 MiB were to go over verbs; the wires carried {carried}"
    )


def test_what_became_of_the_buffers_is_added_up(tmp_path: Path) -> None:
    proof = prove(tmp_path, "bounce", bytes_bounce=MIB, hits=3, registrations=1, query_refused=9)
    assert proof.counts == {"hits": 6, "registrations": 2}


@pytest.mark.parametrize("ranks", [0, 1])
def test_every_rank_must_report(tmp_path: Path, ranks: int) -> None:
    proof = prove(tmp_path, "bounce", ranks=ranks, bytes_bounce=MIB)
    assert proof.problem == f"path not proven: regx reported for {ranks} of 2 ranks"


def test_a_rank_that_reports_twice_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text('{"rank": 0, "bytes_bounce": 1}\n' * 2)
    problem = path.prove(file, "bounce", LARGE).problem
    assert problem == "path not proven: regx reported for 1 of 2 ranks"


def test_windows_are_proven_by_operations_and_not_by_messages(tmp_path: Path) -> None:
    file = tmp_path / "report"
    for carried, problem in (
        ({"onesided_puts": 3}, None),
        ({"onesided_atomics": 1}, None),
        ({}, "path not proven: regx carried no operation on a window"),
    ):
        line = {"transport": "uct", "bytes_eager": 100, **carried}
        file.write_text("".join(json.dumps({"rank": rank, **line}) + "\n" for rank in range(2)))
        assert path.prove(file, "auto", [], one_sided=True).problem == problem


def test_no_report_or_a_malformed_one_is_not_proven(tmp_path: Path) -> None:
    file = tmp_path / "report"
    problem = path.prove(file, "bounce", LARGE).problem
    assert problem == "path not proven: regx reported for 0 of 2 ranks"
    file.write_text("oops\n")
    problem = path.prove(file, "bounce", LARGE).problem
    assert problem is not None and problem.startswith(f"path not proven: {file}:1: malformed")
