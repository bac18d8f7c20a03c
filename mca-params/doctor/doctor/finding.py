# SPDX-License-Identifier: BSD-3-Clause
"""What was found out about one thing on this node."""
import enum
from dataclasses import dataclass
from typing import List


class Status(enum.IntEnum):
    OK = 0
    NOTE = 1  # not there, and regx does without it here
    WARNING = 2  # regx works, but with less than the node could do
    FAILURE = 3  # regx does not work


# As monitoring systems read the status of a check: 0 well, 1 warning, 2 critical.
EXIT = {Status.OK: 0, Status.NOTE: 0, Status.WARNING: 1, Status.FAILURE: 2}


@dataclass(frozen=True)
class Finding:
    check: str  # one of checks.CHECKS, which scripts rely on
    status: Status
    text: str
    remedy: str = ""


def worst(findings: List[Finding]) -> Status:
    return max((finding.status for finding in findings), default=Status.OK)


def needed(findings: List[Finding], names: List[str]) -> List[Finding]:
    """What has to be there on this cluster is a failure where it is not."""
    return [Finding(f.check, Status.FAILURE, f.text, f.remedy)
            if f.check in names and f.status != Status.OK else f for f in findings]
