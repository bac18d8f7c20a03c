/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What transfers use stands in a table that hooks read without a lock. A hold that is there while a
 * hook reads the table is seen; one that comes or goes meanwhile may be seen or not, as if it had
 * come or gone a moment earlier or later.
 *
 * A hook runs inside the program's munmap or free, whose thread may hold malloc's lock or one of
 * MPI's. Progress takes such locks, so a thread of the drain's own calls it. It cannot deadlock:
 *   - The thread that waits takes no lock, allocates nothing, and waits by a futex with a time-out. If
 *     another thread needs what it holds, the time runs out, and both go on. Memory then changes while
 *     it is in use, which is reported as by `warn`.
 *   - The drain's thread does not wait for itself when progress frees memory, nor does a forked child.
 *   - Marking a transfer waits for no thread. If there is no place left, the transfer is not waited
 *     for, which is counted.
 */
#include "registration/monitor/monitor.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/thread.h"

typedef struct hold {
    _Atomic uintptr_t end; /* 0: free; TAKEN: being filled in */
    _Atomic uintptr_t start;
} hold_t;

#define TAKEN 1u

struct regx_drain {
    regx_drain_config_t config;
    pid_t process;
    pthread_t thread;
    bool runs;              /* the helper was started and not yet joined */
    _Atomic pid_t helper;   /* its thread id; 0: not yet known */
    _Atomic uint32_t awake; /* raised when a thread begins to wait, or the helper is to stop */
    _Atomic bool stop;
    _Atomic uint32_t waiting;  /* threads */
    _Atomic uint32_t released; /* holds that were let go while a thread waited */
    _Atomic uint32_t used;     /* places from here on have never been taken */
    hold_t holds[REGX_HOLDS_MAX];
};

static void *help(void *argument)
{
    regx_drain_t *drain = argument;

    atomic_store(&drain->helper, (pid_t)regx_raw(SYS_gettid, 0, 0, 0, 0, 0));
    while (!atomic_load(&drain->stop)) {
        const uint32_t awake = atomic_load(&drain->awake);

        if (atomic_load(&drain->waiting) > 0) {
            drain->config.progress(drain->config.context);
            sched_yield();
        } else if (!atomic_load(&drain->stop)) {
            regx_thread_wait(&drain->awake, awake, 0);
        }
    }
    return NULL;
}

static void wake_helper(regx_drain_t *drain)
{
    atomic_fetch_add(&drain->awake, 1);
    regx_thread_wake(&drain->awake);
}

regx_drain_t *regx_drain_open(const regx_drain_config_t *config)
{
    regx_drain_t *drain = calloc(1, sizeof(*drain));

    if (drain == NULL) {
        return NULL;
    }
    drain->config = *config;
    drain->process = getpid();
    if (regx_thread_start(&drain->thread, "regx-drain", help, drain) != 0) {
        free(drain);
        return NULL;
    }
    drain->runs = true;
    return drain;
}

void regx_drain_stop(regx_drain_t *drain)
{
    if (!drain->runs || getpid() != drain->process) {
        return;
    }
    atomic_store(&drain->stop, true);
    wake_helper(drain);
    pthread_join(drain->thread, NULL);
    drain->runs = false;
}

void regx_drain_close(regx_drain_t *drain)
{
    regx_drain_stop(drain);
    free(drain);
}

uint32_t regx_drain_hold(regx_drain_t *drain, const void *base, size_t length)
{
    const uintptr_t start = (uintptr_t)base & REGX_UNTAGGED_MAX; /* as hooks name it */
    uint32_t place = 0;
    uintptr_t end = 0;

    if (drain == NULL) {
        return 0;
    }
    /* The lowest free place, so that hooks read few. */
    while (place < REGX_HOLDS_MAX &&
           !atomic_compare_exchange_strong(&drain->holds[place].end, &end, TAKEN)) {
        end = 0;
        place++;
    }
    if (place == REGX_HOLDS_MAX) {
        regx_tally(drain->config.counters->fallbacks, "inuse=drain: too many transfers at once");
        return 0;
    }
    uint32_t used = atomic_load(&drain->used);

    while (used <= place && !atomic_compare_exchange_weak(&drain->used, &used, place + 1)) {
    }
    atomic_store(&drain->holds[place].start, start);
    atomic_store(&drain->holds[place].end, start + length);
    return place + 1;
}

/* First the place, then who waits: a waiter raises `waiting` before it reads the place. */
void regx_drain_let_go(regx_drain_t *drain, uint32_t hold)
{
    if (hold == 0) {
        return;
    }
    atomic_store(&drain->holds[hold - 1].end, 0);
    if (atomic_load(&drain->waiting) > 0) {
        atomic_fetch_add(&drain->released, 1);
        regx_thread_wake(&drain->released);
    }
}

static bool is_held(regx_drain_t *drain, uintptr_t start, uintptr_t end)
{
    const uint32_t used = atomic_load(&drain->used);

    for (uint32_t place = 0; place < used; place++) {
        const uintptr_t last = atomic_load(&drain->holds[place].end);

        if (last > start && last != TAKEN && atomic_load(&drain->holds[place].start) < end) {
            return true;
        }
    }
    return false;
}

void regx_drain_wait(regx_drain_t *drain, uintptr_t start, uintptr_t end)
{
    if (drain == NULL || !is_held(drain, start, end) || getpid() != drain->process ||
        (pid_t)regx_raw(SYS_gettid, 0, 0, 0, 0, 0) == atomic_load(&drain->helper)) {
        return; /* a child and the helper do not wait */
    }
    const int64_t until = regx_now_ns() + (int64_t)drain->config.milliseconds * 1000000;
    int64_t left = until - regx_now_ns();
    bool held = true;

    atomic_fetch_add(&drain->config.counters->drain_waits, 1);
    atomic_fetch_add(&drain->waiting, 1);
    wake_helper(drain);
    while (held && left > 0) {
        const uint32_t released = atomic_load(&drain->released);

        held = is_held(drain, start, end);
        if (held) {
            regx_thread_wait(&drain->released, released, (unsigned)(left / 1000000) + 1);
            left = until - regx_now_ns();
        }
    }
    atomic_fetch_sub(&drain->waiting, 1);
    if (held) {
        regx_tally(drain->config.counters->fallbacks, REGX_DRAIN_EXPIRED);
    }
}
