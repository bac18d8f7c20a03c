# SPDX-License-Identifier: BSD-3-Clause
"""The table: all blocks, what they add up to, and what a reader must know beside the figures."""

from comparing import load, osu, report, summary
from comparing.block import WIDE_FROM, Block, blocks
from comparing.path import COUNTS
from comparing.phase import MIXED
from comparing.result import CAME_BACK, REFERENCE, REGX, Results
from comparing.size import show

REGISTERS_FOR_FREE = ("uct",)  # transports; processes of a node copy from one another


def render(results: Results, width: int) -> str:
    lines: list[str] = []
    found = blocks(results)
    for block in found:
        lines += block.render(width) + [""]
    if found:
        repetitions = max(run.repetition for run in results.runs)
        lines += [
            f"Medians of up to {repetitions} runs, below them min-max; where there is none, of one."
            "  x: relative to the best peer (*) of the same size and phase.",
        ]
        if any(arm.kind == REFERENCE for arm in results.arms):
            lines.append(
                "reference: the same movement by two processes without MPI, run beside each arm; no"
                " bound.  %: what regx's best strategy reaches of the runs beside its own."
            )
    lines += _doubts(found)
    compared = summary.render(found, width)
    if compared:
        lines += ["", *compared, ""]
    return "\n".join(lines + notes(results))


def _doubts(found: list[Block]) -> list[str]:
    """What the runs do not show, for all that their medians differ."""
    lines = []
    ratios = [
        (block, arm, size)
        for block in found
        for arm in block.arms
        for size in block.sizes
        if arm.kind == REGX and block.ratio(arm, size) is not None
    ]
    same = [cell for cell in ratios if not Block.is_told_apart(*cell)]
    if same:
        lines.append(
            f"~ Not told apart: in {len(same)} of {len(ratios)} ratios the runs of regx and of the"
            " best peer overlap."
        )
    measured = [
        (block.spread(arm, size), block, arm, size)
        for block in found
        for arm in block.arms
        for size in block.sizes
        if arm.kind != REFERENCE and len(block.values(arm, size)) > 1
    ]
    wide = [cell for cell in measured if cell[0] > WIDE_FROM]
    if wide:
        spread, block, arm, size = max(wide, key=lambda cell: cell[0])
        lines.append(
            f"! Spread: {len(wide)} of {len(measured)} cells vary by more than"
            f" {100 * WIDE_FROM:.0f} % of their median from run to run, most of all {arm.strategy}"
            f" {block.name()} at {show(size)}, by {100 * spread:.0f} %."
        )
    return lines


def notes(results: Results) -> list[str]:
    """What a reader must know beside the figures, in plain words; wrong data first."""
    lines = []
    for check in results.checks:
        if check.wrong:
            by = f"{check.checked_by} -c"
            lines.append(f"WRONG DATA: {check.arm}: {by} received other bytes than were sent")
    checked = [c for c in results.checks if not c.wrong and not c.failed]
    if checked:
        rows = f"{len(checked)} of {len(results.checks)} rows"
        by = ", ".join(sorted({check.checked_by for check in checked}))
        lines.append(f"Content checked: {rows}, by {by} -c.")
    lines += [
        f"Content not checked: {name}: {reason}."
        for name, benchmark in osu.BENCHMARKS.items()
        if (reason := benchmark.unchecked) and any(arm.benchmark == name for arm in results.arms)
    ]
    lines += _auto_notes(results)
    failures = {arm: failed for arm in results.arms if (failed := results.failure(arm))}
    lines += [f"FAILED: {arm}: {failed}" for arm, failed in failures.items()]
    if results.left_out:
        lines.append(f"Left out, for there is no OSU here: {', '.join(results.left_out)}.")
    if results.memory_not_heeded:
        lines.append(
            "memory and swap are those of this machine, and not what these rows ask for, without"
            f" --rdma: {', '.join(results.memory_not_heeded)}."
        )
    lines += _path_notes(results)
    lines += _registration_notes(results)
    lines += _paging_notes(results)
    if any(CAME_BACK in run.counts for run in results.runs):
        lines.append(
            f"{CAME_BACK}: buffers that malloc gave again with their pages, of both ranks. With freed"
            " buffers every hit is by such memory: one for each chunk of a message, at either end."
        )
    for run in results.executions():
        if run.phase == MIXED and not run.failed and run.arm.kind != REFERENCE:
            before, after = run.mailbox
            moved = f" from {before:.2f} to {after:.2f} us" if before and after else ""
            lines.append(
                f"Phase: {run.arm}, run {run.repetition}: the mailbox moved{moved}, in the last of"
                f" {run.attempts} attempts too."
            )
    lines += load.notes([run.others for run in results.executions()])
    if results.interrupted:
        lines.append(f"INTERRUPTED: {len(results.executions())} runs were complete.")
    if results.source:
        lines.append(
            f"From {results.source}: what was checked, and what failed, stands in the table of then."
        )
    return lines


def _auto_notes(results: Results) -> list[str]:
    """What auto chose, how to pin it, and whether that was checked and not only tried."""
    lines = []
    for check in results.checks:
        outcomes = [reason for reason in check.decisions if not report.is_trial(reason)]
        if check.decisions and not check.failed and not outcomes:
            lines.append(
                f"Content checked in trials alone: {check.arm}: auto had not chosen yet:"
                f" {_decisions(check.decisions)}"
            )
    for arm in results.arms:
        total: dict[str, int] = {}
        for run in results.executions():
            if run.arm == arm:
                for reason, count in run.decisions.items():
                    total[reason] = total.get(reason, 0) + count
        if not total:
            continue
        line = f"Choice: {arm}: {_decisions(total)}"
        if strategy := report.chosen(total):
            line += f"; to pin {strategy}: {report.pin(strategy)}"
        lines.append(line)
    return lines


def _decisions(decisions: dict[str, int]) -> str:
    outcomes = {name: n for name, n in decisions.items() if not report.is_trial(name)}
    by_count = sorted(outcomes.items(), key=lambda item: -item[1])
    trials = sum(decisions.values()) - sum(outcomes.values())
    shown = [f"{reason} ({count:,})" for reason, count in by_count]
    return ", ".join(shown + ([f"on trial ({trials:,})"] if trials else []))


def _registration_notes(results: Results) -> list[str]:
    """Where backends are compared: what the figures can tell, and what they cannot."""
    if not any(block.compares_backends() for block in blocks(results)):
        return []
    lines = [
        f"{', '.join(COUNTS)}: in one run over all sizes, of both ranks, warm-up included.",
    ]
    free = {run.transport for run in results.runs if run.arm.kind == REGX and run.transport}
    free = {name for name in free if name.partition("/")[0] in REGISTERS_FOR_FREE}
    if free:
        lines.append(
            f"Registering costs NOTHING on {', '.join(sorted(free))}: the times above show what a"
            " backend itself costs, not what it saves."
        )
        lines.append(
            "What it saves where memory is really pinned is the registrations that it avoids:"
            " compare these lines of the table."
        )
    return lines


def _paging_notes(results: Results) -> list[str]:
    if not any(block.has_paged() for block in blocks(results)):
        return []
    return [
        "major_faults, swapped_in and swapped_out (pages), killed (processes, for lack of memory): of"
        " the whole node while the run lasted."
    ]


def _path_notes(results: Results) -> list[str]:
    executions = results.executions()
    proven = [run for run in executions if run.arm.kind == REGX and run.carried]
    unproven = [run for run in (*executions, *results.checks) if run.problem]
    lines = []
    if proven and not unproven:
        lines.append(
            f"Path: in all {len(proven)} runs regx's report proves the path that the row names."
        )
    said = set()
    for outcome in unproven:
        note = f"Path: {outcome.arm} (?): {outcome.problem}"
        if note not in said:
            said.add(note)
            lines.append(note)
    return lines
