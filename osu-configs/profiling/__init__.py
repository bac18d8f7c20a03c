# SPDX-License-Identifier: BSD-3-Clause
"""Counting the instructions that a message costs a process.

messages.c exchanges messages under valgrind's callgrind. The rest is here and in comparing/, whose
rows and launching are used.
"""
