# SPDX-License-Identifier: BSD-3-Clause
"""What is asked, and what the answers mean. regx itself is asked, by jobs, wherever it knows: its own
lines, its trace and its report say what it takes here and why not more."""
import getpass
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import node
from .finding import Finding, Status
from .job import Job, run
from .openmpi import SEARCH, Installed, OpenMpi, find_mpirun, of_this_node

# In the order in which they are said.
CHECKS = {
    "openmpi": "the Open MPI that is there, and the one that regx was built for",
    "component": "whether Open MPI finds and loads regx",
    "defaults": "whether jobs that name no BTL use regx, and what this site has set",
    "job": "two processes exchange messages over regx, and every byte is looked at",
    "transport": "what btl_regx_transport takes here, and why",
    "strategy": "how large messages travel",
    "backend": "how registrations are kept true",
    "process_vm": "whether processes of this node may copy from each other",
    "userfaultfd": "whether the backend notifier can be used",
    "kernel": "whether the backend kernel can be used",
    "hooks": "whether the backend hooks can be used",
    "rdma": "RDMA devices, their ports and subnets, and messages over them",
    "odp": "whether a device can page on demand",
    "memlock": "memory that may be locked, and who sets that limit",
    "shm": "shared memory",
    "hugepages": "huge pages",
    "user": "who asks",
}


class Doctor:
    """One visit. `findings` and `facts` (for --json) are filled by `examine`."""

    def __init__(self, installed: Installed, prefix: Optional[str], patience: float) -> None:
        self.installed = installed
        self.prefix = prefix
        self.patience = patience
        self.findings: List[Finding] = []
        self.facts: Dict[str, Any] = {"regx": installed.version, "built_for": installed.openmpi}
        self.ports = node.ports()

    def say(self, check: str, status: Status, text: str, remedy: str = "") -> None:
        self.findings.append(Finding(check, status, text, remedy))

    def examine(self) -> None:
        openmpi = self._find_openmpi()
        if openmpi is not None:
            self._look_at(openmpi)
        self._machine()
        order = list(CHECKS)
        self.findings.sort(key=lambda finding: order.index(finding.check))

    # --- Open MPI

    def _find_openmpi(self) -> Optional[OpenMpi]:
        mpirun = find_mpirun(self.prefix, self.installed)
        if mpirun is None:
            where = f"{self.prefix}/bin" if self.prefix else "PATH"
            self.say("openmpi", Status.FAILURE, f"no mpirun in {where}",
                     f"load the module of Open MPI {self.installed.openmpi}, or put its bin into PATH")
            return None
        openmpi = of_this_node(mpirun)
        trouble = openmpi.read()
        if not trouble and not openmpi.loads_regx and SEARCH not in os.environ:
            # regx has a prefix of its own, and nothing in the environment leads there.
            search = self._search(openmpi)
            openmpi = of_this_node(mpirun, search)
            trouble = openmpi.read()
            if not trouble and openmpi.loads_regx:
                self.say("component", Status.WARNING, f"is in {self.installed.component}, where this "
                         "Open MPI does not look by itself",
                         f"set {SEARCH}={search} for all users")
        if trouble:
            self.say("openmpi", Status.FAILURE, trouble)
            return None
        self.facts.update(openmpi=openmpi.version, mpirun=str(mpirun))
        return openmpi

    def _search(self, openmpi: OpenMpi) -> str:
        folders = [self.installed.component, openmpi.paths.get("pkglibdir", "")]
        return ":".join(dict.fromkeys(folders))

    def _main_job(self, openmpi: OpenMpi) -> Job:
        """Debian 13's mpirun has its processes look for components where PMIx has its own, though ompi_info
        looks in the right place, and a file of parameters does not help."""
        job = self._run(openmpi, 2)
        if not openmpi.loads_regx or job.right or job.was_loaded or SEARCH in os.environ:
            return job
        elsewhere = openmpi.jobs_look_in()
        if elsewhere:
            search = openmpi.environment[SEARCH] = self._search(openmpi)
            job = self._run(openmpi, 2)
            self.say("component", Status.WARNING if job.was_loaded else Status.FAILURE,
                     f"ompi_info finds it, but mpirun has its processes look in {elsewhere}",
                     f"set {SEARCH}={search} in the environment of all users; a file of parameters may not do")
        return job

    def _look_at(self, openmpi: OpenMpi) -> None:
        main = self._main_job(openmpi)
        text = f"{openmpi.version} ({openmpi.mpirun}); regx {self.installed.version}, built for " \
               f"{self.installed.openmpi}"
        misfits = [line for line in main.lines if line.startswith("built for Open MPI")]
        if misfits:
            self.say("openmpi", Status.FAILURE, f"regx is {misfits[0]}", "install the package of "
                     "regx for this Open MPI, or load the Open MPI that regx was built for")
            return
        self.say("openmpi", Status.OK, text)
        if not openmpi.loads_regx:
            self._does_not_load(openmpi, main)
            return
        if not any(finding.check == "component" for finding in self.findings):
            self._loads(main)
        self._defaults(openmpi)
        self._main(main)
        if main.right:
            self._ask_more(openmpi, main)

    def _run(self, openmpi: OpenMpi, ranks: int, **regx: str) -> Job:
        """One process alone talks to itself, by another BTL."""
        return run(openmpi, self.installed.exchange, ranks, "regx" if ranks > 1 else "regx,self",
                   self.patience, **regx)

    def _ask_more(self, openmpi: OpenMpi, main: Job) -> None:
        """One after the other: what is tried is not to be slow because of what else is tried."""
        self._process_vm(self._run(openmpi, 2, rendezvous="read", transport="shm", backend="none"))
        self._userfaultfd(self._run(openmpi, 1, backend="notifier", transport="shm"), main)
        self._kernel(self._run(openmpi, 1, backend="kernel", transport="shm"))
        self._hooks(self._run(openmpi, 1, backend="hooks", transport="shm"))
        verbs = self._run(openmpi, 2, transport="verbs") if self.ports else None
        odp = self._run(openmpi, 1, transport="verbs", backend="odp") if self.ports else None
        self._rdma(verbs, odp)
        self._memlock([main, *([verbs] if verbs else [])])

    def _does_not_load(self, openmpi: OpenMpi, main: Job) -> None:
        file = Path(self.installed.component) / "mca_btl_regx.so"
        said = [line for line in main.answer.stderr.splitlines() if "mca_btl_regx" in line]
        if not file.exists():
            self.say("component", Status.FAILURE, f"{file} is not there", "install regx again")
        elif said:
            self.say("component", Status.FAILURE, f"cannot be loaded: {said[0].strip()}",
                     "install what the component needs, in the version that it was built with")
        else:
            looked = openmpi.environment.get(SEARCH) or openmpi.paths.get("pkglibdir", "")
            self.say("component", Status.FAILURE, f"is not found; Open MPI looks in {looked}",
                     f"put {self.installed.component} into {SEARCH}")

    def _loads(self, main: Job) -> None:
        built = next((found for found in (re.match(r"regx (\S+) for Open MPI ([^,]+), rank", trace)
                                          for trace in main.traces) if found), None)
        if built and (built[1], built[2]) != (self.installed.version, self.installed.openmpi):
            self.say("component", Status.WARNING, f"Open MPI loads regx {built[1]}, built for "
                     f"{built[2]}: another one than this command's", "remove one of them")
        else:
            self.say("component", Status.OK, "Open MPI finds and loads it")

    def _defaults(self, openmpi: OpenMpi) -> None:
        parameters = openmpi.parameters
        enabled, source = parameters.get("btl_regx_enable", ("auto", "default"))
        pml, _ = parameters.get("pml", ("", ""))
        btl, _ = parameters.get("btl", ("", ""))
        named = not btl.startswith("^") and "regx" in btl.split(",")
        site = [f"{name} = {value} ({source})" for name, (value, source) in sorted(parameters.items())
                if name.startswith("btl_regx_") and source != "default" and name != "btl_regx_enable"]
        if enabled == "0":
            text = f"no job uses regx: btl_regx_enable is 0 ({source})"
        elif enabled == "1" or named:
            text = "jobs use regx" + ("" if pml == "ob1" else " where their PML is ob1") + \
                f" (btl_regx_enable {enabled}, btl {btl or 'not set'}, pml {pml or 'not set'})"
        else:
            text = "jobs use regx only if they ask for it: mpirun --mca pml ob1 --mca btl regx"
        status = Status.OK if enabled == "1" or named else Status.NOTE
        self.say("defaults", status, "; ".join([text, *site]))

    # --- the job that every user may start

    def _main(self, job: Job) -> None:
        if not job.right:
            self.say("job", Status.FAILURE, job.why_not)
            return
        report = job.reports[0]
        moved = ", ".join(f"{job.total(f'bytes_{wire}')} by {wire}" for wire in ("shm", "verbs")
                          if job.total(f"bytes_{wire}"))
        fallen = job.tallies("fallbacks")
        text = f"two processes exchanged messages, every byte was right ({moved}){job.ending}"
        if job.lines or fallen:
            text += "; but " + "; ".join([*job.lines, *fallen])
        self.say("job", Status.WARNING if job.lines or fallen else Status.OK, text)
        self.say("transport", Status.OK, f"{report['transport']} ({report['transport_reason']})")
        taken = dict.fromkeys(f"{row['way']} ({row['why']})" for its in job.reports for row in its["explain"])
        self.say("strategy", Status.OK, f"{report['rendezvous']}; taken here: {', '.join(taken)}")
        self.say("backend", Status.OK, f"{report['backend']} ({report['backend_reason']})")
        self._shared_memory(report["pool_bytes"], fallen)
        self.facts.update({key: report[key] for key in (
            "transport", "transport_reason", "rendezvous", "backend", "backend_reason", "pool_bytes")})
        self.facts["fallbacks"] = fallen

    # --- what the kernel allows

    def _process_vm(self, job: Job) -> None:
        if self._too_slow("process_vm", job):
            return
        if job.right and job.total("messages_read") and not job.tallies("fallbacks"):
            self.say("process_vm", Status.OK, "processes of this node may copy from each other")
            return
        why = "; ".join(job.tallies("fallbacks")) if job.right else job.why_not
        self.say("process_vm", Status.WARNING, f"large messages on the node are copied twice: {why}",
                 "; ".join(node.refusers()) or "look for what refuses process_vm_readv(2)")

    def _userfaultfd(self, job: Job, main: Job) -> None:
        if self._takes(job, "notifier"):
            self.say("userfaultfd", Status.OK, "the backend notifier passes its self-test")
            return
        if self._too_slow("userfaultfd", job):
            return
        idle = main.reports[0]["backend_reason"] == "not needed"
        self.say("userfaultfd", Status.NOTE if idle else Status.WARNING, job.why_not +
                 ("; not needed here, since registering memory is free" if idle else ""),
                 "allow userfaultfd(2) in the seccomp filter or security module; it takes Linux 5.18")

    def _kernel(self, job: Job) -> None:
        """It is no shortcoming to have none."""
        if self._takes(job, "kernel"):
            self.say("kernel", Status.OK, "the backend kernel passes its self-test")
        elif not self._too_slow("kernel", job):
            self.say("kernel", Status.NOTE, f"{job.why_not}; the module is in component/kernel of regx's source "
                     "(Debian: the package regx-notify-dkms; else as root dkms install component/kernel, modprobe "
                     "regx_notify)")

    def _hooks(self, job: Job) -> None:
        if self._takes(job, "hooks"):
            self.say("hooks", Status.OK, "the backend hooks passes its self-test")
        elif not self._too_slow("hooks", job):
            self.say("hooks", Status.NOTE, job.why_not)

    @staticmethod
    def _takes(job: Job, backend: str) -> bool:
        return any(f", backend {backend} (asked for)" in trace for trace in job.traces)

    def _too_slow(self, check: str, job: Job) -> bool:
        """Says so: what a job would have shown is then not known."""
        if job.answer.status is None:
            self.say(check, Status.WARNING, f"not known: a job did not end within {self.patience:.0f} s",
                     "ask again when the node has less to do, or with a longer --timeout")
        return job.answer.status is None

    # --- devices

    def _rdma(self, verbs: Optional[Job], odp: Optional[Job]) -> None:
        self.facts["ports"] = [vars(port) for port in self.ports]
        if verbs is None:
            self.say("rdma", Status.NOTE, "no RDMA device")
            self.say("odp", Status.NOTE, "no RDMA device")
            return
        shown = "; ".join(map(str, self.ports))
        left_out = [trace for trace in verbs.traces if "is not used" in trace or "left out" in trace]
        lines = [line for line in verbs.lines if "locked memory" not in line]  # see _memlock
        if not self._too_slow("rdma", verbs):
            if verbs.right:
                said = [f"messages went over {', '.join(verbs.tallies('ports')) or 'no port'}", *lines]
            else:
                said = [verbs.why_not]
            self.say("rdma", Status.OK if verbs.right and not lines else Status.WARNING,
                     "; ".join([shown, *said, *left_out]),
                     "see ibv_devinfo, and btl_regx_if_include and btl_regx_verbs_...")
        if odp is None or self._takes(odp, "odp"):
            self.say("odp", Status.OK, "the backend odp passes its self-test")
        elif not self._too_slow("odp", odp):
            self.say("odp", Status.NOTE, odp.why_not)

    def _memlock(self, jobs: List[Job]) -> None:
        own = node.own_memlock()
        who = node.who_sets_memlock()
        self.facts["memlock"] = {"limit": own, "set_by": who}
        text = "; ".join([f"{own} for this process", *who])
        short = [line for job in jobs for line in job.lines if "locked memory" in line]
        if short:
            self.say("memlock", Status.WARNING, f"{text}; {short[0]}",
                     "see limits.d and slurmd.service.d beside the files for administrators of regx")
        elif self.ports:
            self.say("memlock", Status.OK, text)
        else:
            self.say("memlock", Status.NOTE, f"{text}; nothing is registered with a device here")

    # --- the machine

    def _shared_memory(self, pool: int, fallen: Dict[str, int]) -> None:
        total, free = node.shared_memory()
        ranks = node.cores()
        self.facts["shm"] = {"bytes": total, "free": free}
        refused = [reason for reason in fallen if "shared memory of" in reason]
        text = f"a process has a pool of {node.size(pool)}"
        if not refused:
            self.say("shm", Status.OK, f"{text}, of System V: nothing of /dev/shm is taken")
            return
        text = f"{'; '.join(refused)}; /dev/shm has {node.size(free)} free of {node.size(total)}; {text}"
        short = [reason for reason in refused if reason.startswith("posix")]
        if short or free < ranks * pool:
            self.say("shm", Status.WARNING, f"{text}, which is {node.size(ranks * pool)} with a process "
                     f"on each of {ranks} cores", "allow System V shared memory (kernel.shmmax, "
                     "kernel.shmall, kernel.shmmni); or a larger /dev/shm (mount -o remount,size=…; in "
                     "containers --shm-size), or btl_regx_pool_size smaller")
        else:
            self.say("shm", Status.NOTE, text, "allow System V shared memory (kernel.shmmax, "
                     "kernel.shmall, kernel.shmmni), and nothing of /dev/shm is taken")

    def _machine(self) -> None:
        self.say("hugepages", Status.NOTE, node.huge_pages())
        if os.geteuid() == 0:
            self.say("user", Status.NOTE, "root, who may lock all memory and copy from every process",
                     "ask as a user too: runuser -u NAME -- regx-doctor")
        else:
            self.say("user", Status.OK, getpass.getuser() if "USER" in os.environ or
                     "LOGNAME" in os.environ else f"user id {os.geteuid()}")
