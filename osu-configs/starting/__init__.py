# SPDX-License-Identifier: BSD-3-Clause
"""Timing a job's MPI_Init and MPI_Finalize, and weighing its processes between them.

ranks.c does both inside of each rank. The rest is here and in comparing/, whose rows and launching
are used.
"""
