/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading UCX, whose ucm may be a source of hooks. Nothing else here needs it, so it is loaded for
 * that alone: it changes a process (it patches libc's memory functions and installs signal handlers
 * unless told otherwise).
 */
#ifndef REGX_REGISTRATION_UCX_H
#define REGX_REGISTRATION_UCX_H

/* Loads UCX and never unloads it, with settings by which it patches nothing, handles no signal
 * and starts no thread, unless the user set those. If somebody has loaded it before, it only
 * stays loaded when they unload it. Does nothing where there is no UCX. Called by the thread that
 * runs MPI_Init, since the environment is changed for the time of the call. */
void regx_ucx_load(void);

#endif
