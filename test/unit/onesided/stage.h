/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes in memory, for the tests of onesided/, and the wire between them: it holds as many
 * frames as the test says, and delivers when the test says so. There are three: 0 asks, 1 has a
 * window, 2 is a stranger to what they do.
 */
#pragma once

#include "../unit.h"

#include "onesided/onesided.h"

enum { LINE_PROCESSES = 3, LINE_FRAMES = 256, LINE_FRAME = 256 };

typedef struct line line_t;

typedef struct line_frame {
    size_t length;
    uint8_t data[LINE_FRAME];
} line_frame_t;

typedef struct line_conn {
    regx_conn_t conn;     /* first */
    unsigned count, room; /* frames under way, and how many may be */
    line_frame_t frames[LINE_FRAMES];
} line_conn_t;

struct line {
    regx_transport_t transport; /* first */
    uint64_t id;
    regx_counters_t counters;
    _Atomic unsigned waiting, ended;
    bool progressing;
    unsigned unanswered;
    uint64_t unanswered_peer; /* the last */
    bool copies;              /* the kernel copies */
    regx_onesided_t *onesided;
    line_conn_t conns[LINE_PROCESSES];
    regx_onesided_peer_t peers[LINE_PROCESSES];
};

/* All of them know each other. */
void line_open(line_t processes[LINE_PROCESSES]);
/* Asserts that nothing is left. */
void line_close(line_t processes[LINE_PROCESSES]);

/* Delivers the next frame from one to the other, and completes what has ended by it. false: there
 * is none, or this was called from inside a delivery to that process: progress cannot be entered
 * there. */
bool line_deliver(line_t *from, line_t *to);
/* The same, and leaves to complete what has ended. */
bool line_deliver_only(line_t *from, line_t *to);
/* Delivers and makes progress until nothing moves. */
void line_run(line_t processes[LINE_PROCESSES]);
/* Hands a message to a process as if it had come from that peer. */
void line_say(line_t *to, uint64_t from, const regx_onesided_message_t *message, const void *data,
              size_t length);

/* ---- the three ---- */

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
/* The same, asked at once. */
call_t *asked(regx_onesided_type_t type, size_t at, void *local, size_t length);
/* That it has ended so, once. */
void expect(call_t *made, regx_status_t status);
/* The same, when nothing moves any more. */
void expect_at_last(call_t *made, regx_status_t status);
/* The end of a call that expects nothing else. */
void done(regx_onesided_request_t *request, regx_status_t status);

uint64_t malformed(const line_t *process);
