/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage.h"

#include <assert.h>

enum { FIRST_ID = 100 };

static regx_status_t line_send(regx_conn_t *super, uint8_t tag, const void *header,
                               size_t header_length, regx_pack_t pack, void *payload, size_t length)
{
    line_conn_t *conn = (line_conn_t *)super;
    line_frame_t *frame = &conn->frames[conn->count];

    assert(tag == REGX_TAG_ONESIDED && pack == NULL &&
           header_length + length <= super->transport->max_frame);
    if (conn->count == conn->room) {
        return REGX_AGAIN;
    }
    memcpy(frame->data, header, header_length);
    if (length > 0) {
        memcpy(frame->data + header_length, payload, length);
    }
    frame->length = header_length + length;
    conn->count++;
    return REGX_OK;
}

static regx_status_t line_copy(regx_conn_t *conn, regx_copy_direction_t direction, void *local,
                               uint64_t remote, size_t length)
{
    void *there = (void *)(uintptr_t)remote;

    if (!((line_t *)conn->transport)->copies) {
        return REGX_DENIED;
    }
    memcpy(direction == REGX_COPY_TO_PEER ? there : local,
           direction == REGX_COPY_TO_PEER ? local : there, length);
    return REGX_OK;
}

static const regx_transport_ops_t line_ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "line", .send = line_send, .node.copy = line_copy};

static void line_unanswered(void *context, uint64_t peer)
{
    line_t *process = context;

    process->unanswered++;
    process->unanswered_peer = peer;
}

void line_open(line_t processes[LINE_PROCESSES])
{
    memset(processes, 0, LINE_PROCESSES * sizeof(*processes));
    for (unsigned i = 0; i < LINE_PROCESSES; i++) {
        line_t *process = &processes[i];
        const regx_onesided_config_t config = {.counters = &process->counters,
                                               .waiting = &process->waiting,
                                               .ended = &process->ended,
                                               .unanswered = line_unanswered,
                                               .context = process};

        process->id = FIRST_ID + i;
        process->transport.ops = &line_ops;
        process->transport.max_frame = LINE_FRAME;
        process->onesided = regx_onesided_create(&config);
        for (unsigned to = 0; to < LINE_PROCESSES; to++) {
            line_conn_t *conn = &process->conns[to];

            conn->conn.transport = &process->transport;
            conn->conn.peer = FIRST_ID + to;
            conn->room = LINE_FRAMES;
            regx_onesided_add(process->onesided, &process->peers[to], &conn->conn);
        }
    }
}

void line_close(line_t processes[LINE_PROCESSES])
{
    for (unsigned i = 0; i < LINE_PROCESSES; i++) {
        for (unsigned to = 0; to < LINE_PROCESSES; to++) {
            assert(processes[i].conns[to].count == 0);
            regx_onesided_forget(processes[i].onesided, &processes[i].peers[to]);
        }
        assert(processes[i].waiting == 0 && processes[i].ended == 0 &&
               processes[i].onesided->pending == 0);
        regx_onesided_destroy(processes[i].onesided);
    }
}

bool line_deliver_only(line_t *from, line_t *to)
{
    line_conn_t *conn = &from->conns[to->id - FIRST_ID];

    if (conn->count == 0 || to->progressing) {
        return false;
    }
    const line_frame_t frame = conn->frames[0];
    conn->count--;
    memmove(conn->frames, conn->frames + 1, conn->count * sizeof(frame));
    to->progressing = true;
    regx_onesided_deliver(to->onesided, from->id, frame.data, frame.length);
    to->progressing = false;
    return true;
}

bool line_deliver(line_t *from, line_t *to)
{
    const bool delivered = line_deliver_only(from, to);

    if (!to->progressing && to->ended > 0) {
        regx_onesided_complete(to->onesided, NULL);
    }
    return delivered;
}

void line_run(line_t processes[LINE_PROCESSES])
{
    bool more = true;

    while (more) {
        more = false;
        for (unsigned i = 0; i < LINE_PROCESSES; i++) {
            for (unsigned j = 0; j < LINE_PROCESSES; j++) {
                more |= line_deliver(&processes[i], &processes[j]);
            }
            if (processes[i].waiting > 0) {
                more |= regx_onesided_progress(processes[i].onesided) > 0;
            }
        }
    }
}

void line_say(line_t *to, uint64_t from, const regx_onesided_message_t *message, const void *data,
              size_t length)
{
    uint8_t bytes[LINE_FRAME];

    memcpy(bytes, message, REGX_ONESIDED_HEADER);
    bytes[0] = REGX_ONESIDED_VERSION;
    if (length > 0) {
        memcpy(bytes + REGX_ONESIDED_HEADER, data, length);
    }
    regx_onesided_deliver(to->onesided, from, bytes, REGX_ONESIDED_HEADER + length);
}

/* ---- the three ---- */

stage_t stage;

void done(regx_onesided_request_t *request, regx_status_t status)
{
    call_t *call = (call_t *)request;

    call->times++;
    call->status = status;
}

int open_stage(void **state)
{
    memset(&stage, 0, sizeof(stage));
    line_open(stage.processes);
    stage.origin = &stage.processes[0];
    stage.target = &stage.processes[1];
    stage.stranger = &stage.processes[2];
    for (size_t i = 0; i < sizeof(stage.memory); i++) {
        stage.memory[i] = (char)(i * 7 + i / 256);
    }
    stage.base = stage.memory + BEFORE;
    assert_true(regx_onesided_offer(stage.target->onesided, &stage.window, stage.base, BYTES, false,
                                    stage.bytes));
    assert_int_equal(stage.bytes[offsetof(regx_onesided_name_t, kind)], REGX_ONESIDED_NAME);
    memcpy(&stage.name, stage.bytes, sizeof(stage.name));
    return 0;
}

int close_stage(void **state)
{
    line_close(stage.processes);
    return 0;
}

call_t *call(regx_onesided_type_t type, size_t at, void *local, size_t length)
{
    call_t *made = calloc(1, sizeof(*made));

    made->request = (regx_onesided_request_t){.type = type,
                                              .window = stage.name.handle,
                                              .address = stage.name.base + at,
                                              .local = local,
                                              .length = length,
                                              .size = 8,
                                              .done = done};
    return made;
}

call_t *asked(regx_onesided_type_t type, size_t at, void *local, size_t length)
{
    call_t *made = call(type, at, local, length);

    assert_int_equal(ask(made), REGX_PENDING);
    return made;
}

regx_status_t ask(call_t *made)
{
    return regx_onesided_ask(stage.origin->onesided, &stage.origin->peers[1], &made->request);
}

void expect(call_t *made, regx_status_t status)
{
    assert_int_equal(made->times, 1);
    assert_int_equal(made->status, status);
    free(made);
}

void expect_at_last(call_t *made, regx_status_t status)
{
    line_run(stage.processes);
    expect(made, status);
}

uint64_t malformed(const line_t *process)
{
    return process->counters.malformed;
}
