/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The cache, opened and closed; the hit and the release; and the argument why no use is stale.
 *
 * What must hold: from the moment acquire answers until release, the region is registered (1), and
 * no change of its pages that ended before acquire was called came after it was pinned (2).
 * A change that is under way while the buffer is being acquired or used is the application's error:
 * one of its threads takes away memory that another uses. The use that is hit by it ends, and later
 * ones do not see it, with one exception, a limit: a change that is reported before it is made
 * (everything by hooks; to the notifier MADV_DONTNEED, MADV_FREE and MADV_REMOVE) and overlaps an
 * acquisition. A region that is made between the report and the change is of the old pages,
 * nothing more is reported, and later uses hit it until something else ends it.
 *
 * (1) Named scheme: counts of uses per thread over records that never go away, asymmetric by
 * membarrier (as in hazard pointers with a slow side). A hit writes its own thread's count and
 * then reads the region's state; who retires writes the state, executes membarrier, and then reads
 * all counts. Either the count was written before the barrier in the hit's thread: then it is
 * seen, and the region is busy. Or the state is read after the barrier: then it is seen to be dead
 * and the hit takes its count back. So the hit needs no fence, only that the compiler keeps the
 * order (atomic_signal_fence). Where membarrier is refused, count and state are sequentially
 * consistent instead, which gives the same.
 * - A sum over all threads of counts that move meanwhile: every use that is valid is in it, since
 *   its acquisition was visible before; a release that is seen has happened. So the sum of those
 *   not yet released is never too small, whichever threads acquired and released. A look-up that
 *   is taking its count back can only make it too large.
 * - Nobody waits for the count: a busy region is looked at again once a release, or a look-up that
 *   takes its count back, has found the region dead and set `released`. It looks after it has
 *   lowered its count: as above, either that is seen by who retires, or the state by who releases.
 * - Lowering the count is a release operation and reading it for the sum an acquire one: all that
 *   was done with the registration is done before it is undone.
 * - A record that is used again: the hit counts its use of the number first and reads state, then
 *   range and access. If it reads ALIVE, written by incarnation N, then N is not retired before the
 *   use ends (if the count came after the barrier of N, the state that is read is N's death or
 *   later, never N's ALIVE); so range, access and the device's record are N's. Which region the
 *   look-up cache meant does not matter: what is read is what is used.
 * - A thread's end: its thread state stays, and is summed, for ever. Its next owner was given it by
 * the lock, after the kernel had said that the thread is gone.
 *
 * (2) A look-up reads, in this order, each an acquire load (the query is a system call):
 *        own count written → query valid → sequence even → head → applied == head → ALIVE, range
 *   `applied` is written (release) after every region that a change below it touched is dead. So
 *   applied == head with ALIVE read later means: no change below that head touched the region,
 *   but such as were reported before it was pinned (see below of a new region).
 *   The head counts a change before it happens (hooks), so a change that ended before acquire is
 *   below it, unless it is not logged yet (notifier):
 *   - it is between its start and the reader's read(): the query answers EAGAIN. Asked first:
 *     a change whose read() comes between query and head has not ended before acquire was called.
 *   - it was read and not logged: the sequence is odd from before the read() until after the log's
 *     head moved. Read before the head: if it is even because it is even again, the head is new.
 *   Reading the head first loses: the change could be logged, and sequence and query valid again,
 *   between. The checks come after the count since they are to hold for a region that stays.
 * - A new region: interest → subscribe, which reads the head (`since`) and then watches → pin →
 *   query, sequence, log from `since` on, all under the lock → ALIVE. A change that ended before
 *   pinning does no harm. One that ended after it is below the head that is read last or shown by
 *   query or sequence, as above; if it was logged from `since` on it is found. Could it be logged
 *   below `since`, and be made after pinning? Only if it was reported before it came: it overlaps
 *   this acquisition, and is the limit above. (What began before watching and is not known to the
 *   notifier at all has been made when watching has begun: both take the lock of the address
 *   space.) Changes left out for want of interest are as if logged just before (inval_log.c).
 *   Changes from `applied` to `since` may end the region needlessly; never the reverse, because
 *   `applied` never passes the head that the same lock's holder has read.
 *   A check that fails because a change is under way may be made again, with the same `since`: it
 *   asks no less the second time.
 * - Catching up does a bounded amount (retire.c). `applied` passes a change only when, under the
 *   lock, nothing that is alive overlaps it any more; until then it stays the next one, and is gone
 *   through from its beginning, whatever was inserted or given up between two parts. So at any
 *   time, with the lock held: of all that is alive, no change below `applied` was made after it was
 *   pinned. (Holds for what is inserted: of `since` on nothing touched it, up to a head that is no
 *   less than `applied`, and what is below `since` was made before.) From there it follows:
 *     - While `applied` is below the head, no look-up hits without the lock: heads only grow.
 *     - With the lock (use_locked): query, sequence, log from `applied` on, as for a new region
 *       from `since` on, of all of the region's pages. What was touched is not used, ended or not.
 *       Nobody else kills or retires it meanwhile.
 *     - A new region is inserted whatever is left to be acted on: its own check asks nothing of
 *       that. If a change before `since` that overlaps it is still to be acted on, it ends
 *       needlessly.
 *     - Each part ends some regions or passes some change, and an acquisition inserts one at the
 *       most after a part; and progress goes on with it: all that a change touched is dead after so
 *       many calls, or after the ring has gone round.
 * - A change that its writer is still writing (REGX_CHANGE_LATER): `applied` stays below the head.
 *   It may be of anything, so nothing that was there before is used until it is whole. Nobody waits
 *   for it. (For the sequence to be even the slow path yields a few times: for speed alone.)
 * - The ring has gone round: `applied` is behind by more than the ring, or the entry is another's.
 *   It may have been of anything: nothing is used that is not made after. Everything ends, in parts
 *   too, and only then does `applied` move to the head that was read before.
 * - fork: the child's thread states are empty, by the kernel, however it was made (a vfork's child
 * shares the parent's memory and thread, and may do nothing but exec). It finds nothing on the fast
 *   path, and all others ask first whether this is a child: before any lock, which in the child
 *   may be held for ever. Uses that it gives back are counted in its own copy of the memory.
 */
#include "registration/cache.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "registration/once.h"

_Static_assert(2 * REGX_REGIONS_MAX <= 1u << REGX_LOOKUP_NUMBER_BITS, "numbers fit in entries");

static _Atomic uint64_t serials;

regx_cache_t *regx_cache_open(regx_registry_t *registry, const regx_cache_config_t *config)
{
    regx_cache_t *cache = aligned_alloc(_Alignof(regx_cache_t), sizeof(*cache));

    if (cache == NULL) {
        return NULL;
    }
    memset(cache, 0, sizeof(*cache));
    if (!regx_regions_init(&cache->regions, config->count) ||
        (cache->common = regx_thread_states_add(&cache->states, cache->regions.capacity)) == NULL) {
        regx_regions_fini(&cache->regions);
        free(cache);
        return NULL;
    }
    regx_lock_init(&cache->lock, true); /* whatever MPI was told of threads: only misses take it */
    regx_index_init(&cache->index);
    cache->serial = atomic_fetch_add(&serials, 1) + 1;
    cache->records = cache->regions.records;
    cache->holdings = cache->regions.holdings;
    cache->monitor = registry->monitor;
    cache->log = cache->monitor->log;
    cache->applied = cache->log->head;
    cache->queries = cache->monitor->valid != NULL;
    cache->query = cache->monitor->query;
    cache->fences = !regx_membarrier_works();
    cache->fast = cache->queries || cache->fences ? UINT64_MAX : cache->serial;
    cache->registry = registry;
    cache->config = *config;
    if (cache->config.count > REGX_REGIONS_MAX) {
        cache->config.count = REGX_REGIONS_MAX;
    }
    cache->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    cache->applied_max = REGX_APPLIED_MAX;
    cache->pinned_max = REGX_UNLIMITED;
    if (config->bytes <= REGX_UNLIMITED - config->bytes / 4) {
        cache->pinned_max = config->bytes + config->bytes / 4;
    }
    regx_cache_start_reclaiming(cache);
    return cache;
}

static void give_up(void *context, const uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        regx_cache_kill_locked(context, numbers[i], REGX_REGION_GIVEN_UP);
    }
}

void regx_cache_close(regx_cache_t *cache)
{
    size_t all = SIZE_MAX;

    if (regx_cache_in_child(cache)) {
        return;
    }
    regx_cache_stop_reclaiming(cache);
    regx_cache_count(cache);
    regx_lock(&cache->lock);
    regx_index_cut(&cache->index, 0, UINTPTR_MAX, &all, give_up, cache);
    cache->closing = true;
    regx_unlock(&cache->lock);
    cache->work = true;
    cache->released = true;
    regx_cache_retire(cache, UINT_MAX);
    regx_cache_warn(cache); /* what the cache's thread noted and nobody has called for since */
    regx_thread_states_free(&cache->states, cache->regions.capacity);
    regx_regions_fini(&cache->regions);
    regx_index_fini(&cache->index);
    regx_lock_fini(&cache->lock);
    free(cache);
}

/* A use has ended; if the region is dead, who retires wants to know. */
static inline void look_after(regx_cache_t *cache, const regx_record_t *record)
{
    if (__builtin_expect(atomic_load(&record->state) != REGX_REGION_ALIVE, false)) {
        atomic_store_explicit(&cache->released, true, memory_order_release);
        regx_cache_has_work(cache);
    }
}

/* Whether all reported changes have been acted on, and none is about to be reported. */
static inline bool is_current(const regx_cache_t *cache)
{
    const regx_inval_log_t *log = cache->log;
    const uint64_t sequence = atomic_load_explicit(&log->sequence, memory_order_acquire);
    const uint64_t head = atomic_load_explicit(&log->head, memory_order_acquire);

    return sequence % 2 == 0 && head == atomic_load_explicit(&cache->applied, memory_order_acquire);
}

/* The query, of a range that is one; what is dead, the look-up cache's memory of a buffer that was
 * mapped anew, is not asked about. Inlined where it can be: the kernel spoils the processor's
 * prediction of returns, so each that is right behind a system call costs 5 to 10 ns. (valid() also
 * looks whether this is a child; there the look-up cache is empty.) */
static inline bool is_valid(const regx_cache_t *cache, const regx_record_t *record,
                            uintptr_t address, size_t length, unsigned access)
{
    const uintptr_t mask = cache->page - 1;

    return atomic_load_explicit(&record->state, memory_order_relaxed) == REGX_REGION_ALIVE &&
           regx_record_serves(record, address, length, access) &&
           (cache->query != NULL ? regx_uffd_is_idle(cache->query->fd)
                                 : cache->monitor->valid(cache->monitor, address & ~mask,
                                                         (address + length + mask) & ~mask));
}

/* The hit. plain: known to need neither query nor fence. */
static inline __attribute__((always_inline)) bool try_use(regx_cache_t *cache,
                                                          regx_thread_state_t *ts, uint32_t number,
                                                          uintptr_t address, size_t length,
                                                          unsigned access, bool plain)
{
    const regx_record_t *record = &cache->records[number];
    const bool fences = !plain && cache->fences;

    regx_cache_use(&ts->uses[number], REGX_USE_ACQUIRED, fences);
    if (__builtin_expect(
            (plain || !cache->queries || is_valid(cache, record, address, length, access)) &&
                is_current(cache) && atomic_load(&record->state) == REGX_REGION_ALIVE &&
                regx_record_serves(record, address, length, access),
            true)) {
        regx_cache_count_hit(ts);
        return true;
    }
    regx_cache_use(&ts->uses[number], 0 - REGX_USE_ACQUIRED, fences);
    look_after(cache, record);
    return false;
}

/* All places of the look-up cache, with query and fence where they are needed. Inlined: a return
 * right behind a system call is mispredicted. */
static inline __attribute__((always_inline)) bool
find_in_lookup(regx_cache_t *cache, regx_thread_state_t *ts, uintptr_t base, size_t length,
               unsigned access, regx_region_t *region)
{
    const regx_lookup_key_t key = regx_lookup_key(base);
    const uint64_t since = atomic_load_explicit(&cache->applied, memory_order_acquire);

    for (uint32_t probe = 0; probe < REGX_LOOKUP_WAYS; probe++) {
        const uint32_t entry = regx_lookup_entry(ts, &key, probe);
        const uint32_t number = regx_lookup_number(entry);

        if (regx_lookup_is(entry, &key) &&
            try_use(cache, ts, number, base, length, access, false)) {
            regx_cache_serve(cache, number, base, length, since, region);
            return true;
        }
    }
    return false;
}

/* Whether the calling thread has a thread state here, now at the latest. */
static bool take_state(regx_cache_t *cache)
{
    if (regx_cache_last_state(cache)->cache == cache->serial) {
        return true;
    }
    regx_lock(&cache->lock);
    const bool taken = regx_cache_thread_state(cache) != NULL;
    regx_unlock(&cache->lock);
    return taken;
}

bool regx_cache_seems_kept(regx_cache_t *cache, const void *base, size_t length, unsigned access)
{
    const regx_lookup_key_t key = regx_lookup_key((uintptr_t)base);
    bool kept = false;

    if (regx_cache_in_child(cache) || !is_current(cache) || !take_state(cache)) {
        return false;
    }
    for (uint32_t probe = 0; probe < REGX_LOOKUP_WAYS && !kept; probe++) {
        const uint32_t entry = regx_lookup_entry(regx_cache_last_state(cache)->ts, &key, probe);
        const regx_record_t *record = &cache->records[regx_lookup_number(entry)];

        kept = regx_lookup_is(entry, &key) &&
               atomic_load_explicit(&record->state, memory_order_relaxed) == REGX_REGION_ALIVE &&
               regx_record_serves(record, (uintptr_t)base, length, access);
    }
    return kept;
}

static __attribute__((noinline)) regx_status_t acquire_searching(regx_cache_t *cache, void *base,
                                                                 size_t length, unsigned access,
                                                                 regx_region_t *region)
{
    const struct regx_last_state *here = regx_cache_last_state(cache);

    return here->cache == cache->serial &&
                   find_in_lookup(cache, here->ts, (uintptr_t)base, length, access, region)
               ? REGX_OK
               : regx_cache_acquire_slow(cache, base, length, access, region);
}

/* The first place alone, which serves nearly always, and nothing that is not always needed. */
regx_status_t regx_cache_acquire(regx_cache_t *cache, void *base, size_t length, unsigned access,
                                 regx_region_t *region)
{
    const struct regx_last_state *here = regx_cache_last_state(cache);

    if (__builtin_expect(here->cache == cache->fast, true)) {
        regx_thread_state_t *ts = here->ts;
        const regx_lookup_key_t key = regx_lookup_key((uintptr_t)base);
        const uint32_t entry = regx_lookup_entry(ts, &key, 0);
        const uint32_t number = regx_lookup_number(entry);
        const uint64_t since = atomic_load_explicit(&cache->applied, memory_order_acquire);

        if (__builtin_expect(regx_lookup_is(entry, &key), true) &&
            try_use(cache, ts, number, (uintptr_t)base, length, access, true)) {
            return regx_cache_serve(cache, number, (uintptr_t)base, length, since, region);
        }
    }
    return acquire_searching(cache, base, length, access, region);
}

bool regx_cache_acquire_kept(regx_cache_t *cache, const void *base, size_t length, unsigned access,
                             regx_region_t *region)
{
    const struct regx_last_state *here = regx_cache_last_state(cache);

    return (here->cache == cache->serial &&
            find_in_lookup(cache, here->ts, (uintptr_t)base, length, access, region)) ||
           regx_cache_find_slow(cache, base, length, access, region);
}

/* Counts it if what changed was in use: the use that finds this is not over yet. The region may
 * serve it with a part, and have changed elsewhere, or have ended because the log was lapped, which
 * is nobody's error. */
static __attribute__((noinline)) void note_changed(regx_cache_t *cache, regx_record_t *record,
                                                   const regx_region_t *region)
{
    regx_counters_t *counters = cache->registry->counters;

    if ((cache->monitor->flags & REGX_MONITOR_LATE) == 0 &&
        regx_inval_log_shows(cache->log, region->since, region->start,
                             region->start + region->length) &&
        !atomic_exchange_explicit(&record->used_changed, true, memory_order_relaxed)) {
        regx_count(counters, &counters->inuse_changes, 1);
    }
}

static inline void end_use(regx_cache_t *cache, regx_thread_state_t *ts,
                           const regx_region_t *region)
{
    regx_record_t *record = &cache->records[region->kept];

    if (__builtin_expect(atomic_load(&record->state) == REGX_REGION_CHANGED, false)) {
        note_changed(cache, record, region);
    }
    regx_cache_use(&ts->uses[region->kept], REGX_USE_RELEASED, cache->fences);
    look_after(cache, record);
}

static __attribute__((noinline)) void release_slow(regx_cache_t *cache, regx_region_t *region)
{
    if (regx_cache_in_child(cache)) {
        return;
    }
    if (region->kept == 0) {
        regx_once_deregister(cache->registry, region);
        return;
    }
    regx_lock(&cache->lock);
    regx_thread_state_t *ts = regx_cache_thread_state(cache);

    end_use(cache, ts != NULL ? ts : cache->common, region);
    regx_unlock(&cache->lock);
}

void regx_cache_release(regx_cache_t *cache, regx_region_t *region)
{
    const struct regx_last_state *here = regx_cache_last_state(cache);

    if (__builtin_expect(here->cache == cache->serial && region->kept != 0, true)) {
        end_use(cache, here->ts, region);
    } else {
        release_slow(cache, region);
    }
}

void regx_cache_progress(regx_cache_t *cache)
{
    const bool current = atomic_load_explicit(&cache->log->head, memory_order_relaxed) ==
                         atomic_load_explicit(&cache->applied, memory_order_relaxed);

    if ((current && !atomic_load_explicit(&cache->work, memory_order_relaxed) &&
         !atomic_load_explicit(&cache->to_warn, memory_order_relaxed)) ||
        regx_cache_in_child(cache)) {
        return;
    }
    regx_cache_warn(cache);
    regx_lock(&cache->lock);
    regx_cache_catch_up_locked(cache, NULL);
    regx_unlock(&cache->lock);
    regx_cache_retire(cache, REGX_RETIRED_MAX);
}

void regx_cache_count(regx_cache_t *cache)
{
    uint64_t hits = 0;

    if (regx_cache_in_child(cache)) {
        return;
    }
    regx_lock(&cache->lock);
    for (const regx_thread_state_t *ts = cache->states; ts != NULL; ts = ts->next) {
        hits += atomic_load_explicit(&ts->hits, memory_order_relaxed);
    }
    const uint64_t more = hits - cache->hits_counted;

    cache->hits_counted = hits;
    regx_unlock(&cache->lock);
    regx_count(cache->registry->counters, &cache->registry->counters->hits, more);
}
