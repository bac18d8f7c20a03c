/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/cache.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct regx_last_state regx_last_state[REGX_LAST_STATES];

static _Atomic uint64_t threads; /* that have had a thread state */
/* This thread is that number of them; 0: not yet. */
static _Thread_local uint64_t self_number __attribute__((tls_model("initial-exec")));

/* linux/membarrier.h */
#define PRIVATE_EXPEDITED 8
#define REGISTER_PRIVATE_EXPEDITED 16

bool regx_membarrier_works(void)
{
    return syscall(SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool regx_membarrier(void)
{
    return syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) == 0;
}

static size_t size_of(uint32_t regions)
{
    return sizeof(regx_thread_state_t) + regions * sizeof(uint64_t);
}

regx_thread_state_t *regx_thread_states_add(regx_thread_state_t **states, uint32_t regions)
{
    const size_t size = size_of(regions);
    regx_thread_state_t *ts = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (ts == MAP_FAILED) {
        return NULL;
    }
    if (madvise(ts, size, MADV_WIPEONFORK) != 0) {
        munmap(ts, size);
        return NULL;
    }
    ts->present = true;
    ts->next = *states;
    *states = ts;
    return ts;
}

/* Whether the thread that had it has ended. Its number may have gone to another thread, even to
 * this one; then it has ended, too, but only the latter is seen, and the thread state stays unused.
 * What it wrote has long been visible to all: the kernel has put it away. */
static bool is_left(const regx_thread_state_t *ts, pid_t self)
{
    return ts->owner != 0 &&
           (ts->owner == self ||
            (syscall(SYS_tgkill, ts->process, ts->owner, 0) != 0 && errno == ESRCH));
}

static regx_thread_state_t *mine(regx_thread_state_t **states, uint32_t regions)
{
    regx_thread_state_t *ts = *states;

    if (self_number == 0) {
        self_number = atomic_fetch_add(&threads, 1) + 1;
    }
    while (ts != NULL && ts->thread != self_number) {
        ts = ts->next;
    }
    if (ts != NULL) {
        return ts;
    }
    const pid_t self = (pid_t)syscall(SYS_gettid);
    for (ts = *states; ts != NULL && !is_left(ts, self); ts = ts->next) {
    }
    if (ts == NULL) {
        ts = regx_thread_states_add(states, regions);
    }
    if (ts != NULL) {
        ts->process = getpid();
        ts->owner = self;
        ts->thread = self_number;
    }
    return ts;
}

regx_thread_state_t *regx_thread_states_here(regx_thread_state_t **states, uint32_t regions,
                                             uint64_t cache)
{
    struct regx_last_state *here = regx_last_state_of(cache);

    if (here->cache != cache) {
        regx_thread_state_t *ts = mine(states, regions);

        if (ts == NULL) {
            return NULL;
        }
        here->cache = cache;
        here->ts = ts;
    }
    return here->ts;
}

void regx_thread_states_free(regx_thread_state_t **states, uint32_t regions)
{
    while (*states != NULL) {
        regx_thread_state_t *ts = *states;

        *states = ts->next;
        munmap(ts, size_of(regions));
    }
}

void regx_thread_state_remember(regx_thread_state_t *ts, uintptr_t address, uint32_t region)
{
    const regx_lookup_key_t key = regx_lookup_key(address);
    const uint32_t entry = key.tag | region;
    uint32_t other = REGX_LOOKUP_WAYS;

    for (uint32_t probe = REGX_LOOKUP_WAYS; probe-- > 0;) {
        const uint32_t there = regx_lookup_entry(ts, &key, probe);

        if (there == entry) {
            return;
        }
        if (there == 0) {
            other = probe;
        }
    }
    if (other == REGX_LOOKUP_WAYS) {
        /* Most of a full set may be of requests that do not come any more, their regions' numbers
         * used again; nobody can know. So any place is given up, at random, the first one too: else
         * those that are asked for in turn could push out each other for ever. */
        ts->random = ts->random * 1664525u + 1013904223u;
        other = (ts->random >> 16) % REGX_LOOKUP_WAYS;
    }
    /* The new one gets the first place: what is there may be what this page's requests had before,
     * alive again as another region. */
    atomic_store_explicit(regx_lookup_place(ts, &key, other), regx_lookup_entry(ts, &key, 0),
                          memory_order_relaxed);
    atomic_store_explicit(regx_lookup_place(ts, &key, 0), entry, memory_order_relaxed);
}
