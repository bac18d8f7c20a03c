# SPDX-License-Identifier: BSD-3-Clause
"""python3 osu-configs/tools TOOL [ARGUMENT...], which start runs."""

import importlib
import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.exit(importlib.import_module(f"tools.{sys.argv.pop(1)}").main())
