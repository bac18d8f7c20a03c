# SPDX-License-Identifier: BSD-3-Clause
"""The Open MPI that is asked, and jobs of it that end whatever happens."""
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, Optional, Tuple

SEARCH = "OMPI_MCA_opal_mca_base_component_path"
PATIENCE = 60.0  # seconds for what Open MPI is asked, besides jobs
# What a scheduler, or an mpirun around the doctor, tells its processes. The doctor's own jobs are on this
# node and none of theirs.
FOREIGN = re.compile(r"SLURM_|PBS_|LSB_|LSF_|COBALT_|PE_HOSTFILE|SGE_|OAR_|PMIX?_|PMIX_|PRTE_|ORTE_|"
                     r"OMPI_(?!MCA_|ALLOW_)|"
                     r"OMPI_MCA_(orte|ess|pmix|prte|rmaps|plm|ras|initial_wdir|shmem_RUNTIME)")


@dataclass(frozen=True)
class Installed:
    """Where configure put things, and the Open MPI that it built for."""
    version: str
    openmpi: str
    mpirun: str
    component: str  # a folder
    exchange: str  # the program of the doctor's jobs


@dataclass
class Answer:
    """What a command said."""
    status: Optional[int]  # None: it did not end in time
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """The beginning of what Open MPI first put between two lines of dashes, else the last line."""
        text = self.stderr or self.stdout
        framed = re.search(r"^-{60,}\n(.*?)\n-{60,}$", text, re.M | re.S)
        lines = [line for line in text.splitlines() if re.search(r"\w", line)]
        chosen = framed[1] if framed else lines[-1] if lines else "nothing was said"
        return " ".join(chosen.split())[:400]


def ask(words: List[str], environment: Dict[str, str], patience: float) -> Answer:
    """Runs a command; what it started is killed with it if it takes longer."""
    try:
        process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace",
                                   start_new_session=True)
    except OSError as error:
        return Answer(127, "", f"{words[0]}: {error.strerror}")
    try:
        stdout, stderr = process.communicate(timeout=patience)
        return Answer(process.returncode, stdout, stderr)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpirun then ends its ranks, which have process groups of their own
        try:
            stdout, stderr = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
        return Answer(None, stdout, stderr)
    except BaseException:  # Ctrl-C, which does not reach the job by itself
        process.terminate()
        raise


@dataclass
class OpenMpi:
    mpirun: Path
    environment: Dict[str, str]
    version: str = ""
    paths: Dict[str, str] = field(default_factory=dict)  # as ompi_info names them
    # Of regx, and of pml and btl: (value, source).
    parameters: Dict[str, Tuple[str, str]] = field(default_factory=dict)
    loads_regx: bool = False

    def ask(self, *words: str) -> Answer:
        return ask(list(words), self.environment, PATIENCE)

    def read(self) -> str:
        """Fills in what ompi_info says. Returns why it says nothing, or an empty text."""
        info = str(self.mpirun.parent / "ompi_info")
        answer = self.ask(str(self.mpirun), "--version")
        found = re.search(r"\(Open MPI\) (\S+)", answer.stdout)
        if not found:
            return f"{self.mpirun} is not Open MPI's: {answer.said}"
        self.version = found[1]
        said = self.ask(info, "--parsable", "--path", "all", "--param", "all", "all", "--level", "9")
        if said.status != 0:
            return f"{info} fails: {said.said}"
        for line in said.stdout.splitlines():
            self._take(line)
        return ""

    def jobs_look_in(self) -> str:
        """Where mpirun by itself tells processes to look for components; empty where it leaves that alone."""
        told = re.search(r"^(OMPI_MCA_(?:opal_)?mca_base_component_path)=(.*)$",
                         self.ask(str(self.mpirun), "-n", "1", "env").stdout, re.M)
        return told[2] if told and self.environment.get(told[1]) != told[2] else ""

    def _take(self, line: str) -> None:
        words = line.split(":", 6)  # mca:btl:regx:param:NAME:KEY:VALUE
        if words[0] == "path" and len(words) > 2:
            self.paths[words[1]] = line.split(":", 2)[2].strip('"')
        if words[:3] == ["mca", "btl", "regx"]:
            self.loads_regx = True
        if len(words) == 7 and words[3] == "param" and words[5] in ("value", "source"):
            value, source = self.parameters.get(words[4], ("", ""))
            text = words[6].strip('"')
            self.parameters[words[4]] = (text, source) if words[5] == "value" else (value, text)


def of_this_node(mpirun: Path, search: str = "") -> OpenMpi:
    """With an environment in which its jobs are of no other job."""
    environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
    # The doctor's jobs are its own program, on this node; as root too, since administrators are.
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if search:
        environment[SEARCH] = search
    return OpenMpi(mpirun, environment)


def find_mpirun(given: Optional[str], installed: Installed) -> Optional[Path]:
    """Of the prefix that was given, else the first in PATH, else the one that regx was built for."""
    if given is not None:
        candidate: Optional[str] = str(Path(given) / "bin" / "mpirun")
    else:
        candidate = shutil.which("mpirun") or installed.mpirun
    return Path(candidate).absolute() if candidate and os.access(candidate, os.X_OK) else None
