/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The wire between hosts: UCX's tcp transport, without a thread and without waiting.
 *
 * Everything travels as active messages. tcp has no memory that a device could protect, so a put
 * is data in pieces, each led by the peer's key (or "the pool") and an offset; the receiver checks
 * them and copies. The last piece carries the notice, and it is delivered only if that piece was
 * good: rkeys close but never open again under the same key, so the earlier pieces were too.
 * What is malformed is counted, dropped, and writes nothing.
 *
 * Order: a put takes its place in the line when it is accepted. Until its last piece has been
 * handed on, send, lend and put to the same peer answer REGX_AGAIN (a put may queue up).
 *
 * Threads: as in transport.h. UCX is entered by one thread at a time. A call that finds another
 * thread inside answers REGX_AGAIN instead of waiting, so that no lock of the caller's can close a
 * circle; a call from inside deliver or done goes through. Only disconnect waits for the thread
 * that is inside: call it without a lock that deliver, broken or done take, and not from them.
 *
 * Trusted: UCX's own framing, and that a peer is who its frames say.
 *
 * `broken` is told of a peer that something was sent to, when its connection ends, unless it may
 * simply have left: disconnecting says goodbye. One that never sent anything cannot; its end is
 * told when something is wanted of it. A peer that was never sent to goes unnoticed.
 */
#ifndef REGX_TRANSPORT_TCP_H
#define REGX_TRANSPORT_TCP_H

#include "transport/transport.h"
#include "transport/rkey_table.h"

typedef struct regx_tcp regx_tcp_t;
typedef struct regx_tcp_conn regx_tcp_conn_t;

/* Opens one network device: of those that are up, the first that if_include names, or the first
 * that if_exclude does not name: before others one that is not the loopback and has an IPv4
 * address. Both are comma-separated lists of names and IPv4 subnets (a.b.c.d/n), as btl_tcp has
 * them; only one of them may be given.
 * REGX_OK; REGX_UNREACHABLE: no device is up, or UCX cannot open it; REGX_INVALID: a list is
 * malformed or leaves no device; REGX_NO_MEMORY. `error` then holds one line.
 * `config` must live as long as the result. */
regx_status_t regx_tcp_open(const regx_transport_config_t *config, regx_rkey_table_t *rkeys,
                            char *error, size_t error_size, regx_tcp_t **tcp);
/* All connections must be disconnected. Waits until the kernel has taken what was accepted, or the
 * connection has broken. NULL is allowed. */
void regx_tcp_close(regx_tcp_t *tcp);

/* Where puts to the pool land. Before the address is asked for and the first progress. */
void regx_tcp_set_pool(regx_tcp_t *tcp, void *memory, size_t size);

/* The name of the device that was opened. */
const char *regx_tcp_device(const regx_tcp_t *tcp);

/* Largest header and payload that send takes together. */
size_t regx_tcp_max_frame(const regx_tcp_t *tcp);

/* Writes what peers need to connect; returns its length, 0 if `capacity` is too small. */
size_t regx_tcp_address(regx_tcp_t *tcp, void *buffer, size_t capacity);

/* Prepares a path; nothing is sent before its first use. REGX_OK; REGX_INVALID: the address is
 * malformed or of another version; REGX_UNREACHABLE: no way from this device to that one;
 * REGX_NO_MEMORY. */
regx_status_t regx_tcp_connect(regx_tcp_t *tcp, uint64_t peer, const void *address, size_t length,
                               regx_tcp_conn_t **conn);
/* Drops the path. Frames accepted before still leave as far as the kernel takes them; pending
 * puts are completed with REGX_FAILED, from here. */
void regx_tcp_disconnect(regx_tcp_conn_t *conn);
/* Whether the connection has not broken. */
bool regx_tcp_reachable(const regx_tcp_conn_t *conn);

/* As in transport.h; REGX_UNREACHABLE also after the connection broke. lend copies: it answers
 * REGX_OK, never REGX_PENDING. put never answers REGX_DENIED. */
regx_status_t regx_tcp_send(regx_tcp_conn_t *conn, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length);
regx_status_t regx_tcp_lend(regx_tcp_conn_t *conn, const regx_lend_t *lend);
regx_status_t regx_tcp_put(regx_tcp_conn_t *conn, regx_put_t *put);

/* Whether a connection was made or a message came. Until then progress only accepts newcomers,
 * with a system call or two each time: call it rarely. Any thread. */
bool regx_tcp_in_use(const regx_tcp_t *tcp);

/* Delivers and completes what is ready, a bounded amount; returns how many events. */
int regx_tcp_progress(regx_tcp_t *tcp);

#endif
