# SPDX-License-Identifier: BSD-3-Clause
"""regx-doctor, installed beside the files for administrators. Python's own library is enough for it."""
