/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening and closing of the multiplexer, its address, registering and progress.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"
#include "transport/mux/mux_internal.h"
#include "transport/mux/params.h"

/* A look for newcomers on an unused wire takes microseconds of system calls, for which a message on
 * the first wire has to wait. So it happens once in 10 ms in a process that is busy there, and not
 * at all once a thread of the wire's watches for them. */
#define NEWCOMERS_BUSY_NS 10000000
#define NEWCOMERS_QUIET_NS 1000000
/* Rounds in a row in which the first wire had something and no other was looked at, at most. */
#define BUSY_ROUNDS 16u

/* ---- open and close ---- */

static void add_name(regx_mux_t *mux, const char *name)
{
    const size_t used = strlen(mux->names);

    snprintf(mux->names + used, sizeof(mux->names) - used, "%s%s", used > 0 ? "," : "", name);
}

/* Opens one transport of the table. Only a wrong setting is an error: another may be usable. */
static regx_status_t open_wire(regx_mux_t *mux, size_t i, char *error, size_t error_size)
{
    const regx_transport_ops_t *ops = mux->table[i].ops;
    regx_transport_config_t config = mux->config;
    regx_transport_t *wire;

    if (!regx_mux_allows(&mux->config, &mux->table[i])) {
        return REGX_OK;
    }
    config.rkeys = &mux->rkeys;
    config.refused = regx_mux_refused;
    config.pool_memory = mux->super.pool_memory;
    if (config.pool_memory != NULL) {
        config.pool_size = mux->super.pool_size;
    }
    const regx_status_t status = ops->open(&config, error, error_size, &wire);
    if (status != REGX_OK) {
        return status == REGX_INVALID ? status : REGX_OK;
    }
    if (mux->names[0] == '\0') { /* the first */
        mux->super.pool_memory = wire->pool_memory;
        mux->super.pool_size = wire->pool_size;
        mux->super.max_frame = wire->max_frame;
    }
    if (mux->names[0] == '\0' && !atomic_load(&wire->unused)) {
        mux->first = wire;
    } else {
        mux->others[mux->other_count++] = wire;
    }
    mux->super.max_frame = regx_min(mux->super.max_frame, wire->max_frame);
    mux->wires[i] = wire;
    add_name(mux, wire->wires);
    return REGX_OK;
}

static void name_all(const regx_mux_t *mux, char *error, size_t error_size)
{
    size_t used = (size_t)snprintf(error, error_size, "this process can use none of");

    for (size_t i = 0; i < mux->count && used < error_size; i++) {
        used += (size_t)snprintf(error + used, error_size - used, "%s %s", i > 0 ? "," : "",
                                 mux->table[i].ops->name);
    }
    if (mux->config.tls != NULL && used < error_size) {
        snprintf(error + used, error_size - used, " within %s", mux->config.tls);
    }
}

regx_status_t regx_mux_open(const regx_transport_ops_t *ops, const regx_mux_wire_t *table,
                            size_t count, const regx_transport_config_t *config, char *error,
                            size_t error_size, regx_transport_t **transport)
{
    const regx_mux_settings_t *settings = config->settings;
    regx_mux_t *mux = calloc(1, sizeof(*mux));
    regx_status_t status = REGX_OK;

    if (mux == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    mux->super.ops = ops;
    mux->super.front = &mux->super;
    mux->super.wires = mux->names;
    mux->config = *config;
    mux->config.settings = NULL; /* those under it have none */
    mux->config.tls = settings != NULL ? settings->tls : NULL;
    mux->table = table;
    mux->count = count;
    mux->newcomers = (regx_pace_t){.quiet_ns = NEWCOMERS_QUIET_NS, .busy_ns = NEWCOMERS_BUSY_NS};
    regx_lock_init(&mux->lock, config->threads);
    regx_rkey_table_init(&mux->rkeys, config->threads);
    for (size_t i = 0; i < count && status == REGX_OK; i++) {
        status = open_wire(mux, i, error, error_size);
    }
    if (status == REGX_OK && mux->names[0] == '\0') {
        name_all(mux, error, error_size);
        status = REGX_UNREACHABLE;
    }
    if (status != REGX_OK) {
        regx_mux_close(&mux->super);
        return status;
    }
    *transport = &mux->super;
    return REGX_OK;
}

void regx_mux_close(regx_transport_t *transport)
{
    regx_mux_t *mux = regx_mux_of(transport);

    for (size_t i = mux->count; i > 0; i--) { /* the first, which has the pool, last */
        if (mux->wires[i - 1] != NULL) {
            mux->wires[i - 1]->ops->close(mux->wires[i - 1]);
        }
    }
    regx_rkey_table_fini(&mux->rkeys);
    regx_lock_fini(&mux->lock);
    free(mux);
}

size_t regx_mux_address(regx_transport_t *transport, void *buffer)
{
    const regx_mux_t *mux = regx_mux_of(transport);
    uint8_t *start = buffer, *at = start + REGX_MUX_ADDRESS_HEAD;

    memset(start, 0, REGX_MUX_ADDRESS_HEAD);
    start[0] = REGX_MUX_ADDRESS_VERSION;
    for (size_t i = 0; i < mux->count; i++) {
        uint8_t part[REGX_ADDRESS_MAX];
        const size_t length =
            mux->wires[i] == NULL ? 0 : mux->wires[i]->ops->address(mux->wires[i], part);

        if (length == 0 || length + 4 > REGX_ADDRESS_MAX - (size_t)(at - start)) {
            continue; /* peers then do not use this one */
        }
        regx_le_put(at, length, 4);
        memcpy(at + 4, part, length);
        at += 4 + length;
        start[1] = (uint8_t)(start[1] | 1u << i);
    }
    return (size_t)(at - start);
}

/* ---- memory for the user's buffers ---- */

/* The wire that has it, or NULL. */
static regx_transport_t *allocator(const regx_mux_t *mux)
{
    for (size_t i = 0; i < mux->count; i++) {
        if (mux->wires[i] != NULL && mux->wires[i]->ops->allocate != NULL) {
            return mux->wires[i];
        }
    }
    return NULL;
}

void *regx_mux_allocate(regx_transport_t *transport, size_t length)
{
    regx_transport_t *wire = allocator(regx_mux_of(transport));

    return wire != NULL ? wire->ops->allocate(wire, length) : NULL;
}

void regx_mux_release(regx_transport_t *transport, void *memory)
{
    regx_transport_t *wire = allocator(regx_mux_of(transport));

    wire->ops->release(wire, memory);
}

/* ---- registering ---- */

/* Costs nothing on these wires, but goes through the table of rkeys, so that over tcp a key that
 * was taken back is worthless. On the node the kernel's copy asks no key: there the peer is trusted
 * as far as the kernel trusts a process of the same user. */
regx_status_t regx_mux_reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                           regx_mr_t *mr)
{
    mr->base = base;
    mr->length = length;
    mr->access = access;
    return regx_rkey_table_add(&regx_mux_of(transport)->rkeys, base, length, access, &mr->key,
                               &mr->handle);
}

void regx_mux_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_rkey_table_remove(&regx_mux_of(transport)->rkeys, mr->handle);
}

/* ---- progress ---- */

/* Also reports what is lost. may_be_due: a clock may be read to know whether to look at unused
 * ones. */
static int progress_others(regx_mux_t *mux, bool may_be_due)
{
    const bool due = may_be_due && mux->other_count > 0 && regx_pace_due_by_clock(&mux->newcomers);
    const bool busy = !mux->newcomers.quiet;
    bool in_use = false;
    int events = 0;

    for (size_t i = 0; i < mux->other_count; i++) {
        regx_transport_t *wire = mux->others[i];

        atomic_store_explicit(&wire->disturbs, busy, memory_order_relaxed);
        if (!atomic_load_explicit(&wire->unused, memory_order_relaxed)) {
            in_use = true;
            events += wire->ops->progress(wire);
        } else if (due && !atomic_load_explicit(&wire->watched, memory_order_relaxed)) {
            events += wire->ops->progress(wire);
        }
    }
    atomic_store(&mux->super.front, in_use || mux->first == NULL ? &mux->super : mux->first);
    while (atomic_load(&mux->lost_count) > 0) {
        regx_mux_report_lost(mux);
    }
    return events;
}

/* While only the first is in use, the caller asks that itself, and comes here now and then. */
int regx_mux_progress(regx_transport_t *transport)
{
    regx_mux_t *mux = regx_mux_of(transport);
    const bool always = atomic_load(&mux->super.front) == transport;
    const int events = mux->first != NULL ? mux->first->ops->progress(mux->first) : 0;
    bool may_be_due = true;

    if (events > 0 || mux->super.front_busy) {
        mux->super.front_busy = false;
        regx_pace_note_traffic(&mux->newcomers);
    }
    if (!always) {
        regx_pace_count_up(&mux->newcomers);
    } else if (events > 0 && ++mux->busy_rounds % BUSY_ROUNDS != 0) {
        return events; /* somebody waits for what was just delivered */
    } else {
        may_be_due = regx_pace_count(&mux->newcomers);
    }
    return events + progress_others(mux, may_be_due);
}
