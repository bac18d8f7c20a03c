# SPDX-License-Identifier: BSD-3-Clause
"""The files that counts leaves, results.csv, results.json and table.txt; and a results.csv read again."""

import dataclasses
from pathlib import Path

from comparing import output, record
from comparing.environment import IDENTITY, identity
from counting import table
from counting.message import COUNTS, Message

COLUMNS = ("arm", "size", "count", "value", "attempt", "carried", "problem", "failed")
ATTEMPT = 1  # no phase of the machine moves a count: none is made again


def write(folder: Path, messages: list[Message], environment: dict) -> None:
    about = identity(environment)
    rows = (
        (message.arm, message.size, name, value, ATTEMPT, message.carried, message.problem,
         message.failed, *about.values())
        for message in messages
        for name, value in (message.counts or {"": ""}).items()  # what failed has a line too
    )  # fmt: skip
    output.replace_csv(folder / "results.csv", (*COLUMNS, *IDENTITY), rows)
    document = {
        "environment": environment,
        "messages": [dataclasses.asdict(message) for message in messages],
    }
    output.replace_json(folder / "results.json", document)
    output.replace(folder / "table.txt", table.render(messages, about) + "\n")


def read(file: Path) -> tuple[list[Message], dict[str, str]]:
    """With what identity() says."""
    records, about = record.read_table(file, "counts", (*COLUMNS, *IDENTITY), IDENTITY)
    found: dict[tuple[str, int], Message] = {}
    for line in records:
        arm, size = line.text("arm"), line.whole("size")
        line.whole("attempt", 1)
        message = found.setdefault((arm, size), Message(arm, size))
        message.carried = line.text("carried")
        message.problem, message.failed = line.text("problem") or None, line.text("failed") or None
        if not message.failed:
            message.counts[line.word("count", COUNTS)] = line.number("value")
    return list(found.values()), about
