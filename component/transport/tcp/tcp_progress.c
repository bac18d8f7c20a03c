/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receiving side of tcp, and what drives it.
 */
#include <sys/epoll.h>

#include "transport/tcp/tcp_internal.h"

/* A look costs a system call or two, more than all the rest of regx's progress. In the middle of a
 * conversation every call looks. After so many looks in vain they are rationed by time
 * (REGX_TCP_IDLE_NS). If they still disturb something else after so many more, which take 10 ms,
 * the watch takes over; before anything has come at all, when they are rationed by the caller,
 * after a few. */
#define IDLE_LOOKS 256u
#define REST_LOOKS (IDLE_LOOKS + 2000u)
#define REST_UNUSED_LOOKS 4u

static bool is_unused(const regx_tcp_t *tcp)
{
    return atomic_load_explicit(&tcp->super.unused, memory_order_relaxed);
}

/* The link that was read last is asked first, by a read that may be in vain: what comes there, as
 * in a conversation of two, costs one system call. The others are asked for by epoll: once in so
 * many looks, if there are others and if there are none but who may yet connect. */
#define LOOKS_OF_SEVERAL 2u
#define LOOKS_OF_ONE 16u
enum { EVENTS = 16 };

static bool serve(regx_tcp_t *tcp, regx_tcp_link_t *link, uint32_t events)
{
    if (link == NULL) {
        return regx_tcp_accept(tcp);
    }
    if (link->state == REGX_TCP_LINK_CONNECTING && link->asked == REGX_TCP_NOT_ASKED) {
        regx_tcp_link_ask(link);
        return true;
    }
    if (link->state == REGX_TCP_LINK_ENDED || (events & (uint32_t)~EPOLLOUT) == 0) {
        return false;
    }
    const bool moved = regx_tcp_link_read(link);

    if (moved && link->state == REGX_TCP_LINK_OPEN) {
        tcp->hot = link;
    }
    return moved;
}

bool regx_tcp_poll(regx_tcp_t *tcp, bool all)
{
    const unsigned looks = tcp->link_count > 1 ? LOOKS_OF_SEVERAL : LOOKS_OF_ONE;
    struct epoll_event events[EVENTS];
    bool moved = false;

    if (tcp->hot != NULL && tcp->hot->state == REGX_TCP_LINK_OPEN) {
        moved = regx_tcp_link_read(tcp->hot);
        if (!all && ++tcp->polls % looks != 0) {
            return moved;
        }
    }
    const int count = epoll_wait(tcp->epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++) {
        moved |= serve(tcp, events[i].data.ptr, events[i].events);
    }
    if (tcp->newcomer >= 0) {
        moved |= regx_tcp_accept(tcp);
    }
    return moved;
}

/* Leaves it to the watch to find what comes. The flag is set first: if there is something already,
 * the watch ends it at once. */
static void rest(regx_tcp_t *tcp)
{
    if (!atomic_load_explicit(&tcp->super.disturbs, memory_order_relaxed) ||
        tcp->watch.state == REGX_TCP_WATCH_REFUSED ||
        tcp->idle < (is_unused(tcp) ? REST_UNUSED_LOOKS : REST_LOOKS) ||
        (is_unused(tcp) && atomic_load(&tcp->super.watched)) || tcp->arbiter.first != NULL ||
        tcp->closing != NULL || tcp->newcomer >= 0) {
        return;
    }
    const bool was_unused = is_unused(tcp);

    atomic_store(&tcp->super.unused, true);
    if (regx_tcp_watch_arm(&tcp->watch, tcp->epoll, tcp->listener, &tcp->super.unused) == REGX_OK) {
        atomic_store(&tcp->super.watched, true);
    } else {
        atomic_store(&tcp->super.watched, false);
        atomic_store(&tcp->super.unused, was_unused);
    }
}

static __attribute__((noinline)) int look(regx_tcp_t *tcp)
{
    bool moved;
    int events;

    if (!regx_try_lock_enter(&tcp->try_lock)) {
        return 0;
    }
    const bool woken = atomic_load_explicit(&tcp->watch.fired, memory_order_relaxed) &&
                       atomic_exchange(&tcp->watch.fired, false);

    regx_count_transport(tcp->config.counters, REGX_COUNTER_tcp_looks, 1);
    tcp->events = 0;
    moved = regx_tcp_poll(tcp, woken || is_unused(tcp));
    regx_tcp_take_turns(tcp);
    regx_tcp_clean_up(tcp);
    regx_tcp_reap(tcp);
    regx_tcp_sweep(tcp);
    regx_tcp_look_for_answers(tcp);
    events = tcp->events;
    if (moved) {
        atomic_store_explicit(&tcp->super.unused, false, memory_order_relaxed);
    }
    tcp->idle = woken || moved || events > 0 ? 0 : tcp->idle + 1;
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
