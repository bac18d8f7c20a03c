# SPDX-License-Identifier: BSD-3-Clause
"""regx's reports, JSON lines, one per rank, as btl_regx_report=FILE has them written; and what they
prove of the path that a run's bytes took.

Messages up to the eager limit go eagerly, or in a few fragments, in every strategy; what is above
must go on the strategy's path and on no other, and nothing may have fallen back.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.sizes import show
from tools.trouble import Trouble, told

WIRES = ("shm", "verbs", "pinned")
SMALL = ("eager", "frag")
SAME = ("peers", "from", "to", "way", "wire", "backend", "why")  # of a row of `explain`
RENDEZVOUS_ABOVE = 32 << 10
OWN_SHARE = 0.99  # MPI's own messages, about each that it carries, take less than the rest
# What became of the buffers: shown where backends are compared.
COUNTS = ("hits", "misses", "uncached", "registrations", "registering_us", "registered_high", "evictions",
          "invalidations", "messages_fallback")  # fmt: skip


def read(files: Sequence[Path]) -> list[dict]:
    """The lines of all files. Trouble names the file and the line that is none."""
    reports = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Trouble(f"{file}: cannot be read: not a text file") from None
        for number, line in enumerate(lines, 1):
            if line.strip():
                reports.append(_line(line, f"{file}:{number}"))
    return reports


def _line(line: str, where: str) -> dict:
    try:
        report = json.loads(line)
    except json.JSONDecodeError as error:
        raise Trouble(f"{where}: malformed: {error.msg} at column {error.colno}") from None
    if not isinstance(report, dict) or not _is_count(report.get("rank")):
        raise Trouble(f'{where}: malformed: not a report of regx (an object with a "rank")')
    for key, value in report.items():
        counts = isinstance(value, dict) and all(map(_is_count, value.values()))
        rows = key == "explain" and isinstance(value, list) and all(map(_is_row, value))
        if not (counts or rows or _is_count(value) or isinstance(value, str)):
            raise Trouble(f'{where}: malformed: "{key}" is neither a count nor a name')
    return report


def _is_row(value: object) -> bool:
    return isinstance(value, dict) and {*SAME, "messages", "bytes", "MB/s"} <= {*value}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def add(reports: list[dict]) -> dict:
    """Over the ranks: sums of counters, the largest of high waters, the sorted names."""
    total: dict = {}
    for key in dict.fromkeys(key for report in reports for key in report):
        values = [report[key] for report in reports if key in report]
        if isinstance(values[0], list):
            total[key] = _add_rows([row for value in values for row in value])
        elif isinstance(values[0], dict):
            total[key] = {name: sum(value.get(name, 0) for value in values)
                          for name in dict.fromkeys(name for value in values for name in value)}
        elif isinstance(values[0], str) or key == "rank":
            total[key] = sorted(set(values))
        else:
            largest = key.endswith("_high") or key == "peers"
            total[key] = max(values) if largest else sum(values)
    return total


def _add_rows(rows: list[dict]) -> list[dict]:
    """What went the same way in several ranks is one row; the highest speed is shown."""
    total: dict[tuple, dict] = {}
    for row in rows:
        known = total.setdefault(tuple(row[key] for key in SAME), {**row, "messages": 0, "bytes": 0, "MB/s": 0})
        known["MB/s"] = max(known["MB/s"], row["MB/s"])
        for key in ("messages", "bytes"):
            known[key] += row[key]
    return sorted(total.values(), key=lambda row: (row["peers"] != "this node", row["from"]))


def explained(total: dict) -> list[str]:
    """As btl_regx_explain prints it: which way messages went, and why."""
    lines = [f"{'peers':<9}{'from bytes':>11}{'to':>11}  {'way':<9}{'wire':<6}{'backend':<15}{'messages':>11}"
             f"{'bytes':>16}{'MB/s':>9}  why"]
    for row in total.get("explain", []):
        lines.append(f"{row['peers']:<9}{row['from']:>11}{row['to']:>11}  {row['way']:<9}{row['wire']:<6}"
                     f"{row['backend']:<15}{row['messages']:>11}{row['bytes']:>16}{row['MB/s']:>9}  {row['why']}")
    return lines


def choices(total: dict) -> dict[str, int]:
    """Of auto, by reason."""
    found: dict[str, int] = {}
    for row in total.get("explain", []) if total.get("rendezvous") == ["auto"] else []:
        if row["way"] not in SMALL:
            reason = f"{row['way']}: {row['why']}"
            found[reason] = found.get(reason, 0) + row["messages"]
    return found


def paths(total: dict) -> dict[str, int]:
    """The bytes of each path, in the report's order."""
    return {key.removeprefix("bytes_"): count for key, count in total.items()
            if key.startswith("bytes_") and key.removeprefix("bytes_") not in WIRES}


# ---- the path


@dataclass(frozen=True)
class Proof:
    problem: str  # empty: proven
    wire: str = ""
    backend: str = ""
    counts: dict[str, int] = field(default_factory=dict)  # of COUNTS, both ranks added up
    decisions: dict[str, int] = field(default_factory=dict)  # of auto, by reason


@dataclass(frozen=True)
class Claim:
    """What a row says of a job: as btl_regx_rendezvous and so on name them. large: the share of its bytes that were
    sent in messages of more than RENDEZVOUS_ABOVE; 0 where MPI makes others of them."""

    strategy: str
    large: float
    backend: str = "auto"
    transport: str = "auto"
    ranks: int = 2
    one_sided: bool = False


def prove(file: Path, claim: Claim) -> Proof:
    try:
        reports = read([file]) if file.exists() else []
    except Trouble as trouble:
        return Proof(f"path not proven: {trouble}")
    told = len({line["rank"] for line in reports})
    if told != claim.ranks:
        return Proof(f"path not proven: regx reported for {told} of {claim.ranks} ranks")
    total = add(reports)
    if "registering_ns" in total:
        total["registering_us"] = total["registering_ns"] // 1000
    problem = _problem(total, claim)
    return Proof(
        problem=f"path not proven: {problem}" if problem else "",
        wire="+".join(wire for wire in WIRES if total.get(f"bytes_{wire}")),
        backend=", ".join(total.get("backend", [])),
        counts={name: total[name] for name in COUNTS if name in total},
        decisions=choices(total))


def _problem(total: dict, claim: Claim) -> str:
    moved = paths(total)
    fell, everything = moved.pop("fallback", 0), sum(moved.values())
    if fell or total.get("messages_fallback"):
        why = ", ".join(f"{reason} {n}" for reason, n in sorted(total.get("fallbacks", {}).items()))
        return f"{total.get('messages_fallback', 0)} messages ({show(fell)}) fell back: {why}"
    large = {path: count for path, count in moved.items() if path not in SMALL and count}
    named = sum(large.values()) if claim.strategy == "auto" else moved.get(claim.strategy, 0)
    others = large if claim.strategy != "auto" else {}
    others.pop(claim.strategy, None)
    if others:
        return f"{claim.strategy} carried {show(named)}, but also {_amounts(others)}"
    if everything == 0:
        return "regx carried nothing"
    if named < OWN_SHARE * claim.large * everything:
        small = {path: moved.get(path, 0) for path in SMALL}
        return f"{claim.strategy} carried only {show(named)}; {_amounts(small)}"
    used = ", ".join(total.get("backend", []))
    if claim.one_sided and not any(count for key, count in total.items()
                                   if key.startswith("onesided") and isinstance(count, int)):
        return "regx carried no operation on a window"
    if claim.backend not in ("auto", used):
        return f"the backend was {used or 'none that was reported'}, not {claim.backend}"
    over = {wire: total.get(f"bytes_{wire}", 0) for wire in WIRES}
    if claim.transport == "verbs" and (over["verbs"] < everything or over["shm"]):
        return f"{show(everything)} were to go over verbs; the wires carried {_amounts(over)}"
    if claim.transport == "pinned" and claim.strategy not in ("auto", "bounce") and over["pinned"] < named:
        return f"{show(named)} were to go over pinned; the wires carried {_amounts(over)}"
    return ""


def _amounts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {show(count)}" for name, count in counts.items())


# ---- as a table


def render(reports: list[dict]) -> str:
    """What ran, then what went over which path, then every counter that is not 0."""
    if not reports:
        raise Trouble("no line in these files", 1)
    total = add(reports)
    lines = [f"{len(reports)} reports of {len(total['rank'])} ranks"]
    lines += [f"{key:<22} {', '.join(filter(None, value))}" for key, value in total.items()
              if isinstance(value, list) and key not in ("rank", "explain") and any(value)]
    lines += ["", f"{'path':<12}{'messages':>16}{'bytes':>22}"]
    for path, count in paths(total).items():
        messages = total.pop(f"messages_{path}", 0)
        total.pop(f"bytes_{path}")
        if messages or count:
            lines.append(f"{path:<12}{messages:>16,}{count:>22,}")
    lines += ["", *explained(total), ""]
    for key, value in total.items():
        if isinstance(value, int) and value:
            lines.append(f"{key:<28}{value:>22,}")
        elif isinstance(value, dict) and value:
            lines += [key, *(f"  {name:<26}{n:>22,}" for name, n in sorted(value.items()))]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="report", description="Add up the counters that regx wrote with"
                                     " btl_regx_report=FILE, over ranks, and print them.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    return told("report", lambda: print(render(read(parser.parse_args().files))) or 0)
