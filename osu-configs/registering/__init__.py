# SPDX-License-Identifier: BSD-3-Clause
"""The registration benchmark: what keeping registrations costs, in regx and its peers.

The measuring is done by C programs: measure.c, with regx.c, ucx.c or grdma.c. The rest is here and
in comparing/, whose launching, environment and tables are used.
"""
