/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/seats.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local struct regx_here regx_here[REGX_HERE];

static _Atomic uint64_t threads; /* that have had a seat */
/* This thread is that number of them; 0: not yet. */
static _Thread_local uint64_t self_number __attribute__((tls_model("initial-exec")));

static size_t size_of(uint32_t regions)
{
    return sizeof(regx_seat_t) + regions * sizeof(uint64_t);
}

regx_seat_t *regx_seats_add(regx_seat_t **seats, uint32_t regions)
{
    const size_t size = size_of(regions);
    regx_seat_t *seat = mmap(NULL, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (seat == MAP_FAILED) {
        return NULL;
    }
    if (madvise(seat, size, MADV_WIPEONFORK) != 0) {
        munmap(seat, size);
        return NULL;
    }
    seat->present = true;
    seat->next = *seats;
    *seats = seat;
    return seat;
}

/* Whether the thread that had it has ended. Its number may have gone to another thread, even to
 * this one; then it has ended, too, but only the latter is seen, and the seat stays unused. What
 * it wrote has long been visible to all: the kernel has put it away. */
static bool is_left(const regx_seat_t *seat, pid_t self)
{
    return seat->owner != 0 &&
           (seat->owner == self ||
            (syscall(SYS_tgkill, seat->process, seat->owner, 0) != 0 && errno == ESRCH));
}

regx_seat_t *regx_seats_mine(regx_seat_t **seats, uint32_t regions)
{
    regx_seat_t *seat = *seats;

    if (self_number == 0) {
        self_number = atomic_fetch_add(&threads, 1) + 1;
    }
    while (seat != NULL && seat->thread != self_number) {
        seat = seat->next;
    }
    if (seat != NULL) {
        return seat;
    }
    const pid_t self = (pid_t)syscall(SYS_gettid);
    for (seat = *seats; seat != NULL && !is_left(seat, self); seat = seat->next) {
    }
    if (seat == NULL) {
        seat = regx_seats_add(seats, regions);
    }
    if (seat != NULL) {
        seat->process = getpid();
        seat->owner = self;
        seat->thread = self_number;
    }
    return seat;
}

regx_seat_t *regx_seats_here(regx_seat_t **seats, uint32_t regions, uint64_t cache)
{
    struct regx_here *here = regx_here_of(cache);

    if (here->cache != cache) {
        regx_seat_t *seat = regx_seats_mine(seats, regions);

        if (seat == NULL) {
            return NULL;
        }
        here->cache = cache;
        here->seat = seat;
    }
    return here->seat;
}

void regx_seats_free(regx_seat_t **seats, uint32_t regions)
{
    while (*seats != NULL) {
        regx_seat_t *seat = *seats;

        *seats = seat->next;
        munmap(seat, size_of(regions));
    }
}

void regx_seat_remember(regx_seat_t *seat, uintptr_t address, uint32_t region)
{
    const regx_front_key_t key = regx_front_key(address);
    const uint32_t entry = key.tag | region;
    uint32_t other = REGX_FRONT_WAYS;

    for (uint32_t probe = REGX_FRONT_WAYS; probe-- > 0;) {
        const uint32_t there = regx_front_entry(seat, &key, probe);

        if (there == entry) {
            return;
        }
        if (there == 0) {
            other = probe;
        }
    }
    if (other == REGX_FRONT_WAYS) {
        /* Most of a full set may be of requests that do not come any more, their regions' numbers
         * used again; nothing tells. So any place is given up, at random, the first one too: else
         * those that are asked for in turn could push out each other for ever. */
        seat->random = seat->random * 1664525u + 1013904223u;
        other = (seat->random >> 16) % REGX_FRONT_WAYS;
    }
    /* The new one gets the first place: what is there may be what this page's requests had before,
     * alive again as another region. */
    atomic_store_explicit(regx_front_place(seat, &key, other), regx_front_entry(seat, &key, 0),
                          memory_order_relaxed);
    atomic_store_explicit(regx_front_place(seat, &key, 0), entry, memory_order_relaxed);
}
