/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The watch: a thread that sleeps until something comes by tcp, so that progress makes no system
 * call while nothing does. It is started when a process that is busy with something else has not
 * used tcp for some milliseconds, and only sets two flags: the sockets are read by progress alone.
 *
 * All functions but the thread's own are called by one thread at a time.
 */
#ifndef REGX_TRANSPORT_TCP_WATCH_H
#define REGX_TRANSPORT_TCP_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum regx_tcp_watch_state {
    REGX_TCP_WATCH_NONE, /* not yet started */
    REGX_TCP_WATCH_RUNNING,
    REGX_TCP_WATCH_REFUSED /* it cannot be: progress has to look from time to time */
} regx_tcp_watch_state_t;

typedef struct regx_tcp_watch {
    regx_tcp_watch_state_t state; /* begins as zero */
    pthread_t thread;
    int epoll;
    int events, listener; /* in it as long as its number is not another file's */
    atomic_bool *asleep;  /* the owner's flag; the thread ends it */
    atomic_bool fired;    /* something came since the last regx_tcp_watch_arm */
} regx_tcp_watch_t;

/* Has the thread set `asleep` to false once when one of the two descriptors can be read, at
 * once if it can already. Starts it at the first call. The descriptors must stay
 * the same, and open until stop. REGX_OK; REGX_DENIED: there can be no thread, now and later. */
regx_status_t regx_tcp_watch_arm(regx_tcp_watch_t *watch, int events, int listener,
                                 atomic_bool *asleep);

/* Ends the thread, if there is one, also if the program has closed its descriptors. */
void regx_tcp_watch_stop(regx_tcp_watch_t *watch);

#endif
