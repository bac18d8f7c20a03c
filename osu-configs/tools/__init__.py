# SPDX-License-Identifier: BSD-3-Clause
"""compare, registration, instructions and report of osu-configs, one noun per file."""
