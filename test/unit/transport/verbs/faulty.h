/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a real device does not do at will: its queues refuse, completions are errors, it reports
 * that it failed. One of the two sides has such a device. A program that links this wraps what
 * it defines around libibverbs (verbs.am).
 */
#ifndef REGX_TEST_FAULTY_H
#define REGX_TEST_FAULTY_H

#include "sides.h"

enum { RECEIVES = REGX_VERBS_RECEIVES, HELD = 4 * RECEIVES };

/* What goes wrong at `one`. */
struct faults {
    struct ibv_context_ops ops; /* the device's own */
    enum ibv_wc_status datagram_sent, datagram_received, received;
    int datagram_post, datagram_receive_post, receive_post; /* errors */
    bool poll;
    enum ibv_event_type event;
    int making;                 /* a queue pair: fails so, … */
    const struct ibv_pd *makes; /* … in this domain; … */
    uint64_t refused;           /* … so often */
    struct ibv_qp *event_qp;    /* NULL: no event */
    bool told;                  /* of that one */
    uint32_t destroyed;         /* the number of the last queue pair that was */
    unsigned lost;              /* of its completions of receives */
    struct ibv_wc held[HELD];   /* completions that were seen here, and not polled yet, … */
    int held_first, held_end;   /* … from this one to that */
};
extern struct faults faults;

void open_faulty(void);
/* The same, and each has sent the other something. */
void open_connected(void);
void close_faulty(void);

/* Waits until `one` says so. */
void await_broken(const char *says);

regx_status_t try_to_send(const side_t *side);
/* The first time: it asks to be connected. */
void ask(const side_t *side);

#endif
