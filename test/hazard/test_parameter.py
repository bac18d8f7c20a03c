# SPDX-License-Identifier: BSD-3-Clause
"""Hazard 26: a bad value is one line, which names the parameter, the value and what is allowed."""
import re
from pathlib import Path

import pytest

from launch import Build, Mpi
from job import Job
from namespace import two_hosts
from tables import gone, parameters, words

# A huge number, more than 64 bits of it.
HUGE = "99999999999999999999999"
BAD = {
    "chunk_size": ["0", "-1", "4M", "1024", "5000", "64Q", "lots", "1.5M", HUGE],
    "chunk_depth": ["0", "-3", "65", "4Q", "two", HUGE, ""],
    "slot_size": ["0", "-4K", "64Q", "1", "lots", HUGE],
    "pool_size": ["0", "-1", "4Q", "1", "lots", HUGE],
    "alloc_mem_size": ["-1", "1M", "64Q", "None", HUGE],
    "rendezvous": ["teleport", "bounce,pipeline", "BOUNCE", ""],
    "auto_choice": ["together", "64K:", "64K:auto", "8K:read", "48K:read", ":read"],
    "backend": ["magic", "ODP", "HOOKS", "hooks+", "notifier+hooks", "hooks,notifier", ""],
    "cache_bytes": ["0", "-1", "1", "64Q", "lots", "Unlimited", HUGE],
    "once_bytes": ["0", "-1", "1", "64Q", "lots", "Unlimited", HUGE],
    "cache_count": ["0", "-1", "4Q", "many", "auto", "1048577", HUGE],
    "admit": ["third", "0", "first,second", ""],
    "inuse": ["panic", "0"],
    "inuse_wait": ["0", "600001"],
    "hooks": ["glibc", "opal,ucm"],
    "notifier_check": ["sometimes", "0"],
    "odp_prefetch": ["sometimes", "0", "advise,touch"],
    "grant": ["revocable", "0", "synchronous,optimistic", ""],
    "verify": ["2", "-1", "yes", ""],
    "transport": ["pigeon", "uring", "uct,verbs", ""],
    "enable": ["2", "-1", "perhaps", ""],
    "uct_tls": ["nosuch", "posix,nosuch"],
    "verbs_gid_index": ["-1", "256", "first"],
    "verbs_pkey": ["0", "0x10000", "-1", "0xq", HUGE],
    "verbs_service_level": ["16", "-1"],
    "verbs_traffic_class": ["256", "-1"],
    "verbs_timeout": ["0", "32"],
    "verbs_retry_count": ["8", "-1"],
    "verbs_rnr_retry": ["8", "-1"],
    "verbs_mtu": ["0", "1000", "8192", ""],
    "verbs_any_subnet": ["2", "-1", "yes", ""],
    "verbs_srq_depth": ["15", "32769", "-1", "many"],
    "verbs_connections": ["1", "65537", "-1", "some"],
    "verbs_sq_depth": ["15", "1025", "-1", "auto"],
    "verbs_restart_limit": ["-1", "3601", "for ever"],
    "if_include": ["nosuch0", "10.0.0.0/99", "lo,nosuch0"],
}
CASES = [(name, value) for name, values in BAD.items() for value in values]
# Values that come with later parts of regx.
LATER = {"transport": ["uring"]}


def job_of_four(mpi: Mpi, btl: str, regx: dict[str, str] | None = None, **how) -> Job:
    return mpi("collective", "--sizes", "10,100000", "bcast", ranks=4, btl=btl, regx=regx, **how)


def one_line(job: Job, name: str, value: str) -> str:
    """The only one, of the value or of what is wrong in a list; answers what is allowed."""
    assert len(job.complaints) == 1, str(job)
    named = "|".join(map(re.escape, {value, value.split(",")[-1]}))
    match = re.fullmatch(rf"regx: btl_regx_{name}=(?:{named})(?=[ :;]).*"
                         r"(?:; allowed: |; there are: | such as )(.+)", job.complaints[0])
    assert match, str(job)
    return match[1]


@pytest.mark.parametrize("name,value", CASES)
def test_bad_value_with_another_btl(mpi: Mpi, name: str, value: str) -> None:
    """The job goes on without regx."""
    job = job_of_four(mpi, "regx,vader,self", {name: value})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    allowed = one_line(job, name, value)
    assert not job.reports, f"regx took part\n{job}"
    if value in LATER.get(name, []):
        assert allowed.split(", ") == words(name), str(job)
        assert not set(LATER[name]) & set(words(name)), str(job)


def test_bad_values_of_every_parameter() -> None:
    """Those of which nothing is wrong by itself are tested below."""
    assert set(BAD) == set(parameters()) - {"if_exclude", "report"}


@pytest.mark.parametrize("name", BAD)
def test_bad_value_alone(mpi: Mpi, name: str) -> None:
    """Open MPI ends the job after our line. (4.1.4 does that by a crash of ob1, which starts
    without any BTL: tcp with an if_include of nothing ends in the same way.)"""
    job = job_of_four(mpi, "regx", {name: BAD[name][0]})
    assert job.status != 0 and job.stdout == "", str(job)
    one_line(job, name, BAD[name][0])


# Backends that are built and not usable here, by what keeps them from it: mpirun's words, the words
# before the program, what the line says, and what it says is usable.
NO_HOOKS = ({"memory": "^patcher", "btl_regx_hooks": "opal"}, [],
            "Open MPI has no memory hooks here")
NO_USERFAULTFD = ({}, ["deny", "userfaultfd"], "userfaultfd: ")
NO_DEVICE = ({}, [], "btl_regx_transport=uct has no on-demand regions")
UNUSABLE = {"hooks": [NO_HOOKS], "notifier": [NO_USERFAULTFD],
            "hooks+notifier": [NO_HOOKS, NO_USERFAULTFD], "odp": [NO_DEVICE]}


@pytest.mark.parametrize("btl", ["regx,vader,self", "regx"])
@pytest.mark.parametrize("backend,cause",
                         [(backend, cause) for backend, causes in UNUSABLE.items()
                          for cause in causes], ids=lambda value: str(value)[:40])
def test_backend_that_is_not_usable(mpi: Mpi, build: Build, backend: str, cause: tuple,
                                    btl: str) -> None:
    """Hazards 4 and 12: never another one in silence."""
    mca, within, why = cause
    words = [build.programs / within[0], *within[1:]] if within else []
    job = job_of_four(mpi, btl, {"backend": backend}, mca=mca, within=words)
    assert (job.status == 0) == (btl != "regx") and not job.reports, str(job)
    assert len(job.complaints) == 1, str(job)
    match = re.fullmatch(rf"regx: btl_regx_backend={re.escape(backend)} cannot be used: "
                         rf"{re.escape(why)}.*; usable here: (.+)", job.complaints[0])
    assert match, str(job)
    usable = match[1].split(", ")
    assert usable[0] == "none" and backend not in usable, str(job)
    assert not (within and "notifier" in usable), str(job)


def test_wire_without_the_kernels_copy(mpi: Mpi) -> None:
    """A device has none: asked for by name, that is an error, with or without a device."""
    job = job_of_four(mpi, "regx,vader,self", {"rendezvous": "together", "transport": "verbs"})
    assert job.status == 0 and not job.reports, str(job)
    assert one_line(job, "rendezvous", "together") == "another rendezvous, or transport uct", \
        str(job)


def test_the_backends_named_as_usable_are_usable(mpi: Mpi) -> None:
    for name in job_of_four(mpi, "regx,vader,self", {"backend": "hooks"}, mca=NO_HOOKS[0]) \
            .complaints[0].split("usable here: ")[1].split(", "):
        job = job_of_four(mpi, "regx", {"backend": name}, mca=NO_HOOKS[0]).checked(ranks=4)
        assert {report["backend"] for report in job.reports} == {name}, str(job)


@pytest.mark.parametrize("name,value", [("chunk_size", "4M"), ("rendezvous", "teleport"),
                                        ("chunk_depth", "65")])
def test_same_line_from_everywhere(mpi: Mpi, tmp_path: Path, name: str, value: str) -> None:
    """Command line, environment, parameter file and --tune."""
    full_name = f"btl_regx_{name}"
    (tmp_path / "parameters").write_text(f"{full_name} = {value}\n")
    (tmp_path / "tune").write_text(f"--mca {full_name} {value}\n")
    ways = [{"regx": {name: value}},
            {"environment": {f"OMPI_MCA_{full_name}": value}},
            {"environment": {"OMPI_MCA_mca_base_param_files": str(tmp_path / "parameters")}},
            {"options": ["--tune", str(tmp_path / "tune")]}]
    lines = set()
    for way in ways:
        job = job_of_four(mpi, "regx,vader,self", **way)
        assert job.status == 0, str(job)
        one_line(job, name, value)
        lines.update(job.complaints)
    assert len(lines) == 1, lines


def at(ranks: str, name: str, value: str) -> list[str]:
    """Words before the program: the environment of these ranks (1|3) alone has that value."""
    return ["sh", "-c", f'case $OMPI_COMM_WORLD_RANK in {ranks}) export '
            f'OMPI_MCA_btl_regx_{name}={value};; esac; exec "$@"', "sh"]


@pytest.mark.parametrize("name,value", [("chunk_size", "4M"), ("rendezvous", "teleport")])
@pytest.mark.parametrize("rank", [1, 3])
def test_bad_value_at_one_rank(mpi: Mpi, rank: int, name: str, value: str) -> None:
    """Not the first of its application, nor of its node: it says so, and which it is. The others
    use regx among themselves."""
    job = job_of_four(mpi, "regx,vader,self", within=at(str(rank), name, value))
    assert job.status == 0 and len(job.reports) == 3, str(job)
    assert one_line(job, name, value).endswith(f"; at rank {rank} on {job.reports[0]['host']}"), \
        str(job)


def test_bad_value_where_the_first_rank_is_late(mpi: Mpi) -> None:
    """Still one line, the first rank's."""
    job = job_of_four(mpi, "regx,vader,self", {"chunk_size": "4M"}, within=[
        "sh", "-c", '[ $OMPI_COMM_WORLD_RANK != 0 ] || sleep 2; exec "$@"', "sh"])
    assert job.status == 0 and "at rank" not in one_line(job, "chunk_size", "4M"), str(job)


# How processes learn each other's addresses: all at the start, all later, or each when it is asked for.
EXCHANGES = [{"pmix_base_async_modex": 0}, {"pmix_base_async_modex": 1},
             {"pmix_base_async_modex": 1, "pmix_base_collect_data": 0}]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=["start", "later", "asked"])
@pytest.mark.parametrize("ranks,reports", [("1|3", 2), ("*", 0)])
def test_bad_value_on_one_host(mpi: Mpi, tmp_path: Path, ranks: str, reports: int,
                               exchange: dict[str, int]) -> None:
    """Two ranks on each of two: one line of the node that has it, and one if both have."""
    if mpi.build.series == (4, 1) and exchange == {"pmix_base_async_modex": 1}:
        pytest.skip("Open MPI 4.1 mostly fails in MPI_Init then, with btl/tcp too")
    with two_hosts(tmp_path) as (around, options):
        job = job_of_four(mpi, "regx,tcp,self", around=around, options=options, mca=exchange,
                          within=at(ranks, "chunk_size", "4M"))
    assert job.status == 0 and len(job.reports) == reports, str(job)
    assert ("; at rank 1 on " in one_line(job, "chunk_size", "4M")) == (ranks != "*"), str(job)


def test_bad_value_on_one_host_without_another_btl(mpi: Mpi, tmp_path: Path) -> None:
    """The job ends, and the line says why."""
    with two_hosts(tmp_path) as (around, options):
        job = job_of_four(mpi, "regx", around=around, options=options,
                          within=at("1|3", "chunk_size", "4M"))
    assert job.status != 0 and job.stdout == "", str(job)
    assert "; at rank 1 on " in one_line(job, "chunk_size", "4M"), str(job)


@pytest.mark.parametrize("way", ["environment", "file", "tune"])
def test_good_value_from_everywhere(mpi: Mpi, tmp_path: Path, way: str) -> None:
    """They take effect from there too."""
    (tmp_path / "parameters").write_text("btl_regx_rendezvous = direct\n")
    (tmp_path / "tune").write_text("--mca btl_regx_rendezvous direct\n")
    how = {"environment": {"environment": {"OMPI_MCA_btl_regx_rendezvous": "direct"}},
           "file": {"environment":
                    {"OMPI_MCA_mca_base_param_files": str(tmp_path / "parameters")}},
           "tune": {"options": ["--tune", str(tmp_path / "tune")]}}[way]
    job_of_four(mpi, "regx", **how).checked(ranks=4).carried("direct")


def test_sizes_take_units_in_either_case(mpi: Mpi) -> None:
    """K, M and G, in either case, and plain bytes."""
    for value in ("128K", "128k", "131072"):
        job = job_of_four(mpi, "regx", {"slot_size": value, "pool_size": "1M",
                                        "rendezvous": "bounce"}).checked(ranks=4)
        assert job.most("pool_bytes") == 1 << 20, str(job)


def test_pool_below_two_slots(mpi: Mpi) -> None:
    """Each is allowed, together they are not."""
    job = job_of_four(mpi, "regx,vader,self", {"pool_size": "64K", "slot_size": "64K"})
    assert job.status == 0, str(job)
    assert "128K" in one_line(job, "pool_size", "64K"), str(job)


@pytest.mark.parametrize("name,value,path,other", [
    ("flags", "65535", "bounce", "frag"),  # capabilities that regx lacks are not believed
    ("flags", "1", "frag", "bounce"),  # send alone
    ("rdma_pipeline_send_length", "100000", "frag", "bounce")])  # of messages that are put
def test_open_mpis_own_parameters_keep_their_meaning(mpi: Mpi, name: str, value: str, path: str,
                                                     other: str) -> None:
    job = job_of_four(mpi, "regx", {name: value, "rendezvous": "bounce"}).checked(ranks=4)
    assert job.total(f"messages_{path}") > 0 == job.total(f"messages_{other}"), str(job)


# What is refused, of Open MPI's own parameters and for other reasons than one bad word.
REFUSED = [
    ({"eager_limit": "0"}, "eager_limit=0; allowed: 256 to 16448"),
    ({"eager_limit": "255"}, "eager_limit=255; allowed: 256 to 16448"),
    ({"eager_limit": "16449"}, "eager_limit=16449; allowed: 256 to 16448"),
    ({"eager_limit": "16449", "slot_size": "4K"}, "eager_limit=16449; allowed: 256 to 16448"),
    ({"max_send_size": "1"}, "max_send_size=1; allowed: 1024 to 65536"),
    ({"max_send_size": "65537"}, "max_send_size=65537; allowed: 1024 to 65536"),
    ({"max_send_size": "32769", "slot_size": "32K"}, "max_send_size=32769; allowed: 1024 to 32768"),
    ({"max_send_size": "16449", "slot_size": "4K"}, "max_send_size=16449; allowed: 1024 to 16448"),
    ({"rndv_eager_limit": "16449"},
     "rndv_eager_limit=16449; allowed: 0 to btl_regx_eager_limit (16448)"),
    ({"rndv_eager_limit": "300", "eager_limit": "256"},
     "rndv_eager_limit=300; allowed: 0 to btl_regx_eager_limit (256)"),
    ({"put_limit": "100000"}, "put_limit=100000: Open MPI puts each message at once and heeds no "
     "limit; use btl_regx_chunk_size"),
    ({"get_limit": "100000"}, "get_limit=100000: regx gets each message at once, in steps of its "
     "own"),
    ({"if_include": "lo", "if_exclude": "nosuch0"},
     "if_include and btl_regx_if_exclude are both given; allowed: one"),
    ({"auto_choice": "64K:read", "rendezvous": "bounce"},
     "auto_choice is given with btl_regx_rendezvous=bounce; allowed: auto"),
    ({"grant": "synchronous"},
     "grant=synchronous is given with btl_regx_rendezvous=auto; allowed: pipeline, direct"),
    ({"grant": "synchronous", "rendezvous": "direct"}, "grant=synchronous is given with "
     "btl_regx_backend=auto; allowed: hooks, notifier, hooks+notifier"),
    ({"grant": "synchronous", "rendezvous": "pipeline", "backend": "hooks", "verify": "1"},
     "grant=synchronous is given with btl_regx_verify=1; allowed: 0"),
    ({"grant": "synchronous", "rendezvous": "pipeline", "backend": "hooks", "inuse": "abort"},
     "grant=synchronous is given with btl_regx_inuse=abort; allowed: ignore, warn, drain"),
    ({"grant": "synchronous", "rendezvous": "pipeline", "backend": "notifier",
      "notifier_check": "never"},
     "grant=synchronous is given with btl_regx_notifier_check=never; allowed: always"),
    ({"grant": "optimistic"},
     "grant=optimistic is given with btl_regx_rendezvous=auto; allowed: pipeline, direct"),
    ({"grant": "optimistic", "rendezvous": "direct", "backend": "odp"}, "grant=optimistic is given "
     "with btl_regx_backend=odp; allowed: hooks, notifier, hooks+notifier"),
    ({"grant": "optimistic", "rendezvous": "pipeline", "backend": "hooks", "verify": "1"},
     "grant=optimistic is given with btl_regx_verify=1; allowed: 0"),
    ({"report": 1024 * "x"}, "report is too long; allowed: 1023 characters"),
]


@pytest.mark.parametrize("regx,line", REFUSED, ids=lambda value: str(value)[:40])
def test_bad_combinations_are_refused_with_one_line(mpi: Mpi, regx: dict[str, str], line: str) -> None:
    """With this line and no other; the job goes on without regx."""
    job = job_of_four(mpi, "regx,vader,self", regx)
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert job.complaints == [f"regx: btl_regx_{line}"] and not job.reports, str(job)


def test_parameters_that_went_are_named_and_ignored(mpi: Mpi) -> None:
    """One line of each, and the job is carried; none is among those that there are."""
    job = job_of_four(mpi, "regx", {name: "1" for name in gone()})
    assert job.status == 0 and job.stdout.startswith("checked ") and len(job.reports) == 4, str(job)
    assert sorted(job.complaints) == sorted(
        f"regx: btl_regx_{name} is gone and has no effect: {text}"
        for name, text in gone().items()), str(job)
    assert not set(gone()) & set(parameters()), gone()


@pytest.mark.parametrize("report", ["/proc/nobody/writes/here", "/"])
def test_unwritable_report(mpi: Mpi, report: str) -> None:
    """The job is carried and ends well; one line says what could not be written."""
    job = job_of_four(mpi, "regx", {"report": report})
    assert job.status == 0 and job.stdout.startswith("checked "), str(job)
    assert len(job.complaints) == 1 and f"btl_regx_report={report}" in job.complaints[0], str(job)


def test_unwritable_report_on_one_host(mpi: Mpi, tmp_path: Path) -> None:
    """One line of that node."""
    with two_hosts(tmp_path) as (around, options):
        job = job_of_four(mpi, "regx", around=around, options=options,
                          within=at("1|3", "report", "/proc/nobody"))
    assert job.status == 0 and len(job.reports) == 2, str(job)
    assert len(job.complaints) == 1, str(job)
    assert re.search("btl_regx_report=/proc/nobody: .*, on ", job.complaints[0]), str(job)


def test_defaults_are_valid(mpi: Mpi, build: Build) -> None:
    """Given explicitly, they are accepted."""
    given = {name: build.parameters[f"btl_regx_{name}"]["value"] for name in BAD}
    job_of_four(mpi, "regx", {name: value for name, value in given.items() if value}) \
        .checked(ranks=4)
