/* SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_Alloc_mem. Open MPI asks the components of its framework mpool for memory, and takes that of
 * the highest priority; if there is none it calls malloc. A component of mpool in a file of its own
 * and this BTL would have to find each other. So regx adds one to the framework's list while its
 * modules are open. It gives memory of a transport that has some (regx_transport_ops_t.allocate).
 * A call with hints (the key mpool_hints of its info) is left to the others.
 *
 * In Open MPI 4.1, 5.0 and 6.0 MPI_Win_allocate does not ask mpool: osc/rdma and osc/sm put a
 * window that lies on one node into a shared file of their own.
 *
 * Adding and taking out are for the thread that runs MPI_Init or MPI_Finalize.
 */
#ifndef REGX_BTL_ALLOC_MEM_H
#define REGX_BTL_ALLOC_MEM_H

#include "btl/types.h"

/* From now on MPI_Alloc_mem gives memory of a module's transport, if this process has neighbours.
 * Has no effect if it does so already. Not before every other BTL has chosen its memory pools. */
void regx_alloc_mem_start(regx_component_t *component);

/* Takes it back; before that transport closes. */
void regx_alloc_mem_stop(void);

#endif
