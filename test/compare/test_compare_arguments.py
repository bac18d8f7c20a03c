# SPDX-License-Identifier: BSD-3-Clause
"""compare's command line, and where it finds OSU."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from standins import ROWS, TOP, WATCHDOG, Tree

from comparing import osu


def test_dry_run_prints_lines_that_can_be_pasted(tree: Tree) -> None:
    rows = ROWS.replace("MBS=2000", "'TWO=a b'")
    file = tree.write("rows.conf", rows)
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    done = tree.run("-f", file, "--osu", tree.path / "osu", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "setup was called" not in done.stderr and not (tree.path / "calls").exists()
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert len(lines) == 6  # two rows, checked and timed, and the reference beside each
    bounce = shlex.split(lines[1])
    component = f"OMPI_MCA_opal_mca_base_component_path={tree.path}/component-dir:/pkglib"
    assert bounce[:3] == ["env", component, f"{tree.path}/bin/mpirun"]
    assert bounce[-5:] == ["-m", "65536:262144", "-i", "5", "-x", "1"][-5:]
    probe = [f"{tree.path}/bin/probe", "fastest", "-s", "bandwidth", "-m", "65536:262144"]
    assert shlex.split(lines[2]) == shlex.split(lines[5]) == probe
    assert "TWO=a b" in shlex.split(lines[4])
    for line in lines:
        pasted = subprocess.run(
            ["sh", "-c", line],
            cwd=tree.path,
            env=tree.environment,
            capture_output=True,
            text=True,
            timeout=WATCHDOG,
            check=False,
        )
        assert pasted.returncode == 0, pasted.stderr
        assert "# Size Bandwidth (MB/s)" in pasted.stdout


def test_dry_run_of_the_default_set_needs_nothing_built() -> None:
    if not all(os.access(f"/usr/bin/{name}", os.X_OK) for name in ("mpirun", "ompi_info")):
        pytest.skip("needs Open MPI in PATH")
    done = subprocess.run(
        [TOP / "osu-configs/compare", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--mca btl_regx_rendezvous pipeline" in done.stdout


def test_files_of_several_options_are_all_read(tree: Tree) -> None:
    defaults, bounce, vader = ROWS.partition("[bounce]")[0], *ROWS.split("[")[2:]
    files = [tree.write(f"{number}.conf", f"{defaults}[{row}")
             for number, row in enumerate((bounce, vader, vader.replace("vader", "tcp")))]  # fmt: skip
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    words = ["-f", files[0], files[1], "-f", files[2], "--osu", tree.path / "osu", "--dry-run"]
    done = tree.run(*words)
    assert done.returncode == 0, done.stderr
    btls = [words[words.index("btl") + 1] for line in done.stdout.splitlines()
            if line[0] != "#" and "btl" in (words := shlex.split(line))]  # fmt: skip
    assert btls == ["regx"] * 2 + ["vader,self"] * 2 + ["tcp,self"] * 2  # checked and timed


def test_a_launcher_gets_all_by_the_environment(tree: Tree) -> None:
    file = tree.write("rows.conf", ROWS)
    (tree.path / ".build").mkdir()
    subprocess.run([tree.path / "component/config/setup"], check=True, timeout=WATCHDOG)
    done = tree.run(
        "-f", file, "--osu", tree.path / "osu", "--dry-run", "--launcher", "srun --mpi=pmix"
    )
    _, line = [text for text in done.stdout.splitlines() if "btl=regx" in text]  # checked, timed
    words = shlex.split(line)
    assert words[0] == "env" and "OMPI_MCA_pml=ob1" in words and "MBS=3000" in words
    assert "OMPI_MCA_btl_regx_rendezvous=bounce" in words
    start = words.index("srun")
    assert words[start : start + 4] == ["srun", "--mpi=pmix", "-n", "2"] and "--mca" not in words


def test_a_launcher_is_used_and_no_phase_is_claimed(tree: Tree) -> None:
    # Any launcher will do: here, the stand-in for mpirun itself.
    done, document = tree.compare(ROWS, "--launcher", f"{tree.path}/bin/mpirun --own")
    assert done.returncode == 0, done.stderr
    assert "phase not measured, 3 runs)" in done.stdout and "1.50x" in done.stdout
    assert {run["phase"] for run in document["runs"]} == {"unmeasured"}
    assert all("--own -n 2" in call for call in tree.calls())


def test_a_hostfile_maps_by_node(tree: Tree) -> None:
    hosts = tree.write("hosts", "a\nb\n")
    done, _ = tree.compare(ROWS, "--hostfile", hosts)
    assert done.returncode == 0, done.stderr
    assert all(f"--hostfile {hosts} --map-by node" in call for call in tree.calls())
    assert "phase not measured, 3 runs)" in done.stdout and "reference" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hostfile", "/nowhere"], "--hostfile: /nowhere cannot be read"),
        (["--launcher", ""], "--launcher: wanted: a command"),
        (["--launcher", "srun", "--hostfile", "hosts"], "--hostfile is mpirun's; a launcher has"),
        (["--launcher", "'srun"], "--launcher: No closing quotation"),
        (["--osu", "/nowhere"], "--osu: no osu_bw in /nowhere; wanted: an installation or a build"),
        (["-f", "/nowhere"], "/nowhere: cannot be read: No such file or directory"),
        (["--output", "/dev/null/x"], "--output: /dev/null/x cannot be made: Not a directory"),
    ],
)
def test_bad_arguments_get_one_line(tree: Tree, arguments: list[str], complaint: str) -> None:
    done = tree.run("-f", tree.write("rows.conf", ROWS), *arguments)
    assert done.returncode == 2 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if not line.startswith("setup ")]
    assert len(said) == 1 and said[0].startswith(f"compare: {complaint}"), done.stderr


def test_osu_home_is_used_and_refused_where_it_has_no_osu(tree: Tree) -> None:
    done = tree.run("-f", tree.write("rows.conf", ROWS), OSU_HOME="/nowhere")
    assert done.returncode == 2 and "compare: OSU_HOME: no osu_bw in /nowhere" in done.stderr
    done = tree.run("-f", tree.path / "rows.conf", OSU_HOME=str(tree.path / "osu"))
    assert done.returncode == 0 and "osu_bw, MB/s" in done.stdout


@pytest.mark.parametrize(
    "folder",
    ["libexec/osu-micro-benchmarks/mpi/pt2pt", "c/mpi/pt2pt/standard", "mpi/pt2pt", "."],
)
def test_osu_is_found_installed_or_built(tree: Tree, folder: str) -> None:
    tree.write(f"place/{folder}/osu_bw", "", executable=True)
    file = tree.write("rows.conf", ROWS)
    done = tree.run("-f", file, "--osu", tree.path / "place", "--output", tree.path / "output")
    assert done.returncode == 0, done.stderr
    assert f"osu_bw is {os.path.normpath(tree.path / 'place' / folder / 'osu_bw')}\n" in done.stderr


def test_osu_is_found_in_path(tree: Tree) -> None:
    path = f"{tree.environment['PATH']}:{tree.path}/osu"
    done = tree.run("-f", tree.write("rows.conf", ROWS), PATH=path)
    assert done.returncode == 0, done.stderr
    assert f"osu_bw is {tree.path}/osu/osu_bw\n" in done.stderr


@pytest.mark.parametrize(
    "folder",
    [
        "usr/libexec/osu-micro-benchmarks/mpi/pt2pt",
        "usr/local/libexec/osu-micro-benchmarks/mpi/pt2pt",
        "usr/lib/osu-micro-benchmarks/mpi/pt2pt",
        "usr/lib64/openmpi/bin",
    ],
)
def test_osu_is_found_in_a_usual_place_but_in_path_first(
    tree: Tree, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a root of this test's own; a folder of PATH goes before."""
    there = tree.write(f"{folder}/osu_bw", "", executable=True)
    monkeypatch.setattr(osu, "USUAL_PLACES", [f"{tree.path}{place}" for place in osu.USUAL_PLACES])
    suite = osu.Suite(None, Path("/c"), {"PATH": "/nowhere"})
    assert suite.program("osu_bw", "same") == osu.Program(there, (), "osu_bw")
    suite = osu.Suite(None, Path("/c"), {"PATH": f"/nowhere:{tree.path}/osu"})
    assert suite.program("osu_bw", "same").path == tree.path / "osu/osu_bw"


def test_on_a_bare_machine_setup_brings_python(tree: Tree) -> None:
    bare = tree.path / "bare"
    bare.mkdir()
    for name in ("sh", "dirname", "readlink", "cat", "mkdir", "ln"):
        (bare / name).symlink_to(str(shutil.which(name)))
    setup = tree.path / "component/config/setup"
    setup.write_text(setup.read_text() + f'ln -s "{sys.executable}" "{bare}/python3"\n')
    done = subprocess.run(
        tree.command("--help"),
        env={"PATH": str(bare)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith("usage: compare")
    # Help alone is no reason to install anything.
    assert done.stderr == "setup was called with compare --no-install\n"


def test_when_setup_fails_its_message_is_the_last_word(tree: Tree) -> None:
    tree.write("setup-fails", "")
    done = tree.run("--no-install")
    assert done.returncode == 7 and done.stdout == ""
    assert done.stderr == (
        "setup was called with compare --no-install\nsetup: no package for that\n"
    )


def test_results_are_never_overwritten(tree: Tree) -> None:
    tree.compare(ROWS)
    before = (tree.path / "output/results.csv").read_bytes()
    done = tree.run("-f", tree.path / "rows.conf", "--output", tree.path / "output")
    assert done.returncode == 2 and "holds results already; choose another folder" in done.stderr
    assert (tree.path / "output/results.csv").read_bytes() == before
