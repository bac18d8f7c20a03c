# SPDX-License-Identifier: BSD-3-Clause
"""regx's reports: JSON lines, one per rank, as btl_regx_report=FILE has them written."""

import json
from pathlib import Path

from comparing.trouble import Trouble

WIRES = ("shm", "tcp", "verbs")

# Beside the high waters: of these the largest of all ranks, not the sum.
LARGEST = ("largest_registration", "peers")


def read(files: list[Path]) -> list[dict]:
    """The lines of all files. Trouble names the file and the line that is none."""
    reports = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise Trouble(f"{file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise Trouble(f"{file}: cannot be read: not a text file") from None
        for number, line in enumerate(text.splitlines(), 1):
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
        named_counts = isinstance(value, dict) and all(map(_is_count, value.values()))
        if not (named_counts or _is_count(value) or isinstance(value, str)):
            raise Trouble(f'{where}: malformed: "{key}" is neither a count nor a name')
    return report


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def add(reports: list[dict]) -> dict:
    """Over the ranks: sums of counters, the largest of high waters, the sorted set of names."""
    total: dict = {}
    for report in reports:
        for key, value in report.items():
            if isinstance(value, dict):
                into = total.setdefault(key, {})
                for name, count in value.items():
                    into[name] = into.get(name, 0) + count
            elif isinstance(value, str) or key == "rank":
                total.setdefault(key, set()).add(value)
            elif key.endswith("_high") or key in LARGEST:
                total[key] = max(total.get(key, 0), value)
            else:
                total[key] = total.get(key, 0) + value
    for key, value in total.items():
        if isinstance(value, set):
            total[key] = sorted(value)
    return total


def paths(total: dict) -> list[str]:
    """The paths that a report, or a sum of reports, has bytes of, in its order."""
    bytes_of = [key.removeprefix("bytes_") for key in total if key.startswith("bytes_")]
    return [name for name in bytes_of if name not in WIRES]


def is_trial(reason: str) -> bool:
    """Of auto's decisions: made to find out, and not the outcome."""
    return reason.endswith("on trial")


def chosen(decisions: dict[str, int]) -> str | None:
    """The strategy that auto chose for most messages. Its reasons begin with the path's name."""
    counts: dict[str, int] = {}
    for reason, count in decisions.items():
        path, colon, _ = reason.partition(":")
        if colon and not is_trial(reason):
            counts[path] = counts.get(path, 0) + count
    return max(counts, key=lambda path: counts[path]) if any(counts.values()) else None


def pin(strategy: str) -> str:
    """What makes every job take it."""
    return f"--mca btl_regx_rendezvous {strategy}"


def render(reports: list[dict], files: int) -> str:
    """A table: what ran, then what went over which path, then every counter that is not 0."""
    total = add(reports)
    # A file may hold several jobs, whose ranks have the same numbers.
    counts = {"rank": len(total["rank"]), "report": len(reports), "file": files}
    lines = [", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in counts.items())]
    for key, value in total.items():
        if isinstance(value, list) and key != "rank":
            shown = [v for v in value if v]
            if shown:
                lines.append(f"{key:<22} {', '.join(shown)}")
    lines += ["", f"{'path':<12}{'messages':>16}{'bytes':>22}"]
    by_path = [f"{what}_{path}" for path in paths(total) for what in ("messages", "bytes")]
    for path in paths(total):
        messages, count = total.get(f"messages_{path}", 0), total.get(f"bytes_{path}", 0)
        if messages or count:
            lines.append(f"{path:<12}{messages:>16,}{count:>22,}")
    lines.append("")
    for key, value in total.items():
        if isinstance(value, int) and value and key not in by_path:
            lines.append(f"{key:<28}{value:>22,}")
        elif isinstance(value, dict) and value:
            lines.append(key)
            lines += [f"  {name:<26}{count:>22,}" for name, count in sorted(value.items())]
    if strategy := chosen(total.get("decisions", {})):
        lines.append(f"to pin auto's choice, {strategy}: {pin(strategy)}")
    for choice in total.get("auto_choice", []):
        if choice != "none":
            lines.append(f"to pin what a rank found by size: --mca btl_regx_auto_choice {choice}")
    return "\n".join(lines)
