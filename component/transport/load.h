/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading a transport's object.
 *
 * A transport lives in a file of its own beside the component, named
 * regx_transport_NAME.so, and is opened only once it is chosen: what it needs of libraries a job
 * that does not use it need not have.
 */
#ifndef REGX_TRANSPORT_LOAD_H
#define REGX_TRANSPORT_LOAD_H

#include "transport/transport.h"

/* Opens regx_transport_NAME.so from the folder that this code was loaded from. The object is
 * never unloaded. NULL: `error` holds one line saying why. Called by the thread that runs
 * MPI_Init. */
const regx_transport_ops_t *regx_transport_load(const char *name, char *error, size_t error_size);

#endif
