/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is kept of a large message while it is under way: at the sender what it exposed, at either
 * end the call that Open MPI hears of. Records are used again, the newest first, which is still in
 * the cache. malloc keeps seven of a size at hand; a program that has a window of messages under
 * way has more.
 *
 * Any thread may call.
 */
#ifndef REGX_BTL_RECORD_H
#define REGX_BTL_RECORD_H

#include "btl/call.h"
#include "btl/types.h"
#include "rendezvous/rendezvous.h"

#define REGX_RECORDS_KEPT 256u /* of a module; more go back to malloc */

typedef union regx_record {
    regx_rndv_exposure_t exposure;
    regx_call_t call;
    union regx_record *next; /* unused */
} regx_record_t;

/* Not initialised; NULL: no memory. */
regx_record_t *regx_record_take(regx_module_t *module);
void regx_record_return(regx_module_t *module, regx_record_t *record);
/* Frees those that are unused. */
void regx_records_free(regx_module_t *module);

#endif
