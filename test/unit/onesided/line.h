/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes in memory, for the tests of onesided/, and the wire between them: it holds as many
 * frames as the test says, and delivers when the test says so.
 */
#ifndef REGX_TEST_LINE_H
#define REGX_TEST_LINE_H

#include "onesided/state.h"

enum { LINE_PROCESSES = 3, LINE_FRAMES = 256, LINE_FRAME = 256 };

typedef struct line line_t;

typedef struct line_frame {
    size_t length;
    uint8_t data[LINE_FRAME];
} line_frame_t;

typedef struct line_conn {
    regx_conn_t conn; /* first */
    line_t *to;
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

#endif
