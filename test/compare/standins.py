# SPDX-License-Identifier: BSD-3-Clause
"""A tree of its own for each test, in which everything that compare starts is a stand-in.

The stand-ins do what rows of the test's configuration ask for by an environment variable, so that
a wrong byte, a hang or a changed phase can be had at will. Real Open MPI, OSU, the companion and
the probe are tested elsewhere.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "osu-configs"))

from comparing.installation import Installation  # noqa: E402  (the line above makes it importable)

WATCHDOG = 120  # seconds for anything that a test starts

SETUP = """\
#!/bin/sh
echo "setup was called with $*" >&2
[ ! -e "{tree}/setup-fails" ] || {{ echo "setup: no package for that" >&2; exit 7; }}
mkdir -p "{tree}/.build"
cat >"{tree}/.build/env" <<F
REGX_COMPONENT_DIR={tree}/component-dir
REGX_MPIRUN={tree}/bin/mpirun
REGX_MPICC=mpicc
REGX_PKGLIBDIR=/pkglib
REGX_COMPANION={tree}/bin/companion
REGX_PROBE={tree}/bin/probe
REGX_PYTHON=$(cat "{tree}/python-for-plots")
F
"""

# Stands in for mpirun and for the benchmark that it would start.
MPIRUN = '''\
#!{python}
import json, os, signal, sys, time
words = sys.argv[1:]
if words == ["--version"]:
    print("mpirun (Open MPI) 4.1.4")
    sys.exit(0)
mca, environment = {{}}, dict(os.environ)
for at, word in enumerate(words):
    if word == "--mca":
        mca[words[at + 1]] = words[at + 2]
    if word == "-x":
        name, _, value = words[at + 1].partition("=")
        environment[name] = value
mca.update((k[9:], v) for k, v in os.environ.items() if k.startswith("OMPI_MCA_"))
act = environment.get("ACT", "")
if "valgrind" in words:
    with open("{tree}/calls", "a") as calls:
        print(" ".join(words), file=calls)
    if act == "fail":
        print("-" * 70 + "\\nNo such thing as this BTL\\nwas found.\\n" + "-" * 70, file=sys.stderr)
        sys.exit(3)
    out = next(w for w in words if w.startswith("--callgrind-out-file=")).partition("=")[2]
    for rank in "01":
        for part in [""] + [f".{{n}}" for n in range(1, int(environment.get("PARTS", "65")) + 1)]:
            # Every fourth batch has something more.
            count = 0 if part in ("", ".1") else 1600 if part.endswith(("3", "7")) else 1584
            with open(out.replace("%q{{OMPI_COMM_WORLD_RANK}}", rank) + part, "w") as file:
                print(f"version: 1\\nevents: Ir\\nsummary: {{count}}\\n\\ntotals: 77", file=file)
        if "btl_regx_report" in mca and act != "no-report":
            with open(mca["btl_regx_report"], "a") as report:
                print(json.dumps({{"rank": int(rank), "transport": "uct", "bytes_eager": 9}}),
                      file=report)
    sys.exit(0)
if words[-1].endswith("/starting/ranks"):
    with open("{tree}/calls", "a") as calls:
        print(" ".join(words), file=calls)
    if act == "fail":
        print("-" * 70 + "\\nNo such thing as this BTL\\nwas found.\\n" + "-" * 70, file=sys.stderr)
        sys.exit(3)
    ranks = int(words[words.index("-n") + 1])
    at = len(open("{tree}/calls").readlines())
    for rank in range(ranks - (act == "silent rank")):
        print("startup", rank, 1000 * at + rank, 500, 2048)
        if "btl_regx_report" in mca and act != "no-report":
            with open(mca["btl_regx_report"], "a") as report:
                line = {{"rank": rank, "transport": "uct", "bytes_eager": 9, "bytes_shm": 9}}
                print(json.dumps(line), file=report)
    sys.exit(0)
program = next(w for w in words if os.path.basename(w).startswith(("osu_", "companion"))
               and os.path.dirname(w))
arguments = words[words.index(program) + 1:]
companion = program.endswith("companion")
name = arguments[0] if companion else os.path.basename(program)
latency = not name.endswith(("bw", "incast"))
ranks = int(words[words.index("-n") + 1])
with open("{tree}/calls", "a") as calls:
    print(" ".join(words), file=calls)
check = "-c" in arguments
if act == "hang" or (act == "hang when timed" and not check):
    open("{tree}/hanging", "w").write(str(os.getpid()))
    time.sleep(3600)
if act == "fail":
    print("-" * 70 + "\\nNo such thing as this BTL\\nwas found.\\n" + "-" * 70, file=sys.stderr)
    sys.exit(3)
first, last = map(int, arguments[arguments.index("-m") + 1].split(":"))
if act == "refuse":
    print("-" * 70 + "\\nNo components\\n" + "-" * 70, file=sys.stderr)
    print("[host:123] regx: btl_regx_chunk_size=4M is above the cap", file=sys.stderr)
    sys.exit(1)
if act == "old" and check and not companion:
    print("osu_bw: invalid option -- 'c'", file=sys.stderr)
    sys.exit(1)
print("# OSU MPI Test v7.0")
unit = "Latency (us)" if latency else "Bandwidth (MB/s)"
if name == "percentiles":
    unit = "p50 (us) p99 (us) p99.9 (us) max1000 (us)"
print("# Size " + unit + (" Validation" if check else ""))
size, wrong = first, act == "wrong" and check
while size <= last:
    value = size / 1000 if latency else float(environment.get("MBS", "1000"))
    if "STEPS" in environment:  # each call a step further
        value *= json.loads(environment["STEPS"])[len(open("{tree}/calls").readlines()) % 3]
    if name == "percentiles":
        value = "1 2 3 4"
    print(size, value, ("Fail" if wrong else "Pass") if check else "")
    size *= 2
for word in words:
    if word.startswith("COUNTS_FILE="):
        trips = int(arguments[arguments.index("-i") + 1])
        with open(word.partition("=")[2], "a") as counts:
            for _ in range(2):
                print(json.dumps({{"sends": 50 + 3 * trips, "send_calls": 9 + trips, "receives": 7,
                                  "receive_calls": 5, "registrations": 2}}), file=counts)
        sent = "{tree}/infiniband/mlx5_0/ports/1/hw_counters/sent_pkts"
        before = int(open(sent).read())
        open(sent, "w").write(str(before + 1000 + 4 * trips))
if "btl_regx_report" in mca and act != "no-report":
    path = environment.get("PATH_TAKEN", mca.get("btl_regx_rendezvous", "bounce"))
    carried = {{"eager": 1000, path: 10 ** 9}}
    for rank in range(ranks):
        backend = mca.get("btl_regx_backend", "none")
        transport = mca.get("btl_regx_transport", "uct")
        wire = environment.get("WIRE", "verbs" if transport == "verbs" else "shm")
        line = {{"rank": rank, "transport": transport, "backend": backend}}
        line["bytes_" + wire] = 2 * 10 ** 9
        if "HITS" in environment:
            line.update(hits=int(environment["HITS"]), registrations=5)
        line.update({{"bytes_" + path: count for path, count in carried.items()}})
        if "DECISIONS" in environment:
            line["decisions"] = json.loads(environment["DECISIONS"])
        if act == "fallback":
            line.update(messages_fallback=3, bytes_fallback=300, fallbacks={{"no slots": 3}})
        with open(mca["btl_regx_report"], "a") as report:
            print(json.dumps(line), file=report)
sys.exit(1 if wrong or (act == "end-badly" and not check) else 0)
'''

# The next number of the file "mailbox" is the next mailbox time; the last one stays.
PROBE = '''\
#!{python}
import sys
if sys.argv[1] == "mailbox":
    times = open("{tree}/mailbox").read().split()
    if len(times) > 1:
        open("{tree}/mailbox", "w").write(" ".join(times[1:]))
    print("# Size  Latency (us)\\n8 " + times[0])
else:
    assert sys.argv[1:3] == ["fastest", "-s"] and sys.argv[4] == "-m"
    first, last = map(int, sys.argv[5].split(":"))
    latency = sys.argv[3] == "latency"
    print("# Size " + ("Latency (us)" if latency else "Bandwidth (MB/s)"))
    while first <= last:
        print(first, first / 2000 if latency else 4000)
        first *= 2
'''

# The machine with an RDMA device: from then on there is one.
MACHINE = '''\
#!/bin/sh
echo "machine $*" >>"{tree}/calls"
mkdir -p "{tree}/infiniband/rxe0/ports/1"
echo "4: ACTIVE" >"{tree}/infiniband/rxe0/ports/1/state"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
'''

# Stands in for the programs of the registration benchmark. What a file with the subject's name
# says is printed, after the name and the call were noted.
SUBJECT = '''\
#!{python}
import os, sys, time
subject, metrics = sys.argv[1], sys.argv[2:]
with open("{tree}/calls", "a") as calls:
    print(os.path.basename(sys.argv[0]), *sys.argv[1:], file=calls)
if os.path.exists("{tree}/hangs"):
    open("{tree}/hanging", "w").write(str(os.getpid()))
    time.sleep(3600)
if os.path.exists("{tree}/cannot-" + subject):
    print("a library says something", file=sys.stderr)
    print("registration: " + subject + ": it is not there", file=sys.stderr)
    sys.exit(3)
value = {{"hooks": 10, "notifier": 200, "notifier-never": 20, "ucs_rcache": 40, "grdma": 50}}
print("hit_1", value.get(subject, 12))
if os.path.exists("{tree}/breaks-" + subject):
    print("registration: hit_1: 3 were not hits", file=sys.stderr)
    sys.exit(1)
print("null_call", 100)
print("a line of a library")
print("many_bare", 1000)
print("many_unmapped", 1100 if subject == "notifier" else 1000)
print("unmap_unwatched", 6 if subject == "none" else 9)
'''


# Rows of a comparison, two of which can be made to misbehave.
ROWS = """\
[defaults]
benchmark = osu_bw
sizes = 64K:256K
options = -i 5 -x 1
[bounce]
mca = --mca pml ob1 --mca btl regx --mca btl_regx_rendezvous bounce
environment = MBS=3000
[vader]
mca = --mca pml ob1 --mca btl vader,self
environment = MBS=2000
"""


def runs_of(document: dict, strategy: str) -> list[dict]:
    return [run for run in document["runs"] if run["arm"]["strategy"] == strategy]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def stopped(tree: "Tree", arguments: list[str],
            number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """What that command says if it is told to stop once a stand-in hangs."""
    hanging = tree.path / "hanging"
    process = subprocess.Popen(arguments, env=tree.environment, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        end = time.monotonic() + WATCHDOG
        while not (hanging.exists() and hanging.read_text()):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=WATCHDOG)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


def built(folder: Path, name: str) -> Installation:
    """For tests that run a program of osu-configs for real: NAME.c compiled, and nothing of regx."""
    program = folder / name
    program.parent.mkdir()
    subprocess.run(["mpicc", "-O2", TOP / f"osu-configs/{name}.c", "-o", program], check=True,
                   timeout=WATCHDOG)  # fmt: skip
    return Installation(component=folder, mpirun="mpirun", pkglibdir="",
                        companion=folder / "companion", probe=folder, python="python3",
                        openmpi=(4, 1, 4))  # fmt: skip


@dataclass
class Tree:
    """A copy of osu-configs with stand-ins around it."""

    path: Path

    def write(self, name: str, text: str, executable: bool = False) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if executable:
            file.chmod(0o755)
        return file

    def command(self, *arguments: object, tool: str = "compare") -> list[str]:
        return [str(self.path / "osu-configs" / tool), *map(str, arguments)]

    @property
    def environment(self) -> dict[str, str]:
        """Without a benchmark that happens to be on this machine."""
        folders = [f for f in os.environ["PATH"].split(":") if not (Path(f) / "osu_bw").exists()]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OSU_", "OMPI_"))}
        return {**kept, "PATH": ":".join(folders)}

    def run(
        self, *arguments: object, tool: str = "compare", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments, tool=tool),
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=WATCHDOG,
            check=False,
        )

    def run_rows(
        self, tool: str, rows: str, *arguments: object
    ) -> subprocess.CompletedProcess[str]:
        return self.run("-f", self.write("rows.conf", rows), *arguments, tool=tool)

    def compare(
        self, configuration: str, *arguments: object
    ) -> tuple[subprocess.CompletedProcess[str], dict]:
        """Run with OSU on these rows; the process and what results.json says."""
        file = self.write("rows.conf", configuration)
        output = self.path / "output"
        done = self.run("-f", file, "--osu", self.path / "osu", "--output", output, *arguments)
        return done, json.loads((output / "results.json").read_text())

    def has_device(self) -> None:
        port = "infiniband/mlx5_0/ports/1"
        self.write(f"{port}/state", "4: ACTIVE\n")
        self.write(f"{port}/hw_counters/sent_pkts", "77\n")

    def calls(self) -> list[str]:
        return (self.path / "calls").read_text().splitlines()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    result = Tree(tmp_path / "tree")
    shutil.copytree(
        TOP / "osu-configs",
        result.path / "osu-configs",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    places = {"tree": result.path, "python": sys.executable}
    result.write("component/config/setup", SETUP.format(**places), executable=True)
    result.write("bin/mpirun", MPIRUN.format(**places), executable=True)
    result.write("test/machine/run", MACHINE.format(**places), executable=True)
    rdma = result.path / "osu-configs/comparing/rdma.py"
    rdma.write_text(rdma.read_text().replace("/sys/class/infiniband", f"{result.path}/infiniband"))
    result.write("bin/probe", PROBE.format(**places), executable=True)
    for program in ("regx", "ucx", "grdma"):
        result.write(f"bin/registering/{program}", SUBJECT.format(**places), executable=True)
    for program in ("bin/companion", "osu/osu_bw", "osu/osu_latency", "osu/osu_bibw",
                    "osu/osu_allreduce"):  # fmt: skip
        result.write(program, "#!/bin/sh\nexit 99\n", executable=True)
    result.write("mailbox", "0.25")
    result.write("python-for-plots", "false")  # drawing takes longer than all the rest
    return result
