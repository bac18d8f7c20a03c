# SPDX-License-Identifier: BSD-3-Clause
"""The table: for each size, a line for each arm."""

from comparing.environment import identity_line
from comparing.size import show
from counting.message import COUNTS, Message

TITLES = ("packets", "requests sent", "doorbells", "receives posted", "in calls", "registrations",
          "system calls")  # fmt: skip
MISSING = "-"


def render(messages: list[Message], about: dict[str, str]) -> str:
    """about: as identity() says it."""
    lines = ["Per message, both ranks together, buffers used again; from two runs' difference.", ""]
    for size in dict.fromkeys(message.size for message in messages):
        of_size = [message for message in messages if message.size == size]
        rows = [[show(size), *TITLES]]
        rows += [[message.arm, *cells(message)] for message in of_size]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            first, *rest = (cell.rjust(width) for cell, width in zip(row, widths))
            lines.append("  ".join([row[0].ljust(len(first)), *rest]).rstrip())
        lines.append("")
    for message in messages:
        what = message.failed or message.problem
        if what:
            mark = "FAILED" if message.failed else "Path (?)"
            lines.append(f"{mark}: {message.arm}, {show(message.size)}: {what}")
    proven = [message for message in messages if message.carried and not message.problem]
    lines.append(f"Path: of {len(proven)} cells regx's report proves the path that the row names.")
    lines.append("Doorbells: calls that post what is to be sent. System calls: without those made"
                 " while waiting (epoll_wait, sched_yield and so on).")  # fmt: skip
    return "\n".join([*lines, "", identity_line(about)])


def cells(message: Message) -> list[str]:
    texts = [f"{message.counts[name]:.2f}" if name in message.counts else MISSING
             for name in COUNTS]  # fmt: skip
    if message.problem:
        texts[0] += " ?"
    return texts
