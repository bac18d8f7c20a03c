/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving side of tcp, and what drives it.
 */
#include <string.h>

#include "transport/tcp/tcp_internal.h"

/* A look costs a system call or two, more than all the rest of regx's progress. In the middle of a
 * conversation every call looks. After so many looks in vain they are rationed by time
 * (REGX_TCP_IDLE_NS). If they still disturb something else after so many more, which take 10 ms, the
 * watch takes over; before anything has come at all, when they are rationed by the caller, after a
 * few. */
#define IDLE_LOOKS 256u
#define REST_LOOKS (IDLE_LOOKS + 2000u)
#define REST_UNUSED_LOOKS 4u

static bool is_unused(const regx_tcp_t *tcp)
{
    return atomic_load_explicit(&tcp->super.unused, memory_order_relaxed);
}

/* Writes a piece to where its sender may write. REGX_OK; REGX_INVALID. */
static regx_status_t write_piece(regx_tcp_t *tcp, const regx_tcp_frame_t *frame)
{
    if (frame->target == REGX_TARGET_REGION) {
        return regx_rkey_table_write(tcp->config.rkeys, &frame->key, frame->offset, frame->data,
                                     frame->length);
    }
    if (frame->offset > tcp->super.pool_size ||
        frame->length > tcp->super.pool_size - frame->offset) {
        return REGX_INVALID;
    }
    if (frame->length > 0) {
        memcpy((char *)tcp->super.pool_memory + frame->offset, frame->data, frame->length);
    }
    return REGX_OK;
}

/* Does what a message asks for. REGX_OK; REGX_INVALID: it is refused. */
static regx_status_t accept_frame(regx_tcp_t *tcp, const regx_tcp_frame_t *frame)
{
    const regx_transport_events_t *events = &tcp->config.events;
    regx_status_t status = REGX_OK;

    switch (frame->kind) {
    case REGX_TCP_FRAME:
        events->deliver(events->context, frame->sender, frame->tag, frame->data, frame->length);
        break;
    case REGX_TCP_PIECE:
        status = write_piece(tcp, frame);
        break;
    case REGX_TCP_LAST:
        status = write_piece(tcp, frame);
        if (status == REGX_OK) {
            events->deliver(events->context, frame->sender, frame->tag, frame->notice,
                            frame->notice_length);
        }
        break;
    case REGX_TCP_HELLO:
        status = regx_tcp_talkers_add(&tcp->talkers, frame->sender);
        break;
    case REGX_TCP_GOODBYE:
        status = regx_tcp_talkers_remove(&tcp->talkers, frame->sender);
        break;
    }
    return status;
}

ucs_status_t regx_tcp_receive(void *context, void *message, size_t length, unsigned flags)
{
    regx_tcp_t *tcp = context;
    regx_tcp_frame_t frame;

    (void)flags;
    tcp->events++;
    if (regx_tcp_decode(message, length, &frame) != REGX_OK ||
        accept_frame(tcp, &frame) != REGX_OK) {
        regx_count(tcp->config.counters, &tcp->config.counters->malformed, 1);
    }
    return UCS_OK;
}

/* Leaves it to the watch to find what comes. The flag is set first: if there is something already,
 * the watch ends it at once. */
static void rest(regx_tcp_t *tcp)
{
    if (!atomic_load_explicit(&tcp->super.disturbs, memory_order_relaxed) ||
        tcp->watch.state == REGX_TCP_WATCH_REFUSED ||
        tcp->idle < (is_unused(tcp) ? REST_UNUSED_LOOKS : REST_LOOKS) ||
        (is_unused(tcp) && atomic_load(&tcp->super.watched)) || tcp->arbiter.first != NULL ||
        tcp->closing != NULL) {
        return;
    }
    const bool was_unused = is_unused(tcp);

    atomic_store(&tcp->super.unused, true);
    if (regx_tcp_watch_arm(&tcp->watch, tcp->events_fd, tcp->listener_fd, &tcp->super.unused) ==
        REGX_OK) {
        atomic_store(&tcp->super.watched, true);
    } else {
        atomic_store(&tcp->super.watched, false);
        atomic_store(&tcp->super.unused, was_unused);
    }
}

static __attribute__((noinline)) int look(regx_tcp_t *tcp)
{
    unsigned moved;
    int events;

    if (!regx_try_lock_enter(&tcp->try_lock)) {
        return 0;
    }
    const bool woken = atomic_load_explicit(&tcp->watch.fired, memory_order_relaxed) &&
                       atomic_exchange(&tcp->watch.fired, false);

    regx_count_transport(tcp->config.counters, REGX_COUNTER_tcp_looks, 1);
    tcp->events = 0;
    tcp->receiving = true;
    if (woken || is_unused(tcp) || regx_pace_due(&tcp->newcomers)) {
        ucs_async_poll(tcp->async);
    }
    moved = uct_worker_progress(tcp->worker);
    tcp->receiving = false;
    regx_tcp_take_turns(tcp);
    regx_tcp_clean_up(tcp);
    regx_tcp_reap(tcp);
    events = tcp->events;
    if (moved > 0) {
        atomic_store_explicit(&tcp->super.unused, false, memory_order_relaxed);
    }
    tcp->idle = woken || moved > 0 || events > 0 ? 0 : tcp->idle + 1;
    rest(tcp);
    regx_try_lock_leave(&tcp->try_lock);
    return events;
}

/* While nobody uses tcp, whoever calls rations the calls. */
int regx_tcp_progress(regx_transport_t *transport)
{
    regx_tcp_t *tcp = regx_tcp_of(transport);

    if (atomic_load_explicit(&tcp->stirred, memory_order_relaxed)) {
        atomic_store_explicit(&tcp->stirred, false, memory_order_relaxed);
        tcp->idle = 0;
    }
    return tcp->idle < IDLE_LOOKS || is_unused(tcp) || regx_pace_due(&tcp->pace) ? look(tcp) : 0;
}
