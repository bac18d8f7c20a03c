# SPDX-License-Identifier: BSD-3-Clause
"""A small job over regx. What it says of itself is what the doctor knows of regx."""
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List

from .openmpi import Answer, OpenMpi, ask


@dataclass
class Job:
    answer: Answer
    lines: List[str]  # what regx said to users
    traces: List[str]  # and to who traces its choice
    reports: List[Dict[str, Any]]  # one for each rank
    ranks: int

    @property
    def right(self) -> bool:
        """Every byte was right, and every rank used regx. What mpirun's status says of what came after is
        in `ending`."""
        return "bytes were right" in self.answer.stdout and len(self.reports) == self.ranks

    @property
    def was_loaded(self) -> bool:
        """Open MPI found regx, whatever it then did."""
        return bool(self.lines or self.traces)

    @property
    def ending(self) -> str:
        status = self.answer.status
        return "" if status == 0 else f"; mpirun then ended with status {status} ({self.answer.said})"

    @property
    def why_not(self) -> str:
        if self.answer.status is None:
            return "it did not end in time" + "".join(f"; {line}" for line in self.lines)
        if self.lines:
            return "; ".join(self.lines)
        return self.answer.said if self.answer.status != 0 else "regx was not used"

    def total(self, counter: str) -> int:
        return sum(report.get(counter, 0) for report in self.reports)

    def tallies(self, key: str) -> Dict[str, int]:
        """The reasons that all ranks counted under that key of the report."""
        sums: Dict[str, int] = {}
        for report in self.reports:
            for reason, count in report.get(key, {}).items():
                sums[reason] = sums.get(reason, 0) + count
        return sums


def _unique(lines: List[str]) -> List[str]:
    return list(dict.fromkeys(lines))


def _report(text: str) -> List[Dict[str, Any]]:
    reports = []
    for line in text.splitlines():
        try:
            reports.append(json.loads(line))
        except ValueError:
            pass  # a rank that died in the middle of it
    return reports


def run(openmpi: OpenMpi, exchange: str, ranks: int, btl: str, patience: float, **regx: str) -> Job:
    """With parameters of regx beyond what this site has set."""
    folder = Path(tempfile.mkdtemp(prefix="regx-doctor."))
    try:
        report = folder / "report"
        settings = {"pml": "ob1", "btl": btl, "btl_base_verbose": "10",
                    "mca_base_component_show_load_errors": "1", "mpi_yield_when_idle": "1",
                    "btl_regx_enable": "1", "btl_regx_report": str(report)}
        settings.update({f"btl_regx_{name}": value for name, value in regx.items()})
        words = [str(openmpi.mpirun), "-n", str(ranks), "--oversubscribe"]
        for name, value in settings.items():
            words += ["--mca", name, value]
        # Jobs of Open MPI 4.1 that start at the same time can trip over each other's folders.
        answer = ask([*words, exchange], {**openmpi.environment, "TMPDIR": str(folder)}, patience)
        said = answer.stderr.splitlines()
        written = report.read_text(errors="replace") if report.exists() else ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    traces = [found[1] for found in (re.search(r"btl:regx: (.*)", line) for line in said) if found]
    lines = [found[1] for found in (re.match(r"(?:\[[^]]*\] )?regx: (.*)", line) for line in said)
             if found]
    return Job(answer, _unique(lines), _unique(traces), _report(written), ranks)
