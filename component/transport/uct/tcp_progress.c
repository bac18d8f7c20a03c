/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving side of tcp, and what drives it.
 */
#include <string.h>

#include "transport/uct/tcp_internal.h"

/* How often to look. Looking costs a system call, more than all the rest of regx's progress. A
 * process that has no connection looks rarely; one that has, always, or now and then while
 * nothing comes (a skipped call costs nanoseconds, a message over tcp ten microseconds). */
#define UNUSED_INTERVAL 64u
#define IDLE_POLLS 256u
#define IDLE_INTERVAL 8u
/* Newcomers are looked for once in so many looks. */
#define ACCEPT_INTERVAL 16u

_Static_assert((UNUSED_INTERVAL & (UNUSED_INTERVAL - 1)) == 0 &&
                   (IDLE_INTERVAL & (IDLE_INTERVAL - 1)) == 0,
               "powers of two, so that no division is needed");

static bool is_due(regx_tcp_t *tcp)
{
    const unsigned interval = !atomic_load_explicit(&tcp->in_use, memory_order_relaxed)
                                  ? UNUSED_INTERVAL
                              : tcp->idle >= IDLE_POLLS ? IDLE_INTERVAL
                                                        : 1;

    return (++tcp->calls & (interval - 1)) == 0;
}

/* Writes a piece to where its sender may write. REGX_OK; REGX_INVALID. */
static regx_status_t write_piece(regx_tcp_t *tcp, const regx_tcp_frame_t *frame)
{
    if (frame->target == REGX_TARGET_REGION) {
        return regx_windows_write(tcp->windows, &frame->key, frame->offset, frame->data,
                                  frame->length);
    }
    if (frame->offset > tcp->pool_size || frame->length > tcp->pool_size - frame->offset) {
        return REGX_INVALID;
    }
    if (frame->length > 0) {
        memcpy(tcp->pool + frame->offset, frame->data, frame->length);
    }
    return REGX_OK;
}

ucs_status_t regx_tcp_receive(void *context, void *message, size_t length, unsigned flags)
{
    regx_tcp_t *tcp = context;
    const regx_transport_events_t *events = &tcp->config->events;
    regx_tcp_frame_t frame;

    (void)flags;
    tcp->events++;
    if (regx_tcp_decode(message, length, &frame) != REGX_OK ||
        (frame.kind != REGX_TCP_FRAME && write_piece(tcp, &frame) != REGX_OK)) {
        regx_count(tcp->config->counters, &tcp->config->counters->malformed, 1);
    } else if (frame.kind == REGX_TCP_FRAME) {
        events->deliver(events->context, frame.sender, frame.tag, frame.data, frame.length);
    } else if (frame.kind == REGX_TCP_LAST) {
        events->deliver(events->context, frame.sender, frame.tag, frame.notice,
                        frame.notice_length);
    }
    return UCS_OK;
}

int regx_tcp_progress(regx_tcp_t *tcp)
{
    const bool in_use = atomic_load_explicit(&tcp->in_use, memory_order_relaxed);
    unsigned moved;
    int events;

    if (!is_due(tcp) || !regx_tcp_enter(tcp)) {
        return 0;
    }
    tcp->events = 0;
    tcp->receiving = true;
    if (!in_use || ++tcp->polls % ACCEPT_INTERVAL == 0) {
        ucs_async_poll(tcp->async);
    }
    moved = uct_worker_progress(tcp->worker);
    tcp->receiving = false;
    regx_tcp_take_turns(tcp);
    regx_tcp_mourn(tcp);
    regx_tcp_reap(tcp, false);
    events = tcp->events;
    if (moved > 0) {
        atomic_store_explicit(&tcp->in_use, true, memory_order_relaxed);
    }
    tcp->idle = moved > 0 || events > 0 ? 0 : tcp->idle + 1;
    regx_tcp_leave(tcp);
    return events;
}
