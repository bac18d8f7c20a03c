/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The multiplexer: several transports as one, which chooses among them per peer.
 *
 * The transports stand in a table, the preferred one first. A peer is reached by the first that
 * connects to it. If that one refuses before it has accepted anything (`refused` in transport.h),
 * the next one takes over; if there is none, progress reports the connection as broken.
 *
 * Memory is registered once, in a table of rkeys that all of them share, and they share the pool of
 * the first that has one.
 *
 * Progress goes to the first transport in every call. The others wait their turn while the first
 * is busy: a message on the fastest wire must not wait for the system calls of another one. While
 * no other is in use, the first is the front (transport.h).
 *
 * Address: one byte of version, one with a bit per transport that follows, two of zero. Then in
 * the order of the table a 32-bit length and the transport's own address. Little-endian.
 */
#ifndef REGX_TRANSPORT_MUX_H
#define REGX_TRANSPORT_MUX_H

#include "transport/transport.h"

#define REGX_MUX_WIRES_MAX 8

typedef struct regx_mux_wire {
    const regx_transport_ops_t *ops;
    const char *words; /* what messages to people call it */
    const char *tls; /* comma-separated: opened if the setting tls lists one of them, or is NULL */
} regx_mux_wire_t;

/* Opens those of the table that can be opened, and that config->settings (params.h) allow. `ops` is
 * the table of the result: it has the functions below. The table must live as long as the result.
 * REGX_OK; REGX_INVALID: one of them says that a setting is wrong; REGX_UNREACHABLE: none can be
 * opened; REGX_NO_MEMORY. `error` then holds one line. */
regx_status_t regx_mux_open(const regx_transport_ops_t *ops, const regx_mux_wire_t *table,
                            size_t count, const regx_transport_config_t *config, char *error,
                            size_t error_size, regx_transport_t **transport);

/* As in transport.h. */
void regx_mux_close(regx_transport_t *transport);
size_t regx_mux_address(regx_transport_t *transport, void *buffer);
void *regx_mux_allocate(regx_transport_t *transport, size_t length);
void regx_mux_release(regx_transport_t *transport, void *memory);
regx_status_t regx_mux_reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                           regx_mr_t *mr);
void regx_mux_dereg(regx_transport_t *transport, regx_mr_t *mr);
int regx_mux_progress(regx_transport_t *transport);

regx_status_t regx_mux_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                               const void *address, size_t length, regx_conn_t **conn);
void regx_mux_disconnect(regx_conn_t *conn);
void regx_mux_warm(regx_conn_t *conn);
bool regx_mux_reachable(regx_conn_t *conn);
regx_status_t regx_mux_send(regx_conn_t *conn, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length);
regx_status_t regx_mux_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy);
regx_status_t regx_mux_put(regx_conn_t *conn, regx_put_t *put);
regx_status_t regx_mux_get(regx_conn_t *conn, regx_get_t *get);
bool regx_mux_stage(regx_conn_t *conn, const void *base, size_t length, regx_key_t *key);
void regx_mux_unstage(regx_transport_t *transport, const regx_key_t *key);
regx_status_t regx_mux_copy(regx_conn_t *conn, regx_copy_direction_t direction, void *local,
                            uint64_t remote, size_t length);

#endif
