/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lost messages and connections: one line to the user, and the job is aborted. Open MPI 4.1 can be
 * notified of them in no other way; it would wait forever. Also the warnings of a job that goes on.
 */
#ifndef REGX_BTL_LOST_H
#define REGX_BTL_LOST_H

#include "btl/endpoint.h"
#include "btl/module.h"

/* A message of `size` bytes cannot go on; `direction` is "from" or "to". */
void regx_module_lost(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                      const char *direction, const char *why);

/* The transport's events `broken` and `silent`, and the rendezvous' `mismatch`; the context
 * is the module. */
void regx_lost_connection(void *context, uint64_t peer, const char *what);
void regx_no_answer(void *context, uint64_t peer);
void regx_lost_data(void *context, const regx_peer_t *peer, const char *what);

#endif
