# SPDX-License-Identifier: BSD-3-Clause
"""The scheduler, against jobs that do as they are told: each is a script that answers as the companion's ranks do."""

import socket
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from tools import jobs, launch, osu, rows, slices

# fake.py ADDRESS NAME WHAT [BESIDE]: both ranks in one process. WHAT it does at its 5th slice, or when it starts.
FAKE = """\
import os, socket, sys, time
address, name, what, mark = sys.argv[1:]
if what == "unstartable" or what == "crowded" and os.path.exists(mark):
    sys.exit("companion: no room")
if what == "busy":
    open(mark, "w")
ranks = []
for rank in range(2):
    ranks.append(socket.socket(socket.AF_UNIX))
    ranks[rank].connect(address.removeprefix("unix:"))
    ranks[rank].sendall(f"{name} {rank}\\n".encode())
number = 0
while True:
    lines = [rank.recv(4096) for rank in ranks]
    if not all(lines):
        sys.exit("companion: odd end" if what == "odd end" else 0)
    test, buffers, size, window, owned, ms, check, slower = lines[0].split()
    number += 1
    if number == 5:
        if what == "dies":
            sys.exit("companion: out of memory")
        if what == "hangs":
            time.sleep(600)
        if what == "babbles":
            ranks[0].sendall(b"what?\\n"), ranks[1].sendall(b"\\n")
            continue
    wrong = int(what == "wrong" and check != b"0")
    for rank in ranks:
        rank.sendall(f"{1e-6 * (2 if what == 'slow' else 1)} 7 {wrong} 0 0\\n".encode())
"""
ROWS = """\
[defaults]
benchmark = companion_latency
sizes = 8 16 32
timeout = 1
mca = --mca pml ob1 --mca btl vader,self
"""


class Fakes:
    """A launcher whose rows do as they are called."""

    network = own = rdma = on_this_node = False

    def __init__(self, folder: Path):
        self.folder = folder
        self.installation = launch.Launcher.__new__(launch.Launcher)
        self.installation.programs = folder
        (folder / "fake.py").write_text(FAKE)

    def line(self, row: rows.Row, command: list[str], report: Path, ranks: int) -> launch.Line:
        what = row.name.partition(".")[0].replace("-", " ")
        return launch.Line({}, (sys.executable, str(self.folder / "fake.py"), *command[1:], what, str(self.folder / "mark")))


def measured(tmp_path: Path, names: str, regx: str = "", **plan: object
             ) -> tuple[list[dict], slices.Session, slices.Plan, bool]:  # fmt: skip
    text = ROWS + "".join(f"[{name}]\n" + "mca = --mca pml ob1 --mca btl regx\n" * (name in regx.split()) for name in names.split())
    (tmp_path / "rows.conf").write_text(text)
    records: list[dict] = []
    session = slices.Session(Fakes(tmp_path), launch.Runner(), tmp_path / "reports", records.append)
    planned = slices.Plan(**plan)
    complete = session.carry_out(slices.entries_of(rows.read([tmp_path / "rows.conf"]), osu.Suite(None)), planned)
    return records, session, planned, complete


def events(records: list[dict], event: str) -> list[tuple[str, str]]:
    return [(line["row"], line.get("text", "")) for line in records if line.get("event") == event]


def figures(records: list[dict]) -> list[dict]:
    return [line for line in records if "round" in line]


def test_each_round_has_all_rows_in_random_order_and_each_generation_new_jobs(tmp_path: Path) -> None:
    records, session, _, complete = measured(tmp_path, "good.1 good.2 slow", rounds=6)
    found = figures(records)
    assert complete and session.number == 6 and len(found) == 6 * 3 * 3
    in_rounds = [[line["row"] for line in found[at:at + 3]] for at in range(0, len(found), 3)]
    assert all(sorted(rows) == ["good.1", "good.2", "slow"] for rows in in_rounds)
    assert len({*map(tuple, in_rounds)}) > 3 and len({line["size"] for line in found[:9]}) == 3
    assert {line["value"] for line in found if line["row"] == "slow"} == {1.0}  # us, one way
    assert len(events(records, "checked")) == 2 * 3 * 3  # at the beginning of the first jobs, and at their end


@pytest.mark.parametrize(("what", "why"), [
    ("dies", "failed with status 1: companion: out of memory"), ("hangs", 'no answer within 1 s to "latency same '),
    ("babbles", 'it answered "what?"'), ("unstartable", "failed with status 1: companion: no room"),
    ("odd-end", "failed with status 1: companion: odd end"),
])  # fmt: skip
def test_a_job_that_goes_is_a_line_and_the_others_go_on(tmp_path: Path, what: str, why: str) -> None:
    records, _, _, complete = measured(tmp_path, f"good.1 {what} good.2", rounds=3)
    (row, text), = events(records, "failed")
    assert row == what and text.startswith(why) and complete
    counts = Counter(line["row"] for line in figures(records))
    assert counts["good.1"] == counts["good.2"] == 9 and counts[what] < 9


def test_wrong_data_is_told_and_has_no_speed(tmp_path: Path) -> None:
    records, _, _, _ = measured(tmp_path, "good wrong", rounds=2)
    assert {row for row, _ in events(records, "wrong data")} == {"wrong"}
    assert {line["row"] for line in figures(records)} == {"good"}


def test_a_row_that_falls_behind_has_one_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "LATE_SECONDS", -1)
    records, _, _, _ = measured(tmp_path, "good", rounds=3)
    assert len(figures(records)) == 3 and len(events(records, "behind")) == 3


def test_what_cannot_live_beside_the_others_is_measured_beside_the_peers_alone(tmp_path: Path,
                                                                               capfd: pytest.CaptureFixture[str]) -> None:
    """crowded starts only where busy does not run; its mark is taken away with it."""
    names = "good busy crowded"
    fakes_end = slices.end_all

    def ended(jobs: list[jobs.Job]) -> None:
        fakes_end(jobs)
        (tmp_path / "mark").unlink(missing_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "end_all", ended)
        patch.setattr(slices, "report", type("NoReport", (), {  # of fakes
            "prove": lambda *_: slices_proof(), "Claim": dict, "RENDEZVOUS_ABOVE": 0}))
        patch.setattr(slices, "claim_of", lambda *_: None)
        (tmp_path / "mark").touch()
        records, _, _, _ = measured(tmp_path, names, regx="busy crowded", rounds=3)
    assert "crowded did not start beside the others (failed with status 1: companion: no room)" in capfd.readouterr().err
    assert not events(records, "failed")
    counts = Counter(line["row"] for line in figures(records))
    assert counts == {"good": 18 - 3, "busy": 9, "crowded": 6}


def slices_proof() -> object:
    from tools.report import Proof

    return Proof("")


def test_time_goes_to_what_is_open_and_it_ends_when_nothing_is(tmp_path: Path) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.01
        return now[0]

    wanted = [{("slow", ("companion_latency", "same", 2, ""), 8)}] * 3 + [set()]
    left = iter(wanted)
    records, session, _, _ = measured(tmp_path, "good slow", budget=1000, clock=clock, generation=1, open_=lambda: next(left))
    counts = Counter((line["row"], line["size"]) for line in figures(records) if line["job"] > 1)
    assert session.number == slices.FEWEST and counts.pop(("slow", 8)) > 10 * max(counts.values())


def test_minutes_are_kept_and_too_few_are_told(tmp_path: Path) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    records, _, plan, _ = measured(tmp_path, "good", budget=3.5, clock=clock)
    assert plan.cut == "0.0583333 minutes are too short for one round of each cell" and len(figures(records)) < 3


def test_a_stop_ends_all_jobs_and_keeps_what_was_measured(tmp_path: Path) -> None:
    records: list[dict] = []
    runner = launch.Runner()

    def keep(line: dict) -> None:
        records.append(line)
        if len(figures(records)) == 5:
            runner.stop()

    (tmp_path / "rows.conf").write_text(ROWS + "[good.1]\n[good.2]\n")
    session = slices.Session(Fakes(tmp_path), runner, tmp_path / "reports", keep)
    entries = slices.entries_of(rows.read([tmp_path / "rows.conf"]), osu.Suite(None))
    processes = [alive.job.process for alive in session.alive.values()]
    assert not session.carry_out(entries, slices.Plan(rounds=100))
    assert 5 <= len(figures(records)) <= 6 and all(process.poll() is not None for process in processes)
    assert not session.hub.folder.exists()


def test_who_does_not_know_a_name_is_sent_away(tmp_path: Path) -> None:
    hub = jobs.Hub(launch.Runner())
    job = jobs.Job("late", launch.Line({}, (sys.executable, "-c", "import time; time.sleep(600)")), 1, hub)

    def stranger() -> None:
        other = socket.socket(socket.AF_UNIX)
        other.connect(hub.address.removeprefix("unix:"))
        other.sendall(b"someone 0\n")
        assert other.recv(1) == b""

    thread = threading.Thread(target=stranger)
    thread.start()
    hub.gather([job], 0.5)
    thread.join()
    assert job.trouble == "not all ranks were there within 0 s" and not job.sockets
    hub.close()
    assert job.process is not None and job.process.poll() is not None
