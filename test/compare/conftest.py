# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the tests of compare; standins.py says what they are."""

from standins import tree

__all__ = ["tree"]
