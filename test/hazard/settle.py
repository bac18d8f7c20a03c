# SPDX-License-Identifier: BSD-3-Clause
"""For programs in Python what mpi/settle.h is for those in C: text to be put into them."""
SETTLE = """
import os
def settle():
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/" + task + "/comm") as comm:
            reader = comm.read() == "regx-notifier\\n"
        while reader:
            with open("/proc/self/task/" + task + "/syscall") as call:
                reader = call.read().startswith("running")
"""
