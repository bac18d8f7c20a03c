# SPDX-License-Identifier: BSD-3-Clause
"""Configuration files: what is accepted, and that every error names file and line."""

from pathlib import Path

import pytest
from standins import TOP, Tree

from comparing import configuration
from comparing.size import Range
from comparing.trouble import Trouble

GOOD = """\
[defaults]
benchmark = osu_bw
sizes = 64K:1M

[one]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_rendezvous bounce
"""


def read(tmp_path: Path, text: str, full: bool = False) -> list[configuration.Row]:
    file = tmp_path / "rows.conf"
    file.write_text(text)
    return configuration.read([file], full)


def test_a_row_has_every_setting_of_its_section(tmp_path: Path) -> None:
    text = """\
[one]
mca = --mca pml ob1 --mca btl regx,self
environment = A=1 "B=two words"
benchmark = osu_latency osu_bw
sizes = 8:4K
sizes.osu_bw = 64K:256K
full = 1:1G
options.osu_bw = -i 5 -x 1
buffers = same rotate:3 slide:4
openmpi = 4 5
timeout = 7
"""
    (row,) = read(tmp_path, text)
    assert row.name == "one" and row.is_regx and row.openmpi == (4, 5) and row.timeout == 7
    assert row.mca == (("pml", "ob1"), ("btl", "regx,self"))
    assert row.environment == (("A", "1"), ("B", "two words"))
    assert [(c.benchmark, c.buffers) for c in row.cases] == [
        ("osu_latency", "same"),
        ("osu_latency", "rotate:3"),
        ("osu_latency", "slide:4"),
        ("osu_bw", "same"),
        ("osu_bw", "rotate:3"),
        ("osu_bw", "slide:4"),
    ]
    assert row.cases[0].sizes == Range(8, 4096) and row.cases[0].options == ()
    assert row.cases[3].sizes.sizes() == [65536, 131072, 262144]
    assert row.cases[3].options == ("-i", "5", "-x", "1")
    (row,) = read(tmp_path, text, full=True)
    assert row.cases[0].sizes == row.cases[3].sizes == Range(1, 1 << 30)


def test_ranks_and_buffers_of_one_benchmark(tmp_path: Path) -> None:
    text = """\
[one]
mca = --mca pml ucx
benchmark = osu_bw osu_allreduce companion_sendrecv
sizes = 8:4K
ranks = 2 4
ranks.companion_sendrecv = 3
buffers.companion_sendrecv = same touched
"""
    (row,) = read(tmp_path, text)
    assert [(c.benchmark, c.buffers, c.ranks) for c in row.cases] == [
        ("osu_bw", "same", 2),
        ("osu_allreduce", "same", 2),
        ("osu_allreduce", "same", 4),
        ("companion_sendrecv", "same", 3),
        ("companion_sendrecv", "touched", 3),
    ]


def test_without_full_sizes_full_takes_the_usual_ones(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD, full=True)[0].cases[0].sizes == Range(65536, 1 << 20)


@pytest.mark.parametrize(
    ("old", "new", "line", "complaint"),
    [
        ("sizes = ", "size = ", 3, 'unknown key "size"; allowed: mca, environment,'),
        ("sizes = ", "sizes.osu_put = ", 3, 'unknown benchmark "osu_put"; allowed: osu_latency,'),
        ("sizes = ", "mca.osu_bw = ", 3, 'unknown key "mca.osu_bw"'),
        ("osu_bw", "osu_scan", 2, 'unknown benchmark "osu_scan"; allowed: osu_latency, osu_bw'),
        ("64K:1M", "64K", 3, 'malformed sizes "64K"; wanted: MIN:MAX'),
        ("64K:1M", "64k:1M", 3, 'malformed size "64k"; allowed: 1 to 1G'),
        ("64K:1M", "0:1M", 3, 'malformed size "0"'),
        ("64K:1M", "-8:1M", 3, 'malformed size "-8"'),
        ("64K:1M", "1:2G", 3, 'malformed size "2G"'),
        ("64K:1M", "1M:64K", 3, 'malformed sizes "1M:64K"; MIN is above MAX'),
        ("sizes = 64K:1M\n", "", 4, 'row "one" has no "sizes" for osu_bw'),
        ("benchmark = osu_bw\n", "", 4, 'row "one" has no "benchmark"'),
        ("mca = --mca pml ob1", "#", 5, 'row "one" has no "mca"'),
        ("--mca pml ob1", "--mca pml", 6, "malformed mca; wanted: --mca NAME VALUE"),
        ("--mca pml ob1", "", 6, "mca must name pml, and with pml ob1 also btl"),
        ("--mca btl regx", "", 6, "mca must name pml, and with pml ob1 also btl"),
        ("--mca btl regx", "--mca btl regx --mca btl tcp", 6, "mca names btl twice"),
        ("--mca btl regx", '--mca btl "regx', 6, "malformed mca: No closing quotation"),
        ("[one]", "[one", 5, 'malformed line; wanted: "key = value" or "[name]"'),
        ("[one]", "[o/ne]", 5, 'malformed row name "o/ne"'),
        ("[one]", "[one]\nwhat is this", 6, "malformed line"),
        ("[defaults]", "", 2, "a row begins with its [name]"),
        ("[one]", "[one]\nmca = x", 7, 'key "mca" is twice in row "one"'),
        ("[one]", "[one]\n[two]\n[one]", 7, 'row "one" is there twice'),
        ("[one]", "[one]\nbuffers = new", 6, 'unknown buffers "new"; allowed: same, fresh,'),
        ("[one]", "[one]\nbuffers = rotate:0", 6, 'unknown buffers "rotate:0"'),
        ("[one]", "[one]\nbuffers = strided", 6, 'unknown buffers "strided"'),
        ("[one]", "[one]\noptions = -m 8", 6, "-m is not for options"),
        ("[one]", "[one]\noptions.osu_bw = --validation", 6, "--validation is not for options"),
        ("[one]", "[one]\noptions = -bfresh", 6, "-bfresh is not for options"),
        ("[one]", "[one]\noptions = --buff=fresh", 6, "--buff=fresh is not for options"),
        ("[one]", "[one]\nranks = two", 6, "malformed ranks; wanted: numbers from 2 to 999"),
        ("[one]", "[one]\nranks = 1", 6, "malformed ranks; wanted: numbers from 2 to 999"),
        ("[one]", "[one]\nranks.osu_bw = 4", 6, "osu_bw is for two ranks"),
        ("[one]", "[one]\nranks.osu_put = 4", 6, 'unknown benchmark "osu_put"'),
        ("osu_bw", "osu_bcast\nbuffers = touched", 3,
         "osu_bcast has no touched buffers; allowed: same"),
        ("osu_bw", "companion_incast\nbuffers = fresh", 3,
         "companion_incast has no fresh buffers; allowed: same, touched"),
        ("osu_bw", "companion_percentiles\noptions = -i 999", 3,
         "companion_percentiles with 999 iterations: one time in a thousand is asked for; allowed:"),
        ("osu_bw", "companion_percentiles\noptions = --iterations=20", 3,
         "companion_percentiles with 20 iterations: one time in a thousand"),
        ("[one]", "[one]\nenvironment = A", 6, 'malformed environment "A"; wanted: NAME=VALUE'),
        ("[one]", "[one]\nopenmpi = 4.1", 6, "malformed openmpi; wanted: major versions"),
        ("[one]", "[one]\nmemlock = 8MB", 6, 'memlock: malformed size "8MB"; allowed: 1 to 1G'),
        ("[one]", "[one]\nmemory = 8MB", 6, 'memory: malformed size "8MB"; allowed: 1 to 1G'),
        ("[one]", "[one]\nswap = 1000K", 6, 'swap: "1000K" is no whole number of MiB'),
        ("[one]", "[one]\ntimeout = soon", 6, 'malformed timeout "soon"; allowed: 1 to 99999'),
    ],
)
def test_errors_name_file_and_line(
    tmp_path: Path, old: str, new: str, line: int, complaint: str
) -> None:
    assert old in GOOD
    with pytest.raises(Trouble) as error:
        read(tmp_path, GOOD.replace(old, new))
    assert str(error.value).startswith(f"{tmp_path}/rows.conf:{line}: {complaint}"), error.value
    assert "\n" not in str(error.value)


def test_the_same_row_in_two_files_is_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "1.conf", tmp_path / "2.conf"
    one.write_text(GOOD)
    two.write_text(GOOD)
    with pytest.raises(Trouble, match=f'2.conf:5: row "one" is there already, in {one}:5'):
        configuration.read([one, two], False)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), (b"\xff\xfe\x00", "not a text file"), (b"", "no row in this file")],
)
def test_unreadable_files_are_named(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    file = tmp_path / "rows.conf"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Trouble, match=f"^{file}.*{complaint}"):
        configuration.read([file], False)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Trouble, match="cannot be read: Is a directory"):
        configuration.read([tmp_path], False)


@pytest.mark.parametrize("file", sorted((TOP / "osu-configs").glob("*.conf")), ids=lambda f: f.name)
@pytest.mark.parametrize("full", [False, True])
def test_the_published_configurations_are_valid(file: Path, full: bool) -> None:
    rows = configuration.read([file], full)
    for major in (4, 5, 6):
        assert [row for row in rows if not row.openmpi or major in row.openmpi]


def test_errors_come_before_anything_is_installed(tree: Tree) -> None:
    file = tree.write("rows.conf", GOOD.replace("64K", "64X"))
    done = tree.run("-f", file)
    assert done.returncode == 2 and done.stdout == ""
    allowed = "allowed: 1 to 1G, with K, M or G (powers of 1024)"
    assert done.stderr == f'compare: {file}:3: malformed size "64X"; {allowed}\n'
