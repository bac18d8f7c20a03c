/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Process 0 asks, process 1 has a window that a device reaches. The device notes what it is to do,
 * and does it when the test says.
 */
#ifndef REGX_TEST_DEVICE_STAGE_H
#define REGX_TEST_DEVICE_STAGE_H

#include "../unit.h"

#include "line.h"
#include "onesided/device.h"

enum { BYTES = 8192, COPIED = 1000, UNDER_WAY = REGX_ONESIDED_PENDING + 1, BEFORE = 64 };

typedef struct device_stage {
    line_t processes[LINE_PROCESSES];
    line_t *origin, *target;
    regx_transport_ops_t ops;
    regx_registry_t registries[LINE_PROCESSES];
    _Alignas(4096) uint8_t before[64]; /* so that `memory` is not of whole pages */
    uint8_t memory[BYTES], mine[BYTES];
    regx_window_t *window;
    regx_window_name_t name;
    /* The device. */
    regx_put_t *puts[UNDER_WAY];
    regx_get_t *gets[UNDER_WAY];
    regx_fetch_t *fetches[UNDER_WAY];
    unsigned put_count, get_count, fetch_count;
    unsigned asked; /* the access of the last region */
    unsigned regs, deregs;
    bool refuses_memory, refuses_atomics, has_no_room, loses_room;
} device_stage_t;

extern device_stage_t stage;

typedef struct call {
    regx_onesided_request_t request;
    unsigned times;
    regx_status_t status;
} call_t;

/* Setup and teardown of each test. */
int open_stage(void **state);
int close_stage(void **state);

/* The target's memory becomes the window. */
void offer(void *base, size_t length);
/* A put or a get at that place of the window, from or to the same place of `mine`. */
call_t new_call(regx_onesided_type_t type, size_t offset, size_t length);
regx_status_t move(call_t *call);
/* The device does, or loses, all that it has. */
void run(regx_status_t status);
/* That the call has ended so, once. */
void expect(const call_t *call, regx_status_t status);
/* The end of a call. */
void done(regx_onesided_request_t *request, regx_status_t status);

#endif
