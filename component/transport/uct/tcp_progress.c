/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving side of tcp, and what drives it.
 */
#include <string.h>
#include <time.h>

#include "transport/uct/tcp_internal.h"

/* How often to look. Looking costs a system call or two, more than all the rest of regx's
 * progress, so it is rationed by time: a process without a connection looks rarely, one where
 * nothing came lately a little later than one in the middle of a conversation, which always
 * looks. The clock is read only once in CLOCK_INTERVAL calls; a program that calls MPI rarely looks
 * when the coarse clock ticks, which costs less, once in TICK_INTERVAL calls. */
#define CLOCK_INTERVAL 64u
#define TICK_INTERVAL 8u
#define UNUSED_NS 100000
#define IDLE_NS 5000
#define IDLE_POLLS 256u
/* Newcomers are looked for once in so many looks. */
#define ACCEPT_INTERVAL 16u

_Static_assert((CLOCK_INTERVAL & (CLOCK_INTERVAL - 1)) == 0, "no division is needed");

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static __attribute__((noinline)) bool clock_says(regx_tcp_t *tcp, bool in_use)
{
    const int64_t tick = now_ns(CLOCK_MONOTONIC_COARSE);

    if (tick == tcp->tick && (tcp->calls & (CLOCK_INTERVAL - 1)) != 0) {
        return false;
    }
    const int64_t now = now_ns(CLOCK_MONOTONIC);
    tcp->tick = tick;
    if (now - tcp->looked < (in_use ? IDLE_NS : UNUSED_NS)) {
        return false;
    }
    tcp->looked = now;
    return true;
}

static bool is_due(regx_tcp_t *tcp)
{
    const bool in_use = atomic_load_explicit(&tcp->in_use, memory_order_relaxed);

    if (in_use && tcp->idle < IDLE_POLLS) {
        return true;
    }
    return (++tcp->calls & (TICK_INTERVAL - 1)) == 0 && clock_says(tcp, in_use);
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

/* Does what a message asks for. REGX_OK; REGX_INVALID: it is refused. */
static regx_status_t accept_frame(regx_tcp_t *tcp, const regx_tcp_frame_t *frame)
{
    const regx_transport_events_t *events = &tcp->config->events;
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
        status = regx_tcp_note_hello(tcp, frame->sender);
        break;
    case REGX_TCP_GOODBYE:
        status = regx_tcp_note_goodbye(tcp, frame->sender);
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
        regx_count(tcp->config->counters, &tcp->config->counters->malformed, 1);
    }
    return UCS_OK;
}

static __attribute__((noinline)) int look(regx_tcp_t *tcp)
{
    const bool in_use = atomic_load_explicit(&tcp->in_use, memory_order_relaxed);
    unsigned moved;
    int events;

    if (!regx_enter(&tcp->entrance)) {
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
    regx_tcp_reap(tcp);
    events = tcp->events;
    if (moved > 0) {
        atomic_store_explicit(&tcp->in_use, true, memory_order_relaxed);
    }
    tcp->idle = moved > 0 || events > 0 ? 0 : tcp->idle + 1;
    regx_leave(&tcp->entrance);
    return events;
}

int regx_tcp_progress(regx_tcp_t *tcp)
{
    return is_due(tcp) ? look(tcp) : 0;
}
