# SPDX-License-Identifier: BSD-3-Clause
"""Trouble: what the user is told in one line, with the status to exit with."""

import os
import sys
from collections.abc import Callable


class Trouble(Exception):
    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status


def told(command: str, work: Callable[[], int]) -> int:
    try:
        return work()
    except Trouble as trouble:
        print(f"{command}: {trouble}", file=sys.stderr)
        return trouble.status
    except KeyboardInterrupt:  # before anything was measured
        return 130
    except BrokenPipeError:  # the reader of the table has gone; it is in table.txt too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
