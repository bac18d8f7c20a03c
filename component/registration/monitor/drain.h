/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Drain before change (btl_regx_inuse=drain): a call that would take away memory which a transfer
 * uses waits until the transfer is over. Campbell's proposal in the debate of 2008 to 2009: rather
 * than to invalidate what is in use, let the change wait.
 *
 * The rendezvous marks what a transfer uses (hold) and when that is over (let go): from the CTS on
 * at the sender, from the match on at the receiver, or from the RTS on where the receiver reads.
 * Hooks call wait before they log a change and before it is made. One drain per process, shared by
 * all caches.
 *
 * Who drives the transfer meanwhile. A hook runs inside the program's munmap, madvise or free. The
 * thread may hold malloc's lock, or one of MPI's. Progress allocates and takes such locks, so a
 * hook cannot call it. A thread of the drain's own, the helper,
 * calls progress as long as somebody waits, and else sleeps. Therefore the owner makes its locks
 * real before it opens a drain, whatever thread level the program asked for.
 *
 * Why there is no deadlock:
 *   - who waits takes no lock, allocates nothing, and waits for a bounded time, by a futex with a
 *     time-out. It depends on nobody: should the helper or another thread wait for what the
 *     caller holds (malloc's lock, one of MPI's), the time runs out, the caller goes on, and so do
 *     they. The memory then changes while it is in use, which is seen and reported as by `warn`.
 *   - the helper does not wait for itself when progress frees memory. Nor does a forked child: what
 *     it changes is its own, and nothing there is under way.
 *   - to hold and to let go waits for nobody. When there is no place left a transfer is not waited
 *     for, which is counted.
 *
 * A change that is reported after it was made (brk, see hooks.c) waits in vain, but does no harm.
 * One whose length is not known (shmdt by some sources) waits for all transfers above its start.
 */
#ifndef REGX_REGISTRATION_DRAIN_H
#define REGX_REGISTRATION_DRAIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"

#define REGX_HOLDS_MAX 1024u /* transfers that are waited for, at once */

typedef struct regx_drain regx_drain_t;

typedef struct regx_drain_config {
    unsigned milliseconds; /* that a call waits at most, at least 1 */
    /* Goes on with transfers; called by the helper, holding no lock, again and again while somebody
     * waits. */
    void (*progress)(void *context);
    void *context;
    regx_counters_t *counters;
} regx_drain_config_t;

/* NULL: no memory, or no thread. */
regx_drain_t *regx_drain_open(const regx_drain_config_t *config);
/* The helper ends, and progress is not called any more once this has returned; who waits waits on
 * by itself. Again: nothing. */
void regx_drain_stop(regx_drain_t *drain);
/* Also stops it. Nobody holds or waits any more. */
void regx_drain_close(regx_drain_t *drain);

/* A transfer uses that memory from now on. Returns what ends it; 0: nothing to end, also where
 * drain is NULL. Any thread, waits for nobody. */
uint32_t regx_drain_hold(regx_drain_t *drain, const void *base, size_t length);
void regx_drain_let_go(regx_drain_t *drain, uint32_t hold);

/* Somebody is about to change what is between start and end (exclusive): returns when no transfer
 * uses any of it, or when the time is up. Hooks alone. drain may be NULL. */
void regx_drain_wait(regx_drain_t *drain, uintptr_t start, uintptr_t end);

#endif
