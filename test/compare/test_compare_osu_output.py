# SPDX-License-Identifier: BSD-3-Clause
"""Reading what benchmarks print, on samples of the header forms of many versions of OSU."""

import pytest

from comparing import osu

# Each sample is an excerpt of real output, with where it was published.
SAMPLES = {
    # QLogic OFED+ host software user guide, appendix B, "Benchmark 2: Measuring MPI Bandwidth"
    "2.0": (
        "MB/s",
        """\
# OSU MPI Bandwidth Test (Version 2.0)
# Size Bandwidth (MB/s)
1 3.549325
65536 1931.339589
4194304 1957.810999
""",
        {1: 3.549325, 65536: 1931.339589, 4194304: 1957.810999},
    ),
    # Open MPI users' list, 15 July 2011, "Mixed Mellanox and Qlogic problems"
    "3.3 bw": (
        "MB/s",
        """\
# OSU MPI Bandwidth Test v3.3
# Size        Bandwidth (MB/s)
1                         2.48
65536                  3174.85
4194304                3291.84
""",
        {1: 2.48, 65536: 3174.85, 4194304: 3291.84},
    ),
    # the same message: "Bi-Bandwidth"
    "3.3 bibw": (
        "MB/s",
        """\
# OSU MPI Bi-Directional Bandwidth Test v3.3
# Size     Bi-Bandwidth (MB/s)
1                         3.10
4194304                4779.40
""",
        {1: 3.10, 4194304: 4779.40},
    ),
    # the same message
    "3.3 latency": (
        "us",
        """\
# OSU MPI Latency Test v3.3
# Size            Latency (us)
0                         0.29
1                         0.32
4194304                1148.80
""",
        {0: 0.29, 1: 0.32, 4194304: 1148.80},
    ),
    # github.com/ofi-cray/libfabric-cray, pull request 859, 7 July 2016
    "5.0": (
        "us",
        """\
# OSU MPI Latency Test v5.0
# Size          Latency (us)
0                       1.84
8                       1.87
4194304               497.37
""",
        {0: 1.84, 8: 1.87, 4194304: 497.37},
    ),
    # CSCS documentation, "AWS OFI hook", with CXI hook disabled
    "6.2": (
        "MB/s",
        """\
# OSU MPI Bandwidth Test v6.2
# Size      Bandwidth (MB/s)
1                       0.22
65536                  49.88
4194304              1279.54
""",
        {1: 0.22, 65536: 49.88, 4194304: 1279.54},
    ),
    # github.com/ofiwg/libfabric, pull request 8680, 20 March 2023
    "7.0": (
        "us",
        """\
# OSU MPI Latency Test v7.0-lrbison3
# Size          Latency (us)
0                       0.22
1024                    0.31
4096                    0.66
""",
        {0: 0.22, 1024: 0.31, 4096: 0.66},
    ),
    # NYU Shanghai HPC documentation, osu-micro-benchmarks/7.1-1: a header line after the columns
    "7.1": (
        "MB/s",
        """\
# OSU MPI Bi-Directional Bandwidth Test v7.1
# Size      Bandwidth (MB/s)
# Datatype: MPI_CHAR.
1                       6.10
65536               32105.18
4194304             18822.70
""",
        {1: 6.10, 65536: 32105.18, 4194304: 18822.70},
    ),
    # CSCS documentation, osu-mb 7.5 with --validation: a library's warning and an empty line first
    "7.5": (
        "us",
        """\
osu_latency: /usr/lib/libnl-3.so.200: no version information available (required by libcxi.so.1)

# OSU MPI Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1                       3.00              Pass
65536                  10.92              Pass
4194304               181.46              Pass
""",
        {1: 3.00, 65536: 10.92, 4194304: 181.46},
    ),
    # github.com/easybuilders/easybuild-easyconfigs, pull request 25902
    "7.5 rocm": (
        "MB/s",
        """\
# OSU MPI-ROCM Bandwidth Test v7.5
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)
1                       1.35
4194304             85751.73
134217728          139961.80
""",
        {1: 1.35, 4194304: 85751.73, 134217728: 139961.80},
    ),
}


@pytest.mark.parametrize("version", SAMPLES)
def test_the_output_of_each_osu_version_is_read(version: str) -> None:
    unit, text, values = SAMPLES[version]
    output = osu.parse(text, unit)
    assert output.values == values
    assert output.title == next(t for t in text.splitlines() if t.startswith("#")).lstrip("# ")


def test_validation_is_read_where_the_header_has_it() -> None:
    assert osu.parse(SAMPLES["7.0"][1], "us").valid is None
    text = SAMPLES["7.5"][1].replace("10.92              Pass", "10.92              Fail")
    assert osu.parse(text, "us").valid == {1: True, 65536: False, 4194304: True}


def test_columns_are_told_apart_by_their_unit() -> None:
    text = "# Size  Latency (us)  Bandwidth (MB/s)  Latency piece\n64 1.5 2.5 64\n"
    assert osu.parse(text, "us").values == {64: 1.5}
    assert osu.parse(text, "MB/s").values == {64: 2.5}


def test_columns_of_one_unit_are_told_apart_by_their_name() -> None:
    text = "# Size  p50 (us)  p99 (us)  p99.9 (us)\n64 1.5 2.5 3.5\n"
    assert osu.parse(text, "us", "p99").values == {64: 2.5}
    assert osu.parse(text, "us", "p99.9").values == {64: 3.5}
    with pytest.raises(osu.NotOutput, match="no column of p95 in us"):
        osu.parse(text, "us", "p95")


def test_columns_that_are_units_alone() -> None:
    """As osu_mbw_mr of OSU 7.0 has them."""
    text = """\
# OSU MPI Multiple Bandwidth / Message Rate Test v7.0
# [ pairs: 2 ] [ window size: 64 ]
# Size                  MB/s        Messages/s        Validation
1024                 3913.79        3822059.25              Pass
2048                 5239.97        2558577.43              Fail
"""
    output = osu.parse(text, "MB/s")
    assert output.values == {1024: 3913.79, 2048: 5239.97}
    assert output.valid == {1024: True, 2048: False}


def test_numbers_of_others_are_not_results() -> None:
    text = "8 nodes were found\n# OSU MPI Latency Test v5.0\n# Size  Latency (us)\n8  1.87\n16\n"
    assert osu.parse(text, "us").values == {8: 1.87}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no header"),
        ("This test requires exactly two processes\n", "no header"),
        ("# Size  Bandwidth (MB/s)\n8 1.0\n", "no column of us"),
        ("# Size  Latency (us)\n8 fast\n", 'cannot read "8 fast"'),
    ],
)
def test_malformed_results_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(osu.NotOutput, match=complaint):
        osu.parse(text, "us")


@pytest.mark.parametrize("value", ["nan", "inf", "0.00", "-1.00"])
def test_what_no_ratio_can_be_made_of_is_left_out(value: str) -> None:
    text = f"# Size  Latency (us)\n8 {value}\n16 1.5\n"
    assert osu.parse(text, "us").values == {16: 1.5}
