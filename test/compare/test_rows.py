# SPDX-License-Identifier: BSD-3-Clause
"""Configuration files, and what becomes of their rows."""

import re
from pathlib import Path

import pytest
from launch import TOP

from tools import osu, pinned, rdma, rows, sizes, slices
from tools.trouble import Trouble

GOOD = """\
[defaults]
benchmark = osu_bw companion_latency
sizes = 64K:256K
sizes.companion_latency = 8:8
options = -W 16
[bounce]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_rendezvous bounce
environment = A=1 B=two=2
buffers.companion_latency = same fresh
memlock = 8M
[vader]
openmpi = 4
mca = --mca pml ob1 --mca btl vader,self
"""


def read(tmp_path: Path, text: str) -> list[rows.Row]:
    file = tmp_path / "rows.conf"
    file.write_text(text)
    return rows.read([file])


def test_a_row_is_read(tmp_path: Path) -> None:
    bounce, vader = read(tmp_path, GOOD)
    assert bounce.is_regx and bounce.regx("rendezvous") == "bounce" and bounce.regx("backend") == "auto"
    assert bounce.environment == {"A": "1", "B": "two=2"} and bounce.memlock == str(8 << 20)
    assert [(case.benchmark, case.buffers) for case in bounce.cases] == [
        ("osu_bw", "same"), ("companion_latency", "same"), ("companion_latency", "fresh")]  # fmt: skip
    assert bounce.cases[0].sizes == (65536, 131072, 262144) and bounce.cases[1].sizes == (8,)
    assert not vader.is_regx and rows.for_openmpi([bounce, vader], 5) == [bounce]
    assert rdma.over_verbs(bounce).regx("transport") == "verbs" and rdma.over_verbs(vader) == vader


def test_a_row_without_mca_is_a_peer(tmp_path: Path) -> None:
    (posix,) = read(tmp_path, "[ucx-posix]\nbenchmark = osu_bw\nsizes = 8:8\n")
    assert posix.mca["pml"] == "ucx" and posix.environment == {"UCX_TLS": "posix,self"}


@pytest.mark.parametrize("file", sorted((TOP / "osu-configs" / "rows").glob("*.conf")), ids=lambda file: file.name)
def test_each_file_of_ours_is_read(file: Path) -> None:
    assert rows.read([file])


@pytest.mark.parametrize(("old", "new", "complaint"), [
    ("[bounce]", "bounce", '6: malformed line; wanted: "key = value", below a [name]'),
    ("[vader]", "[bounce]", "11: section 'bounce' already exists"),
    ("[defaults]\nbench", "bench", '1: malformed line; wanted: "key = value", below a [name]'),
    ("memlock = 8M", "mca = 1", "10: option 'mca' in section 'bounce' already exists"),
    ("[vader]", "[va der]", '11: malformed row name "va der"; allowed: letters, digits, _ . + -'),
    ("memlock = 8M", "memlok = 8M", '10: unknown key "memlok"; allowed: mca, environment'),
    ("memlock = 8M", "memlock = 8X", '10: memlock: malformed size "8X"; allowed: 1 to 1G'),
    ("memlock = 8M", "memory = 5K", '10: memory: "5K" is no whole number of MiB'),
    ("memlock = 8M", "timeout = 0", '10: timeout: "0"; allowed: 1 to 99999 (seconds)'),
    ("memlock = 8M", "ranks = 1", '10: ranks: "1"; wanted: numbers from 2 to 999'),
    ("openmpi = 4", "openmpi = four", '12: openmpi: "four"; wanted: major versions'),
    ("osu_bw comp", "osu_bv comp", '2: unknown benchmark "osu_bv"; allowed: osu_latency'),
    ("same fresh", "same stale", '9: buffers.companion_latency: "stale"; wanted: same, fresh'),
    ("sizes = 64K:256K", "sizes = 64K:", '3: sizes: malformed size ""; allowed: 1 to 1G'),
    ("sizes = 64K:256K", "sizes = 64K:8", '3: sizes: malformed "64K:8"; MIN is above MAX'),
    ("sizes = 64K:256K", "", '6: row "bounce" has no "sizes" for osu_bw'),
    ("-W 16", "-c", "5: options: -c is compare's to set"),
    ("-W 16", "-i 3", "5: options: -i is compare's to set"),
    ("-W 16", "-W 0", "5: options: wanted: -W N, 1 to 99999"),
    ("A=1", "A", '8: environment: "A"; wanted: NAME=VALUE'),
    ("--mca pml ob1 --mca btl regx", "--mca btl regx", "7: mca: it must name pml, and with pml ob1 also btl"),
    ("--mca btl regx", "--mca btl", "7: mca: malformed; wanted: --mca NAME VALUE"),
    ("--mca btl regx", "--mca pml cm", "7: mca: pml is named twice"),
])  # fmt: skip
def test_bad_input_gets_one_line_that_names_the_place(tmp_path: Path, old: str, new: str,
                                                      complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(Trouble) as trouble:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert str(trouble.value).startswith(f"{tmp_path}/rows.conf:{complaint}"), trouble.value
    assert "\n" not in str(trouble.value)


def test_a_name_alone_is_one_of_the_folder_of_rows_unless_it_is_here(tmp_path: Path,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert rows.called("grant.conf") == rows.FOLDER / "grant.conf"
    (tmp_path / "grant.conf").touch()
    assert rows.called("grant.conf") == Path("grant.conf")
    assert rows.called("osu/peers.conf") == Path("osu/peers.conf") and rows.called("none.conf") == Path("none.conf")


def entries_of(tmp_path: Path, text: str) -> list[slices.Entry]:
    return slices.entries_of(read(tmp_path, text), osu.Suite(None))


def test_what_only_osu_has_is_left_out_in_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    entries = entries_of(tmp_path, GOOD.replace("osu_bw comp", "osu_bcast osu_bw comp"))
    assert "left out, for they are OSU's, whose place --osu DIR names: osu_bcast\n" in capfd.readouterr().err
    assert len({entry.place for entry in entries}) == 3


def test_fewer_large_messages_are_under_way_unless_a_number_is_asked_for(tmp_path: Path) -> None:
    text = GOOD.replace("64K:256K", "64K 16M").replace("osu_bw companion_latency", "osu_bw")
    assert [entry.window() for entry in entries_of(tmp_path, text)] == 4 * [16]
    assert [entry.window() for entry in entries_of(tmp_path, text.replace("options = -W 16\n", ""))] == 2 * [64, 4]


PINNED = """\
[defaults]
benchmark = companion_latency companion_bw
sizes = 1M:4M
pin_cost.companion_latency = none 7:5
[pipeline-kernel]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_transport pinned --mca btl_regx_backend kernel
[direct-none]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_transport pinned --mca btl_regx_backend none
[shm]
pin_cost.companion_latency =
mca = --mca pml ob1 --mca btl regx
"""


def test_a_row_is_run_at_each_cost_and_no_cost_is_silent(tmp_path: Path) -> None:
    """That of the row itself is told, too, and that none was asked for."""
    entries = entries_of(tmp_path, PINNED)
    found = dict.fromkeys((entry.seat.row.name, *entry.place, entry.seat.row.mca.get("btl_regx_pin_cost")) for entry in entries)
    assert list(found)[3:] == [
        ("direct-none", "companion_latency", "same", 2, "none", "none"), ("direct-none", "companion_latency", "same", 2, "7:5", "7:5"),
        ("direct-none", "companion_bw", "same", 2, "none", None), ("shm", "companion_latency", "same", 2, "", None),
        ("shm", "companion_bw", "same", 2, "", None)]
    (entry,) = entries_of(tmp_path, "[one]\nbenchmark = companion_bw\nsizes = 8:8\nmca = --mca pml ob1 --mca btl regx"
                          " --mca btl_regx_transport pinned --mca btl_regx_pin_cost ucx\n")
    assert entry.place == ("companion_bw", "same", 2, "ucx")


@pytest.mark.parametrize(("old", "new", "complaint"), [
    ("7:5", "mlx5", '4: pin_cost.companion_latency: "mlx5"; wanted: none, ucx, nic or CALL:PAGE (ns)'),
    ("pin_cost.companion_latency =\n", "", '4: pin_cost: row "shm" is not of btl_regx_transport pinned'),
])  # fmt: skip
def test_a_cost_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    with pytest.raises(Trouble) as trouble:
        read(tmp_path, PINNED.replace(old, new, 1))
    assert str(trouble.value) == f"{tmp_path}/rows.conf:{complaint}"


def test_the_profiles_are_those_of_the_component() -> None:
    said = (TOP / "mca-params/regx.conf").read_text().partition("# What a registration takes over pinned.")[2]
    pages = (TOP / "osu-configs/pin-costs.md").read_text()
    assert len(rows.PIN_COSTS) > 2
    for name, cost in rows.PIN_COSTS.items():
        assert re.search(rf"^#   {name} +{cost}", said.partition("btl_regx_pin_cost")[0], re.M), name
        assert f"| `{name}` | {cost or '0:0'} |" in pages, name


@pytest.mark.parametrize(("uring", "module", "limit", "left", "lines"), [
    ("", True, -1, "pipeline-kernel direct-none shm", []),
    ("", False, -1, "direct-none shm", ["left out, for the kernel module is not loaded (insmod regx_notify.ko): pipeline-kernel"]),
    ("a filter", True, -1, "shm", ["left out, for there is no io_uring here (a filter): pipeline-kernel, direct-none"]),
    ("", True, 8 << 20, "pipeline-kernel direct-none shm", [
        "ulimit -l is 8 MiB, and 16 MiB are to be pinned: what finds no room goes by bounce, and is marked:"
        " pipeline-kernel, direct-none"]),
    ("", True, 16 << 20, "pipeline-kernel direct-none shm", []),
], ids=["all", "no module", "no io_uring", "memlock", "enough"])  # fmt: skip
def test_what_a_node_lacks_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uring: str, module: bool,
                                             limit: int, left: str, lines: list[str]) -> None:
    monkeypatch.setattr(pinned, "no_io_uring", lambda: uring)
    monkeypatch.setattr(pinned, "MODULE", tmp_path if module else tmp_path / "gone")
    found, said = pinned.can_run(read(tmp_path, PINNED), limit)
    assert " ".join(row.name for row in found) == left and said == lines
    if uring:
        with pytest.raises(Trouble, match="left out, for there is no io_uring here"):
            pinned.can_run(found[:0] + read(tmp_path, PINNED)[:2], limit)


def test_sizes_are_read_as_they_are_shown() -> None:
    assert [sizes.show(sizes.parse(text)) for text in ("8", "64K", "1536K")] == ["8 B", "64 KiB", "1.5 MiB"]


@pytest.mark.parametrize(("text", "unit", "values"), [
    ("# OSU MPI Latency Test v7.0\n# Size          Latency (us)\n8  0.50\n16 0.00\n", "us", {8: 0.5}),
    ("# OSU v7.4\n# Size  Avg Lat(us)   p50 (us)  p99 (us)\nregx: a line\n8 1 2 3\n", "us", {8: 1}),
    ("# OSU mbw_mr [ 2 pairs ]\n# Size  MB/s  Messages/s\n8  5.5  700\n", "MB/s", {8: 5.5}),
])  # fmt: skip
def test_output_of_osus_benchmarks_is_read(text: str, unit: str, values: dict) -> None:
    assert osu.parse(text, unit).values == values


def test_a_failed_content_check_is_read() -> None:
    text = "# OSU\n# Size Bandwidth (MB/s) Validation\n8 5 Pass\n16 5 Fail\n"
    assert osu.parse(text, "MB/s").valid == {8: True, 16: False}
    for bad in ("nothing\n", "# Size Latency (us)\n8 x\n", "# Size Bandwidth (MB/s)\n8 3\n"):
        with pytest.raises(osu.NotOutput):
            osu.parse(bad, "us")
