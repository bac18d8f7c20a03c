/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two verbs transports in this process, and what arrived at each. The programs exist twice: on the
 * device that is here (test/machine has one; where there is none they skip themselves), and on a
 * device in memory (fake_device.h).
 */
#ifndef REGX_TEST_SIDES_H
#define REGX_TEST_SIDES_H

#include "../../unit.h"

#include "transport/verbs/ep.h"
#include "transport/verbs/verbs.h"

extern const regx_transport_ops_t regx_transport_ops;

enum { POOL = 256 * 1024, ONE = 1000001, TWO = 2000002, THREE = 3000003, MIB = 1 << 20 };

typedef struct side {
    regx_transport_config_t config;
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conn;
    uint64_t self, other;
    /* What arrived. */
    unsigned delivered;
    size_t last_length;
    uint8_t last_tag;
    uint8_t last[REGX_VERBS_ZCOPY_MAX];
    unsigned broken, silent;
    char what[160]; /* of the last that broke */
    void (*on_deliver)(struct side *side);
} side_t;

extern side_t one, two;
extern unsigned done_ok, done_failed;
/* What sides are opened with. NULL: the defaults. */
extern const regx_verbs_settings_t *side_settings;
/* The ports of `one` and `two`, such as "fake1:1". NULL: the transport chooses. */
extern const char *side_ports[2];

regx_verbs_t *verbs_of(const side_t *side);
/* Opens a side; skips the test where there is no device. */
void side_open(side_t *side, uint64_t self, uint64_t other, bool threads);
void side_connect(side_t *side, const side_t *to);
/* Opens both sides and connects them. */
void sides_open(bool threads);
/* Disconnects and closes both. Nothing may be left over, and nothing malformed was seen. */
void sides_close(void);
void sides_progress(void);
/* Waits until what is broken at `one` has come to its end, and all that was under way with it. */
void sides_settle(void);
/* Whether an endpoint of the side broke or leaves, and progress has something to do. */
bool side_is_ending(const side_t *side);
/* An endpoint that asks for its peer. */
regx_ep_t *side_asking(const side_t *side);

/* A regx_pack_t; context points to the number of the stream. */
void side_pack(void *context, void *to, size_t length);
/* Sends a stamped frame, however long it takes to get room. */
void side_send(const side_t *from, uint8_t tag, uint64_t stream, size_t length);
void side_await(const unsigned *count, unsigned value);
/* An on_deliver that wants frames of the streams side_expected, side_expected + 1 and so on. */
void side_in_order(side_t *side);
extern unsigned side_expected;
/* Sends a stamped frame of stream 1, if that is possible now. */
regx_status_t side_try(regx_conn_t *conn, size_t length);
/* One frame each way: the round-th of each, of the streams `round` and `round` + 1. */
void sides_exchange(unsigned round, size_t length);
/* Connects `one` to a side that is not `two`. */
regx_conn_t *side_connect_one_to(const side_t *to);
/* Closes a transport that others may still be connected to, in this same process. */
void side_close(const side_t *side);
/* Opens `one`, `two` and `count` others. `one` is connected to the
 * others by conns; `one` and `two` to each other. */
void sides_open_many(side_t *others, regx_conn_t **conns, unsigned count);
void sides_close_many(const side_t *others, regx_conn_t **conns, unsigned count);
/* They count done_ok or done_failed. */
void side_put_done(regx_put_t *put, regx_status_t status);
void side_get_done(regx_get_t *get, regx_status_t status);
/* Drives a queue pair to error, as if it had failed by itself. */
void side_fail(struct ibv_qp *qp);
void side_reg(const side_t *side, void *base, size_t length, unsigned access, regx_mr_t *mr);

#endif
