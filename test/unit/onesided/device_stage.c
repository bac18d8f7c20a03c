/* SPDX-License-Identifier: BSD-3-Clause */
#include "device_stage.h"

device_stage_t stage;

/* Its regions begin before what was asked for, and a key is where. */
static regx_status_t reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr)
{
    const uintptr_t start = (uintptr_t)base - BEFORE;

    (void)transport;
    if (stage.refuses_memory ||
        (stage.refuses_atomics && (access & REGX_ACCESS_REMOTE_ATOMIC) != 0)) {
        return REGX_NO_MEMORY;
    }
    stage.regs++;
    stage.asked = access;
    *mr = (regx_mr_t){.base = (void *)start, .length = length + BEFORE, .access = access};
    memcpy(mr->key.bytes, &start, sizeof(start));
    return REGX_OK;
}

static void dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    (void)transport;
    (void)mr;
    stage.deregs++;
}

static regx_status_t put(regx_conn_t *conn, regx_put_t *put)
{
    (void)conn;
    assert_true(put->silent && put->target == REGX_TARGET_REGION);
    if (stage.has_no_room || stage.loses_room) {
        return REGX_AGAIN;
    }
    stage.puts[stage.put_count++] = put;
    return REGX_PENDING;
}

static regx_status_t get(regx_conn_t *conn, regx_get_t *get)
{
    (void)conn;
    assert_true(get->region != NULL || get->length <= COPIED);
    if (stage.has_no_room || stage.loses_room) {
        return REGX_AGAIN;
    }
    stage.gets[stage.get_count++] = get;
    return REGX_PENDING;
}

static regx_status_t fetch(regx_conn_t *conn, regx_fetch_t *fetch)
{
    (void)conn;
    if (stage.has_no_room || stage.loses_room) {
        return REGX_AGAIN;
    }
    stage.fetches[stage.fetch_count++] = fetch;
    return REGX_PENDING;
}

static regx_status_t accepts(regx_conn_t *conn, bool puts)
{
    (void)conn;
    (void)puts;
    return stage.has_no_room ? REGX_AGAIN : REGX_OK;
}

static char *at(const regx_key_t *key, uint64_t offset)
{
    uintptr_t start;

    memcpy(&start, key->bytes, sizeof(start));
    return (char *)(start + offset);
}

void run(regx_status_t status)
{
    for (unsigned i = 0; i < stage.put_count; i++) {
        regx_put_t *made = stage.puts[i];

        if (status == REGX_OK) {
            memcpy(at(&made->key, made->offset), made->local, made->length);
        }
        made->done(made, status);
    }
    for (unsigned i = 0; i < stage.get_count; i++) {
        regx_get_t *made = stage.gets[i];

        if (status == REGX_OK) {
            memcpy(made->local, at(&made->key, made->offset), made->length);
        }
        made->done(made, status);
    }
    for (unsigned i = 0; i < stage.fetch_count; i++) {
        regx_fetch_t *made = stage.fetches[i];
        uint64_t *number = (uint64_t *)(void *)at(&made->key, made->offset);

        if (status == REGX_OK) {
            made->result = *number;
            if (!made->swaps) {
                *number += made->operand;
            } else if (*number == made->compare) {
                *number = made->operand;
            }
        }
        made->done(made, status);
    }
    stage.put_count = stage.get_count = stage.fetch_count = 0;
}

void offer(void *base, size_t length)
{
    uint8_t bytes[REGX_WINDOW_NAME_SIZE];

    assert_int_equal(
        regx_onesided_offer(stage.target->onesided, base, length, &stage.window, bytes), REGX_OK);
    assert_true(regx_window_is(bytes));
    regx_window_unpack(bytes, &stage.name);
}

int open_stage(void **state)
{
    const regx_cache_config_t none = {.bytes = 0};

    (void)state;
    memset(&stage, 0, sizeof(stage));
    line_open(stage.processes);
    stage.origin = &stage.processes[0];
    stage.target = &stage.processes[1];
    stage.ops = *stage.origin->transport.ops;
    stage.ops.reg = reg;
    stage.ops.dereg = dereg;
    stage.ops.put = put;
    stage.ops.get = get;
    stage.ops.fetch = fetch;
    stage.ops.accepts = accepts;
    for (unsigned i = 0; i < LINE_PROCESSES; i++) {
        line_t *process = &stage.processes[i];

        process->transport.ops = &stage.ops;
        process->transport.registers = true;
        process->transport.silent_copied = COPIED;
        process->onesided->config.registry = &stage.registries[i];
        assert_int_equal(regx_registry_open(&stage.registries[i], regx_backend_find("none"), NULL,
                                            &none, &process->transport, &process->counters),
                         REGX_OK);
    }
    unit_fill(stage.memory, BYTES, 1, 0);
    unit_fill(stage.mine, BYTES, 2, 0);
    return 0;
}

/* Also windows that are still offered are no longer registered. */
int close_stage(void **state)
{
    (void)state;
    line_close(stage.processes);
    assert_int_equal(stage.regs, stage.deregs);
    for (unsigned i = 0; i < LINE_PROCESSES; i++) {
        regx_registry_close(&stage.registries[i]);
    }
    return 0;
}

void done(regx_onesided_request_t *request, regx_status_t status)
{
    call_t *call = (call_t *)request;

    call->times++;
    call->status = status;
}

call_t new_call(regx_onesided_type_t type, size_t offset, size_t length)
{
    return (call_t){.request = {.type = type,
                                .window = stage.name.handle,
                                .address = stage.name.base + offset,
                                .local = stage.mine + offset,
                                .length = length,
                                .done = done}};
}

regx_status_t move(call_t *call)
{
    return regx_onesided_move(stage.origin->onesided, &stage.origin->peers[1], &stage.name,
                              &call->request);
}

void expect(const call_t *call, regx_status_t status)
{
    assert_int_equal(call->times, 1);
    assert_int_equal(call->status, status);
}
