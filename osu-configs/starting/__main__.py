# SPDX-License-Identifier: BSD-3-Clause
"""Entry of `python3 osu-configs/starting`, which osu-configs/startup runs."""

import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from starting.command import main  # noqa: E402  (the line above makes it importable)

sys.exit(main())
