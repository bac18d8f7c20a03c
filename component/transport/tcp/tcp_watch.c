/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/tcp/tcp_watch.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/thread.h"

static void *run(void *argument)
{
    regx_tcp_watch_t *watch = argument;
    struct epoll_event event;

    for (;;) {
        const int events = epoll_wait(watch->epoll, &event, 1, -1);

        if (events < 0 && errno == EINTR) {
            continue;
        }
        atomic_store(&watch->fired, true);
        atomic_store(watch->asleep, false);
        if (events < 0) {
            return NULL; /* the program closed the descriptor */
        }
    }
}

/* Reported once, until it is asked for again. */
static bool ask_for(const regx_tcp_watch_t *watch, int descriptor, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = descriptor};

    return epoll_ctl(watch->epoll, operation, descriptor, &event) == 0;
}

static bool start(regx_tcp_watch_t *watch)
{
    watch->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (watch->epoll < 0) {
        return false;
    }
    if (regx_thread_start(&watch->thread, "regx-tcp", run, watch) != 0) {
        close(watch->epoll);
        return false;
    }
    return true;
}

regx_status_t regx_tcp_watch_arm(regx_tcp_watch_t *watch, int events, int listener,
                                 atomic_bool *asleep)
{
    int operation = EPOLL_CTL_MOD;

    if (watch->state == REGX_TCP_WATCH_NONE) {
        operation = EPOLL_CTL_ADD;
        watch->asleep = asleep;
        watch->events = events;
        watch->listener = listener;
        watch->state = events >= 0 && listener >= 0 && start(watch) ? REGX_TCP_WATCH_RUNNING
                                                                    : REGX_TCP_WATCH_REFUSED;
    }
    if (watch->state == REGX_TCP_WATCH_REFUSED) {
        return REGX_DENIED;
    }
    atomic_store(&watch->fired, false);
    if (!ask_for(watch, events, operation) || !ask_for(watch, listener, operation)) {
        regx_tcp_watch_stop(watch); /* the program closed a descriptor */
        watch->state = REGX_TCP_WATCH_REFUSED;
        return REGX_DENIED;
    }
    return REGX_OK;
}

/* The program may have closed the descriptor, whose number is another file's by now; or one of
 * those in it, which the kernel then took out. */
static bool is_still_ours(const regx_tcp_watch_t *watch)
{
    return epoll_ctl(watch->epoll, EPOLL_CTL_DEL, watch->events, NULL) == 0 ||
           epoll_ctl(watch->epoll, EPOLL_CTL_DEL, watch->listener, NULL) == 0;
}

void regx_tcp_watch_stop(regx_tcp_watch_t *watch)
{
    if (watch->state != REGX_TCP_WATCH_RUNNING) {
        return;
    }
    watch->state = REGX_TCP_WATCH_NONE;
    pthread_cancel(watch->thread); /* epoll_wait is where it ends, whoever closed the descriptor */
    pthread_join(watch->thread, NULL);
    if (is_still_ours(watch)) {
        close(watch->epoll);
    }
}
