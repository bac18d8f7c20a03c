/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What cannot be mended: the user is told, and the job ends. Open MPI 4.1 can be told in no other
 * way that a message or a connection is lost; it would wait without end. And what the user is told
 * while the job goes on.
 */
#ifndef REGX_BTL_LOST_H
#define REGX_BTL_LOST_H

#include "btl/endpoint.h"
#include "btl/module.h"

/* A message of `size` bytes cannot go on; `direction` is "from" or "to". */
void regx_module_lost(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                      const char *direction, const char *why);

/* The transport's events `broken`, `silent` and `warn`, and the rendezvous' `mismatch`; the context
 * is the module. */
void regx_lost_connection(void *context, uint64_t peer, const char *what);
void regx_no_answer(void *context, uint64_t peer);
void regx_warn_of_transport(void *context, const char *line);
void regx_lost_data(void *context, const regx_peer_t *peer, const char *what);

#endif
