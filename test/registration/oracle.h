/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The oracle: a device that shows what a registration is worth. It reads and writes the pages that
 * were there when memory was registered, whatever the addresses have come to mean since. So a
 * registration that went stale is seen to be: what is sent are old bytes, what is received does not
 * arrive. A program is linked with one of two. The oracle of oracle.c is the pinned device of the
 * component, which pins pages for long (FOLL_LONGTERM) as an adapter does; no adapter and no
 * privilege is needed. That of oracle_verbs.c is an RDMA device, with both ends of a connection over it.
 *
 * Of the transport's operations reg and dereg alone are for others; transfers are this header's.
 * Any thread may call (oracle_verbs.c: one at a time). What should not happen ends the process with
 * a line on stderr. After fork the child may not use it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/transport.h"

typedef struct oracle oracle_t;

/* NULL: there is no such device here, and `why` says so in a line. */
oracle_t *oracle_open(regx_error_t why);
/* Every registration must be gone. */
void oracle_close(oracle_t *oracle);

/* For a registry. REGX_NO_MEMORY: table full or over the limit of locked memory; REGX_DENIED:
 * memory that cannot be registered. */
regx_transport_t *oracle_transport(oracle_t *oracle);

/* Copies to `to` what the device sends for the `length` bytes from address `from` on, which the
 * registration covers. */
void oracle_send(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length, void *to);
/* The device receives `data` for the `length` bytes from address `to` on. */
void oracle_receive(oracle_t *oracle, const regx_mr_t *mr, void *to, size_t length,
                    const void *data);

/* ---- the pinned device alone ---- */

unsigned oracle_registered(const oracle_t *oracle); /* now */
