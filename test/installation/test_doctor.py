# SPDX-License-Identifier: BSD-3-Clause
"""regx-doctor, as it is installed: what works is said to work, and what was broken on purpose is named,
with nothing else changed."""
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import device
from launch import ORDINARY_USER, Build
from namespace import need

RANKED = {"ok": 0, "note": 0, "warning": 1, "failure": 2}


class Doctor:
    def __init__(self, build: Build) -> None:
        self.build = build
        self.program = build.component.parents[1] / "bin/regx-doctor"

    def run(self, *options: str | Path, around: Sequence[str | Path] = (),
            environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        path = {"PATH": f"{self.build.mpirun.parent}:{os.environ['PATH']}"}
        return subprocess.run([*around, self.program, *options], text=True, check=False, timeout=300,
                              stdin=subprocess.DEVNULL, capture_output=True,
                              env={**os.environ, **self.build.start, **self.build.path(), **path,
                                   **(environment or {})})

    def __call__(self, *options: str | Path, around: Sequence[str | Path] = (),
                 environment: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What it says, once its status fits that."""
        run = self.run("--json", *options, around=around, environment=environment)
        assert run.stdout and not run.stderr, run
        said: dict[str, Any] = json.loads(run.stdout)
        worst = max(RANKED[check["status"]] for check in said["checks"].values())
        assert run.returncode == said["status"] == worst, run.stdout
        return said


@pytest.fixture
def doctor(build: Build) -> Doctor:
    return Doctor(build)


@pytest.fixture(scope="module")
def healthy(build: Build) -> dict[str, Any]:
    """What it says here, with nothing broken."""
    return Doctor(build)()


def test_what_works_is_said_to_work(healthy: dict[str, Any], build: Build) -> None:
    checks = healthy["checks"]
    for name in "openmpi", "component", "job", "transport", "strategy", "backend", "shm", "hooks":
        assert checks[name]["status"] == "ok", checks[name]
    assert "every byte was right" in checks["job"]["text"]
    major, minor = build.series
    assert healthy["facts"]["openmpi"].startswith(f"{major}.{minor}.")
    assert healthy["facts"]["built_for"].startswith(f"{major}.{minor}.")
    assert not healthy["facts"]["fallbacks"]


@pytest.mark.skipif(not device.is_there(), reason="no RDMA device here")
def test_messages_go_over_the_rdma_device(healthy: dict[str, Any]) -> None:
    assert healthy["checks"]["rdma"]["status"] == "ok", healthy["checks"]["rdma"]
    assert [port for port in healthy["facts"]["ports"] if port["state"] == "ACTIVE"]


def test_what_the_kernel_refuses_is_named(doctor: Doctor, healthy: dict[str, Any]) -> None:
    """A container's filter, no System V and a small /dev/shm, a file that limits locked memory, and Yama."""
    need("mount namespace", "unshare", "--mount", "--ipc", "true")
    deny = doctor.build.programs / "deny"
    script = "mount -t tmpfs -o size=7M small /dev/shm\n" \
        "echo 1 >/proc/sys/kernel/shmmax\n" \
        "mount -t tmpfs limits /etc/security/limits.d\n" \
        "echo '*  hard  memlock  77' >/etc/security/limits.d/site.conf\n" \
        "mount -t tmpfs yama /proc/sys/kernel && mkdir /proc/sys/kernel/yama\n" \
        "echo 2 >/proc/sys/kernel/yama/ptrace_scope\n" 'exec "$@"'
    said = doctor(around=["unshare", "--mount", "--ipc", "sh", "-ec", script, "sh",
                          deny, "process_vm", deny, "userfaultfd"])
    checks = said["checks"]
    assert "process_vm" in checks, checks  # it is not asked for where the first job was not right
    assert checks["job"]["status"] == checks["process_vm"]["status"] == \
        checks["shm"]["status"] == "warning", checks
    assert "refused" in checks["process_vm"]["text"]
    assert "seccomp filter" in checks["process_vm"]["remedy"]
    assert "ptrace_scope is 2 (0 and 1 allow it)" in checks["process_vm"]["remedy"]
    assert "sysv: no shared memory of" in checks["shm"]["text"]
    assert "bytes within its part" in checks["shm"]["text"]
    assert "has 7 MiB free of 7 MiB" in checks["shm"]["text"]
    assert "nothing of /dev/shm is taken" in healthy["checks"]["shm"]["text"]
    assert checks["userfaultfd"]["status"] != "ok"
    assert "userfaultfd: Operation not permitted" in checks["userfaultfd"]["text"]
    limit = "/etc/security/limits.d/site.conf: * hard memlock 77"
    assert limit in checks["memlock"]["text"] and limit not in healthy["checks"]["memlock"]["text"]


def test_a_parameter_that_is_refused_is_named(doctor: Doctor) -> None:
    said = doctor(environment={"OMPI_MCA_btl_regx_pool_size": "1"})
    assert said["checks"]["job"]["status"] == "failure"
    assert said["checks"]["job"]["text"].startswith("btl_regx_pool_size=1 is too small; allowed: ")
    assert "btl_regx_pool_size = 1 (env" in said["checks"]["defaults"]["text"]


def test_a_component_that_cannot_be_loaded_is_named(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "mca_btl_regx.so").write_text("")
    said = doctor(environment=doctor.build.path(tmp_path))
    component = said["checks"]["component"]
    assert component["status"] == "failure" and "mca_btl_regx" in component["text"], component
    assert "job" not in said["checks"]


def fake(folder: Path, **scripts: str) -> Path:
    """The prefix of an Open MPI that does what these say."""
    (folder / "bin").mkdir(parents=True)
    for name, script in scripts.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return folder


def test_a_job_that_hangs_is_ended_and_named(doctor: Doctor, tmp_path: Path) -> None:
    started = tmp_path / "started"
    prefix = fake(tmp_path / "openmpi", ompi_info="echo mca:btl:regx:param:btl_regx_enable:value:auto",
                  mpirun='if [ "$1" = --version ]; then echo "mpirun (Open MPI) 4.1.4"; exit; fi\n'
                         f"echo $$ >>{started}\nexec sleep 1000")
    said = doctor("--openmpi", prefix, "--timeout", "1")
    assert said["checks"]["job"]["text"] == "it did not end in time"
    pid = started.read_text().strip()
    assert pid and not Path(f"/proc/{pid}").exists()


def test_what_is_needed_must_be_ok(doctor: Doctor, tmp_path: Path) -> None:
    """Here nothing works, so that what cannot be asked is not taken for well."""
    said = doctor("--openmpi", tmp_path, "--need", "rdma,hugepages")
    assert said["checks"]["rdma"]["status"] == said["checks"]["hugepages"]["status"] == "failure"
    for options, to in ((["--need", "rdam"], ""), (["--timeout", "0"], ""), (["more"], ""), ([], ">/dev/full"),
                        ([], ">&-")):
        run = doctor.run("--openmpi", tmp_path, *options, around=["sh", "-c", f'exec "$@" {to}', "sh"])
        assert run.returncode == 3 and not run.stdout, run
        assert run.stderr.startswith("regx-doctor: ") and run.stderr.count("\n") == 1, run.stderr
        assert "_seconds" not in run.stderr, run.stderr


def test_it_runs_inside_a_job_as_an_ordinary_user(doctor: Doctor, tmp_path: Path) -> None:
    """As one asks all nodes at once. In a prefix of its own regx is found too, and how users find it is
    said."""
    user = ORDINARY_USER
    if subprocess.run([*user, "test", "-x", doctor.program], check=False).returncode != 0:
        user = []  # the tree is root's alone
    search = "OMPI_MCA_opal_mca_base_component_path"
    # Its status is that something is wrong; mpirun would end the other rank for it.
    script = f'unset {search}; "$@" --json >{tmp_path}/$OMPI_COMM_WORLD_RANK; true'
    doctor.run(around=[doctor.build.mpirun, "-n", "2", "--oversubscribe", "sh", "-c", script, "sh", *user],
               environment={"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    for rank in "01":
        checks = json.loads((tmp_path / rank).read_text())["checks"]
        assert checks["job"]["status"] == "ok", checks
        assert checks["component"]["status"] == "warning"
        assert f"set {search}={doctor.build.path()[search]} for" in checks["component"]["remedy"]
        assert checks["user"]["status"] == ("ok" if user else checks["user"]["status"])


def test_every_command_that_is_installed_has_a_manual_page(build: Build) -> None:
    prefix = build.component.parents[1]
    commands = {path.name for path in (prefix / "bin").iterdir()}
    assert commands and commands == {path.stem for path in (prefix / "share/man/man1").iterdir()}
