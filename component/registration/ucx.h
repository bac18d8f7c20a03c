/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading UCX, whose ucm may be a source of hooks. Nothing else here needs it, so it is loaded for that
 * alone: it changes a process (it patches libc's memory functions and installs signal handlers unless
 * told otherwise).
 */
#ifndef REGX_REGISTRATION_UCX_H
#define REGX_REGISTRATION_UCX_H

/* Loads UCX for good, so that it leaves the process as it is. If somebody has loaded it before, it is
 * only kept, though its owner may go. Nothing, if there is no UCX. Called by the thread that runs MPI_Init: it changes the environment for the time
 * of the call. */
void regx_ucx_load(void);

#endif
