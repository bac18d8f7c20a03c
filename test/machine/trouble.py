# SPDX-License-Identifier: BSD-3-Clause
"""What ends the machine's script with one line."""


class Trouble(Exception):
    """Something outside of this script is not as it must be; the text says what and which."""
