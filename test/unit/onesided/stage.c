/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage.h"

#include <stdlib.h>

stage_t stage;

void done(regx_onesided_request_t *request, regx_status_t status)
{
    call_t *call = (call_t *)request;

    call->times++;
    call->status = status;
}

int open_stage(void **state)
{
    (void)state;
    memset(&stage, 0, sizeof(stage));
    line_open(stage.processes);
    stage.origin = &stage.processes[0];
    stage.target = &stage.processes[1];
    stage.stranger = &stage.processes[2];
    for (size_t i = 0; i < sizeof(stage.memory); i++) {
        stage.memory[i] = (char)(i * 7 + i / 256);
    }
    stage.base = stage.memory + BEFORE;
    assert_true(
        regx_onesided_offer(stage.target->onesided, &stage.window, stage.base, BYTES, stage.bytes));
    assert_true(regx_onesided_name_is(stage.bytes));
    regx_onesided_name_unpack(stage.bytes, &stage.name);
    return 0;
}

int close_stage(void **state)
{
    (void)state;
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

uint64_t malformed(const line_t *process)
{
    return process->counters.malformed;
}
