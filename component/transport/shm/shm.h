/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wire between processes on one machine: mailboxes and the peer's pool in shared memory, and
 * the kernel's copy (vm.h) into and out of memory that is not shared.
 *
 * Each process owns a main segment (its queue, where others introduce themselves, and its pool)
 * and, allocated as peers are first written to, segments of mailboxes. The mailbox from A to B
 * lies in A's memory. It takes some 273 KiB, 145 with more than 32 neighbours, 81 where that would
 * be more than half of the shared memory that is free; four are allocated at once, and none for a
 * pair that does not talk.
 *
 * Threads as transport.h says. The caller keeps progress out during disconnect and close. Close
 * waits until what was sent has been read, or nobody is there to read it.
 */
#ifndef REGX_TRANSPORT_SHM_H
#define REGX_TRANSPORT_SHM_H

#include "transport/transport.h"

/* Largest frame that regx_shm_send takes. */
#define REGX_SHM_MAX_FRAME 16448u /* an eager message of 16 KiB with its headers */

typedef struct regx_shm regx_shm_t;
typedef struct regx_shm_conn regx_shm_conn_t;

/* REGX_UNREACHABLE: this process can have no shared memory (tallied why). */
regx_status_t regx_shm_open(const regx_transport_config_t *config, regx_shm_t **node);
void regx_shm_close(regx_shm_t *node);

void *regx_shm_pool(regx_shm_t *node, size_t *size);
const char *regx_shm_domain(const regx_shm_t *node); /* "posix" or "sysv" */

size_t regx_shm_address(regx_shm_t *node, void *buffer, size_t capacity);
/* REGX_INVALID: malformed address. */
regx_status_t regx_shm_connect(regx_shm_t *node, uint64_t peer, const void *address,
                                size_t length, regx_shm_conn_t **conn);
void regx_shm_disconnect(regx_shm_conn_t *conn);
/* Whether the kernel copies between the two processes; asks it. What it answers a put or get is
 * tallied then. */
bool regx_shm_may_copy(regx_shm_conn_t *conn);
/* Begins to fetch the line that the next frame will fill. */
void regx_shm_warm(const regx_shm_conn_t *conn);
/* Whether the neighbour lives and has not closed. */
bool regx_shm_reachable(regx_shm_conn_t *conn);

/* As in transport.h. REGX_UNREACHABLE is final for the connection, tallied, and answered only
 * before anything was accepted. */
regx_status_t regx_shm_send(regx_shm_conn_t *conn, uint8_t tag, const void *header,
                             size_t header_length, regx_pack_t pack, void *pack_context,
                             size_t payload_length);
regx_status_t regx_shm_lend(regx_shm_conn_t *conn, regx_lend_t *lend);
regx_status_t regx_shm_put(regx_shm_conn_t *conn, regx_put_t *put);
regx_status_t regx_shm_get(regx_shm_conn_t *conn, regx_get_t *get);

int regx_shm_progress(regx_shm_t *node);

#endif
