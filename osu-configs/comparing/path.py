# SPDX-License-Identifier: BSD-3-Clause
"""The path: whether regx carried the bytes of a run on the way that the row names.

The proof is regx's own report. Messages up to the eager limit go eagerly, or in a few fragments,
in every strategy; what is above must go on the strategy's path and on no other, and nothing may
have fallen back. Data that is not contiguous, or sent by MPI_Bsend, goes in fragments.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from comparing import report
from comparing.size import show
from comparing.trouble import Trouble

SMALL = ("eager", "frag")
RENDEZVOUS_ABOVE = 16 << 10
# OSU does ten times as many iterations of small messages as of large ones, and regx's own messages
# count among the small ones.
SMALL_WEIGHT = 12
OWN_SHARE = 0.99  # MPI's own messages, about each that it carries, take less than the rest
FRAGMENTED = re.compile(r"strided:|buffered")
FRAGMENT_SHARE = 0.93  # of 64 KiB or more, without the 4 KiB that go ahead


# What became of the buffers, in the report's words; both ranks added up.
ONE_SIDED = ("onesided_puts", "onesided_gets", "onesided_atomics")
COUNTS = ("hits", "misses", "uncached", "registrations", "evictions", "invalidations",
          "messages_fallback")  # fmt: skip


@dataclass(frozen=True)
class Proof:
    problem: str | None  # None: proven
    carried: str = ""  # what went where, in words
    transport: str = ""
    backend: str = ""
    counts: dict[str, int] = field(default_factory=dict)  # of COUNTS
    decisions: dict[str, int] = field(default_factory=dict)  # of auto, by reason


def prove(
    file: Path,
    strategy: str,
    sizes: list[int],
    backend: str = "auto",
    transport: str = "auto",
    ranks: int = 2,
    one_sided: bool = False,
) -> Proof:
    """strategy, backend, transport: as btl_regx_rendezvous and so on name them, or strategy "frag";
    sizes: of the messages of the run; none: not known, and nothing follows from them; one_sided: it
    is operations on windows that regx must have carried."""
    try:
        reports = report.read([file]) if file.exists() else []
    except Trouble as trouble:
        return Proof(f"path not proven: {trouble}")
    told = len({line["rank"] for line in reports})
    if told != ranks:
        return Proof(f"path not proven: regx reported for {told} of {ranks} ranks")
    total = report.add(reports)
    moved = {path: _bytes(total, path) for path in report.paths(total) if path != "fallback"}
    carried = ", ".join(f"{path} {_amount(count)}" for path, count in moved.items() if count)
    share = FRAGMENT_SHARE if strategy == "frag" else OWN_SHARE
    problem = _problem(total, moved, strategy, share * _large_share(sizes))
    used = ", ".join(total.get("backend", []))
    if not problem and one_sided and not any(total.get(name) for name in ONE_SIDED):
        problem = "regx carried no operation on a window"
    if not problem and backend not in ("auto", used):
        problem = f"the backend was {used or 'none that was reported'}, not {backend}"
    if not problem and transport == "verbs":
        problem = _beside_verbs(total, sum(moved.values()))
    return Proof(
        problem=f"path not proven: {problem}" if problem else None,
        carried=carried or "nothing",
        transport=_transport(total),
        backend=used,
        counts={name: total[name] for name in COUNTS if name in total},
        decisions=total.get("decisions", {}),
    )


def _large_share(sizes: list[int]) -> float:
    """The share of a run's bytes in messages that do not go eagerly."""
    small = sum(size for size in sizes if size <= RENDEZVOUS_ABOVE)
    large = sum(size for size in sizes if size > RENDEZVOUS_ABOVE)
    if not sizes:
        return 0
    return large / (large + SMALL_WEIGHT * small)


def _problem(total: dict, moved: dict[str, int], strategy: str, least: float) -> str | None:
    fell = total.get("messages_fallback", 0)
    if fell or _bytes(total, "fallback"):
        reasons = total.get("fallbacks", {})
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        return f"{fell} messages ({_amount(_bytes(total, 'fallback'))}) fell back" + (
            f": {why}" if why else ""
        )
    large = {path: count for path, count in moved.items() if path not in SMALL}
    if strategy == "auto":
        named, others = sum(large.values()), {}
    else:
        named = large.pop(strategy, moved.get(strategy, 0))
        others = {path: count for path, count in large.items() if count}
    if others:
        instead = ", ".join(f"{path} {_amount(count)}" for path, count in others.items())
        return f"{strategy} carried {_amount(named)}, but also {instead}"
    everything = sum(moved.values())
    if everything == 0:
        return "regx carried nothing"
    if named < least * everything:
        small = ", ".join(f"{path} {_amount(moved.get(path, 0))}" for path in SMALL)
        return f"{strategy} carried only {_amount(named)}; {small}"
    return None


def _beside_verbs(total: dict, everything: int) -> str | None:
    """The wire's own count of bytes: no less than the messages', and none on another wire."""
    over = {wire: _bytes(total, wire) for wire in report.WIRES}
    if over.pop("verbs") >= everything and not any(over.values()):
        return None
    wires = ", ".join(f"{wire} {_amount(_bytes(total, wire))}" for wire in report.WIRES)
    return f"{_amount(everything)} were to go over verbs; the wires carried {wires}"


def _bytes(total: dict, path: str) -> int:
    return int(total.get(f"bytes_{path}", 0))


def _transport(total: dict) -> str:
    """The transport by name, and the wires that carried bytes: uct/shm."""
    wires = "+".join(wire for wire in report.WIRES if total.get(f"bytes_{wire}"))
    return "+".join(total.get("transport", [])) + (f"/{wires}" if wires else "")


def _amount(count: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return show(count)
