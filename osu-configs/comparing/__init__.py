# SPDX-License-Identifier: BSD-3-Clause
"""The parts of osu-configs/compare and osu-configs/report, one noun per file."""
