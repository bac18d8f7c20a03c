/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections of the multiplexer: which transport leads to a peer, and what is sent through it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "base/option.h"
#include "transport/mux/mux_internal.h"

bool regx_mux_allows(const regx_transport_config_t *config, const regx_mux_wire_t *wire)
{
    const char *at = wire->tls;

    if (config->tls == NULL) {
        return true;
    }
    while (*at != '\0') {
        const size_t length = strcspn(at, ",");
        char name[32];

        if (length < sizeof(name)) {
            memcpy(name, at, length);
            name[length] = '\0';
            if (regx_option_listed(config->tls, name)) {
                return true;
            }
        }
        at += length + (at[length] == ',');
    }
    return false;
}

/* Finds a transport's part of an address. REGX_OK: `length` is 0 if it has none; REGX_INVALID: the
 * address is malformed. */
static regx_status_t find_part(const uint8_t *address, size_t size, size_t wire,
                               const uint8_t **part, size_t *length)
{
    const uint8_t *at = address + REGX_MUX_ADDRESS_HEAD, *end = address + size;

    *length = 0;
    if (size < REGX_MUX_ADDRESS_HEAD || address[0] != REGX_MUX_ADDRESS_VERSION) {
        return REGX_INVALID;
    }
    for (size_t i = 0; i <= wire; i++) {
        if ((address[1] & 1u << i) == 0) {
            continue;
        }
        if (end - at < 4) {
            return REGX_INVALID;
        }
        const uint64_t own = regx_le_get(at, 4);
        at += 4;
        if ((size_t)(end - at) < own) {
            return REGX_INVALID;
        }
        if (i == wire) {
            *part = at;
            *length = own;
        }
        at += own;
    }
    return REGX_OK;
}

/* That a preferred transport could not be tried shows in the report: on the node it is a loss. */
static void tally_skipped(const regx_mux_t *mux, const regx_mux_conn_t *conn, size_t chosen)
{
    for (size_t i = 0; i < chosen && conn->same_node; i++) {
        char reason[REGX_REASON_LENGTH];

        if (conn->paths[i] == NULL && regx_mux_allows(&mux->config, &mux->table[i])) {
            snprintf(reason, sizeof(reason), "%s: not available at both ends",
                     mux->table[i].ops->name);
            regx_transport_fall_back(&mux->config, REGX_TRACE_CONNECTION, reason);
        }
    }
}

/* Takes the first transport from number `from` on that connects. REGX_OK; REGX_UNREACHABLE: none
 * does; else the error of one that was tried. Called with the connection's lock held, or before
 * anybody else knows the connection. */
static regx_status_t take_path(regx_mux_t *mux, regx_mux_conn_t *conn, size_t from)
{
    for (size_t i = from; i < mux->count; i++) {
        regx_transport_t *wire = mux->wires[i];
        const uint8_t *part = NULL;
        size_t length;
        regx_status_t status = find_part(conn->address, conn->address_length, i, &part, &length);

        if (status == REGX_OK && (wire == NULL || length == 0)) {
            continue;
        }
        if (status == REGX_OK) {
            status = wire->ops->connect(wire, conn->super.peer, conn->same_node, part, length,
                                        &conn->paths[i]);
        }
        if (status == REGX_OK) {
            conn->paths[i]->above = &conn->super;
            conn->super.wire = conn->paths[i]->wire;
            conn->super.shares_pool = atomic_load(&conn->paths[i]->shares_pool);
            conn->super.single_copy = atomic_load(&conn->paths[i]->single_copy);
            conn->super.whole_max = atomic_load(&conn->paths[i]->whole_max);
            atomic_store_explicit(&conn->path, conn->paths[i], memory_order_release);
            return REGX_OK;
        }
        conn->paths[i] = NULL;
        if (status != REGX_UNREACHABLE) {
            return status;
        }
    }
    return REGX_UNREACHABLE;
}

static size_t path_number(const regx_mux_conn_t *conn, const regx_conn_t *path)
{
    size_t i = 0;

    while (conn->paths[i] != path) {
        i++;
    }
    return i;
}

regx_status_t regx_mux_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                               const void *address, size_t length, regx_conn_t **out)
{
    regx_mux_t *mux = regx_mux_of(transport);
    regx_mux_conn_t *conn;
    const uint8_t *part;
    size_t part_length;
    regx_status_t status;

    if (length > REGX_ADDRESS_MAX ||
        find_part(address, length, mux->count - 1, &part, &part_length) != REGX_OK) {
        return REGX_INVALID;
    }
    conn = calloc(1, sizeof(*conn) + length);
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    regx_lock_init(&conn->lock, mux->config.threads);
    conn->super.transport = transport;
    conn->super.peer = peer;
    conn->same_node = same_node;
    conn->address_length = length;
    memcpy(conn->address, address, length);
    status = take_path(mux, conn, 0);
    if (status != REGX_OK) {
        regx_lock_fini(&conn->lock);
        free(conn);
        return status;
    }
    tally_skipped(mux, conn, path_number(conn, atomic_load(&conn->path)));
    *out = &conn->super;
    return REGX_OK;
}

/* ---- when a path refuses ---- */

/* No path leads to this peer: progress will report it. Called with the connection's lock held. */
static void lose_locked(regx_mux_t *mux, regx_mux_conn_t *conn)
{
    if (conn->lost) {
        return;
    }
    conn->lost = true;
    regx_lock(&mux->lock);
    conn->next_lost = mux->lost;
    mux->lost = conn;
    regx_unlock(&mux->lock);
    atomic_fetch_add(&mux->lost_count, 1);
    atomic_store(&mux->super.front, &mux->super);
}

regx_status_t regx_mux_refused(regx_conn_t *path)
{
    regx_mux_conn_t *conn = REGX_CONTAINER_OF(path->above, regx_mux_conn_t, super);
    regx_mux_t *mux = regx_mux_of(conn->super.transport);
    regx_status_t status = REGX_OK;

    regx_lock(&conn->lock);
    if (atomic_load(&conn->path) == path) { /* else another thread was faster */
        status = take_path(mux, conn, path_number(conn, path) + 1);
        if (status != REGX_OK) {
            lose_locked(mux, conn);
        }
    }
    regx_unlock(&conn->lock);
    return status == REGX_OK ? REGX_AGAIN : REGX_UNREACHABLE;
}

void regx_mux_report_lost(regx_mux_t *mux)
{
    char what[96];

    regx_lock(&mux->lock);
    regx_mux_conn_t *conn = mux->lost;
    mux->lost = conn != NULL ? conn->next_lost : NULL;
    regx_unlock(&mux->lock);
    if (conn != NULL) {
        atomic_fetch_sub(&mux->lost_count, 1);
        snprintf(what, sizeof(what), "%s is refused, and nothing else leads there",
                 mux->table[path_number(conn, atomic_load(&conn->path))].words);
        mux->config.events.broken(mux->config.events.context, conn->super.peer, what);
    }
}

/* Takes a connection that ends off the list. */
static void forget_lost(regx_mux_t *mux, const regx_mux_conn_t *conn)
{
    regx_lock(&mux->lock);
    for (regx_mux_conn_t **at = &mux->lost; *at != NULL; at = &(*at)->next_lost) {
        if (*at == conn) {
            *at = conn->next_lost;
            atomic_fetch_sub(&mux->lost_count, 1);
            break;
        }
    }
    regx_unlock(&mux->lock);
}

void regx_mux_disconnect(regx_conn_t *super)
{
    regx_mux_conn_t *conn = REGX_CONTAINER_OF(super, regx_mux_conn_t, super);
    regx_mux_t *mux = regx_mux_of(super->transport);

    if (conn->lost) {
        forget_lost(mux, conn);
    }
    for (size_t i = 0; i < mux->count; i++) {
        if (conn->paths[i] != NULL) {
            conn->paths[i]->transport->ops->disconnect(conn->paths[i]);
        }
    }
    regx_lock_fini(&conn->lock);
    free(conn);
}

/* ---- what goes through the path ---- */

static inline regx_conn_t *path_of(regx_conn_t *super)
{
    const regx_mux_conn_t *conn = REGX_CONTAINER_OF(super, regx_mux_conn_t, super);

    return atomic_load_explicit(&conn->path, memory_order_acquire);
}

void regx_mux_warm(regx_conn_t *super)
{
    regx_conn_t *path = path_of(super);

    if (path->transport->ops->warm != NULL) {
        path->transport->ops->warm(path);
    }
}

bool regx_mux_reachable(regx_conn_t *super)
{
    const regx_mux_conn_t *conn = REGX_CONTAINER_OF(super, regx_mux_conn_t, super);
    regx_conn_t *path = path_of(super);

    return !conn->lost && path->transport->ops->reachable(path);
}

/* The compiler makes these jumps to the path's own operation. */

regx_status_t regx_mux_send(regx_conn_t *super, uint8_t tag, const void *header,
                            size_t header_length, regx_pack_t pack, void *pack_context,
                            size_t payload_length)
{
    regx_conn_t *path = path_of(super);

    return path->transport->ops->send(path, tag, header, header_length, pack, pack_context,
                                      payload_length);
}

regx_status_t regx_mux_send_zcopy(regx_conn_t *super, regx_zcopy_t *zcopy)
{
    regx_conn_t *path = path_of(super);

    return path->transport->ops->send_zcopy(path, zcopy);
}

regx_status_t regx_mux_put(regx_conn_t *super, regx_put_t *put)
{
    regx_conn_t *path = path_of(super);

    return path->transport->ops->put(path, put);
}

regx_status_t regx_mux_copy(regx_conn_t *super, regx_copy_direction_t direction, void *local,
                            uint64_t remote, size_t length)
{
    regx_conn_t *path = path_of(super);

    return path->transport->ops->copy != NULL
               ? path->transport->ops->copy(path, direction, local, remote, length)
               : REGX_DENIED;
}

/* Only a wire on which the kernel copies can read a peer's memory. */
regx_status_t regx_mux_get(regx_conn_t *super, regx_get_t *get)
{
    regx_conn_t *path = path_of(super);

    return atomic_load(&super->single_copy) ? path->transport->ops->get(path, get) : REGX_DENIED;
}

bool regx_mux_stage(regx_conn_t *super, const void *base, size_t length, regx_key_t *key)
{
    regx_conn_t *path = path_of(super);

    return path->transport->ops->stage != NULL &&
           path->transport->ops->stage(path, base, length, key);
}

void regx_mux_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    const regx_mux_t *mux = regx_mux_of(transport);

    for (size_t i = 0; i < mux->count; i++) {
        if (mux->wires[i] != NULL && mux->wires[i]->ops->unstage != NULL) {
            mux->wires[i]->ops->unstage(mux->wires[i], key);
        }
    }
}
