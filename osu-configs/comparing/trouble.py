# SPDX-License-Identifier: BSD-3-Clause
"""Trouble: what the user must be told in one line, with the status to exit with."""


class Trouble(Exception):
    def __init__(self, message: str, status: int = 2):
        super().__init__(message)
        self.status = status
