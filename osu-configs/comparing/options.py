# SPDX-License-Identifier: BSD-3-Clause
"""The options that compare and its sisters share, worded once."""

import argparse
from pathlib import Path


def add_files(parser: argparse.ArgumentParser, default: str) -> None:
    """default: the names of the files that are read where none is given."""
    parser.add_argument(
        "-f", dest="files", nargs="+", action="extend", type=Path, metavar="FILE",
        help=f"configuration files (default: {default}, beside {parser.prog})")


def add_building(parser: argparse.ArgumentParser) -> None:
    """Building of what is measured may be left out."""
    add_common(parser)
    parser.add_argument("--no-build", action="store_true",
                        help="take what was built before, as it is")


def add_again(parser: argparse.ArgumentParser, several: bool = False) -> None:
    parser.add_argument(
        "--from", dest="csv", nargs="+" if several else None, type=Path, metavar="CSV",
        help="measure nothing: make the table again from a results.csv"
        + (", or from several" if several else ""))


def add_common(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--dry-run", action="store_true", help="print the lines that would be run, and run nothing")
    add("--no-install", action="store_true", help="say what is missing, rather than install it")
    add("--output", type=Path, metavar="DIR",
        help=f"where the results go (default: .build/{parser.prog}/, by date and time)")
