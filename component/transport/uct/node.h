/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wire between processes on one machine: mailboxes and the peer's pool in shared memory, and
 * the kernel's copy (vm.h) into and out of memory that is not shared.
 *
 * Each process owns a main segment (its door, where others introduce themselves, and its pool)
 * and, allocated as peers are first written to, segments of mailboxes. The mailbox from A to B
 * lies in A's memory. It takes some 273 KiB, 145 with more than 32 neighbours, 81 where that would
 * be more than half of the shared memory that is free; four are allocated at once, and none for a
 * pair that does not talk.
 *
 * Threads as transport.h says. The caller keeps progress out during disconnect and close. Close
 * waits until what was sent has been read, or nobody is there to read it.
 */
#ifndef REGX_UCT_NODE_H
#define REGX_UCT_NODE_H

#include "transport/transport.h"

/* Largest frame that regx_node_send takes. */
#define REGX_NODE_MAX_FRAME 16448u /* an eager message of 16 KiB with its headers */

typedef struct regx_node regx_node_t;
typedef struct regx_node_conn regx_node_conn_t;

/* REGX_UNREACHABLE: this process can have no shared memory (tallied why). */
regx_status_t regx_node_open(const regx_transport_config_t *config, regx_node_t **node);
void regx_node_close(regx_node_t *node);

void *regx_node_pool(regx_node_t *node, size_t *size);
const char *regx_node_domain(const regx_node_t *node); /* "posix" or "sysv" */

size_t regx_node_address(regx_node_t *node, void *buffer, size_t capacity);
/* REGX_INVALID: malformed address. */
regx_status_t regx_node_connect(regx_node_t *node, uint64_t peer, const void *address,
                                size_t length, regx_node_conn_t **conn);
void regx_node_disconnect(regx_node_conn_t *conn);
/* Whether the kernel copies between the two processes; asks it. What it answers a put or get is
 * tallied then. */
bool regx_node_may_copy(regx_node_conn_t *conn);
/* Begins to fetch the line that the next frame will fill. */
void regx_node_warm(const regx_node_conn_t *conn);
/* Whether the neighbour lives and has not closed. */
bool regx_node_reachable(regx_node_conn_t *conn);

/* As in transport.h. REGX_UNREACHABLE is final for the connection, tallied, and answered only
 * before anything was accepted. */
regx_status_t regx_node_send(regx_node_conn_t *conn, uint8_t tag, const void *header,
                             size_t header_length, regx_pack_t pack, void *pack_context,
                             size_t payload_length);
regx_status_t regx_node_lend(regx_node_conn_t *conn, regx_lend_t *lend);
regx_status_t regx_node_put(regx_node_conn_t *conn, regx_put_t *put);
regx_status_t regx_node_get(regx_node_conn_t *conn, regx_get_t *get);

int regx_node_progress(regx_node_t *node);

#endif
