/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The state of a large message in flight: the exposure at the sender, or the call that Open MPI's
 * callback completes, at either end. Records are reused, the newest first, since it is still in the
 * CPU cache. malloc caches only seven blocks of a size per thread, and a program with a window of
 * messages needs more.
 *
 * Any thread may call.
 */
#ifndef REGX_BTL_RDMA_RECORD_H
#define REGX_BTL_RDMA_RECORD_H

#include "btl/call.h"
#include "btl/types.h"
#include "rendezvous/rendezvous.h"

#define REGX_RDMA_RECORDS_KEPT 256u /* of a module; more go back to malloc */

typedef union regx_rdma_record {
    regx_rndv_exposure_t exposure;
    regx_call_t call;
    union regx_rdma_record *next; /* unused */
} regx_rdma_record_t;

/* Not initialised; NULL: no memory. */
regx_rdma_record_t *regx_rdma_record_take(regx_module_t *module);
void regx_rdma_record_return(regx_module_t *module, regx_rdma_record_t *record);
/* Frees those that are unused. */
void regx_rdma_records_free(regx_module_t *module);

#endif
