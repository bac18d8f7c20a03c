/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The log of changes of the address space: written by whoever learns of one (a hook in the thread
 * that unmaps, the notifier's reader), read by the caches.
 *
 * A bounded ring of exact ranges and a count that only grows, `head`: the epoch. A cache remembers
 * up to which change it has acted (its cursor); as long as head has not moved, everything it holds
 * is as true as it was. A cursor that the ring has lapped knows only that something changed, and
 * its cache gives up everything: the flush cannot be lost, since it is the distance of two counts
 * (hazard: an invalidation that found no memory was dropped).
 *
 * Writers take no lock, allocate nothing and do bounded work: they may run inside malloc, free or
 * munmap of any thread. Any number of writers and readers at once.
 */
#ifndef REGX_REGISTRATION_INVAL_LOG_H
#define REGX_REGISTRATION_INVAL_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct regx_inval_log regx_inval_log_t;

/* What is between start and end (exclusive) was, or is about to be, changed. */
typedef struct regx_change {
    uintptr_t start, end;
} regx_change_t;

#define REGX_INVAL_LOG_RING 4096 /* changes kept; a power of two */

/* The hot part, which a look-up reads. */
struct regx_inval_log {
    _Alignas(64) _Atomic uint64_t head; /* changes logged or being logged, ever */
    _Atomic uint64_t sequence;          /* odd: a writer has taken news from the kernel and has not
                                           yet logged it (notifier only) */
    struct regx_inval_log_rest *rest;
    _Alignas(64) _Atomic uint32_t asleep; /* 1: a thread sleeps until there is news, see
                                             regx_inval_log_wake */
    _Atomic uint32_t wakes;               /* times that sleepers were woken; they wait for a change
                                             of it */
};

/* NULL: no memory. */
regx_inval_log_t *regx_inval_log_open(void);
void regx_inval_log_close(regx_inval_log_t *log);

/* Logs one change. Any thread, also inside malloc. A change of what nobody is interested in may be
 * left out. */
void regx_inval_log_write(regx_inval_log_t *log, uintptr_t start, uintptr_t end);

/* Wakes all threads that sleep here. Done for each change that is logged; also for what else they
 * wait for. Costs one load where nobody sleeps. A thread that is going to sleep reads `wakes`, sets
 * `asleep`, looks once more whether there is anything to do, and then waits while `wakes` is what
 * it read. (Not while `asleep` is 1: another thread may set that again before this one sleeps.) */
void regx_inval_log_wake(regx_inval_log_t *log);

/* Says that somebody is about to register, or no longer holds, that range; counted by hashed 2 MiB
 * slots, so that logging can leave out what concerns nobody. Interest is declared before the head
 * is read for the range. */
void regx_inval_log_interest(regx_inval_log_t *log, uintptr_t start, uintptr_t end, int by);

/* Reads change number `number` (the first is 0). REGX_CHANGE_LATER: it is still being written (its
 * writer is inside the call that logs it); REGX_CHANGE_LOST: the ring has gone past it. */
typedef enum { REGX_CHANGE_READ, REGX_CHANGE_LATER, REGX_CHANGE_LOST } regx_change_state_t;
regx_change_state_t regx_inval_log_read(const regx_inval_log_t *log, uint64_t number,
                                        regx_change_t *change);

/* Whether any change from number `since` on touched the range, or may have. Any thread. */
bool regx_inval_log_touched(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                            uintptr_t end);
/* Whether one certainly did, of those that the ring still has. */
bool regx_inval_log_shows(const regx_inval_log_t *log, uint64_t since, uintptr_t start,
                          uintptr_t end);

#endif
