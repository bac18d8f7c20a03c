/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Three processes: 0 asks, 1 has a window, 2 is a stranger to what they do.
 */
#ifndef REGX_TEST_ONESIDED_STAGE_H
#define REGX_TEST_ONESIDED_STAGE_H

#include "../unit.h"

#include "line.h"

enum { BYTES = 4096, BEFORE = 64 };

typedef struct stage {
    line_t processes[LINE_PROCESSES];
    line_t *origin, *target, *stranger;
    _Alignas(8) char memory[BEFORE + BYTES + BEFORE]; /* the window, and what lies around it */
    char *base;
    regx_onesided_window_t window;
    regx_onesided_name_t name;
    uint8_t bytes[REGX_ONESIDED_NAME_SIZE];
} stage_t;

extern stage_t stage;

typedef struct call {
    regx_onesided_request_t request; /* first */
    unsigned times;
    regx_status_t status;
    const struct call *awaits; /* another, before its done returns */
} call_t;

/* Setup and teardown of each test. */
int open_stage(void **state);
int close_stage(void **state);

/* Something to ask at that place of the window; the test that expects its end frees it. */
call_t *call(regx_onesided_type_t type, size_t at, void *local, size_t length);
regx_status_t ask(call_t *made);
/* That it has ended so, once. */
void expect(call_t *made, regx_status_t status);
/* The end of a call that expects nothing else. */
void done(regx_onesided_request_t *request, regx_status_t status);

uint64_t malformed(const line_t *process);

#endif
