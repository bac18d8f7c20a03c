# SPDX-License-Identifier: BSD-3-Clause
"""Counting what one message costs on an RDMA device.

layer.c counts in the ranks what they ask of the device, strace their system calls, the device its
packets. The rest is here and in comparing/, whose rows, launching and machine are used.
"""
