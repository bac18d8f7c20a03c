/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who uses regions, which of them are given up for room, and their end. Acting on the log kills
 * those that a change touched; only here does the cache learn of changes, and only this moves
 * `applied`, after the regions that are concerned are dead. Then: dead → (membarrier, one for some
 * of them) → without users? → deregistered, with no lock held → its record may describe another
 * region. See component/design/cache.md.
 *
 * Done by the threads that call progress or register, a bounded amount; and by a thread of the
 * cache's own while the application computes and calls nothing. The thread sleeps until a change is
 * logged or the last use of a dead region ends, and lets some milliseconds pass, in which the
 * application may do the work in passing. It takes the cache's lock and deregisters, which takes
 * locks and may allocate: so it cannot be the notifier's reader. Only the closing cache waits for
 * it, and it makes no callbacks. It is there only where the monitor has a thread anyway and the
 * device pins what it registers.
 */
#include "registration/cache.h"

#include <assert.h>
#include <errno.h>
#include <sys/syscall.h>

/* ---- thread states ---- */

_Thread_local struct regx_last_state regx_last_state[REGX_LAST_STATES];

static _Atomic uint64_t threads; /* that have had a thread state */
/* This thread is that number of them; 0: not yet. */
static _Thread_local uint64_t self_number __attribute__((tls_model("initial-exec")));

static size_t state_size(const regx_cache_t *cache)
{
    return sizeof(regx_thread_state_t) + cache->regions.capacity * sizeof(uint64_t);
}

/* Locked, or before there is another thread. NULL: no memory, or none that a child would not
 * see. */
static regx_thread_state_t *add_state(regx_cache_t *cache)
{
    const size_t size = state_size(cache);
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
    ts->next = cache->threads.first;
    cache->threads.first = ts;
    return ts;
}

/* linux/membarrier.h */
#define PRIVATE_EXPEDITED 8
#define REGISTER_PRIVATE_EXPEDITED 16

/* After PRIVATE_EXPEDITED every count of a use was made by a look-up that could see what was dead
 * before it, or can be seen. false: refused. */
static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool regx_thread_states_open(regx_cache_t *cache)
{
    cache->fences = !membarrier(REGISTER_PRIVATE_EXPEDITED);
    cache->threads.common = add_state(cache);
    return cache->threads.common != NULL;
}

void regx_thread_states_close(regx_cache_t *cache)
{
    while (cache->threads.first != NULL) {
        regx_thread_state_t *ts = cache->threads.first;

        cache->threads.first = ts->next;
        munmap(ts, state_size(cache));
    }
}

/* Whether the thread that had it has ended. The kernel may have given its number to another thread.
 * If to this one, the first has ended: take its state. If to a third, we do not know, and the state
 * stays unused. What it wrote has long been visible to all: the kernel has put it away. */
static bool is_left(const regx_thread_state_t *ts, pid_t self)
{
    return ts->owner != 0 &&
           (ts->owner == self ||
            (syscall(SYS_tgkill, ts->process, ts->owner, 0) != 0 && errno == ESRCH));
}

regx_thread_state_t *regx_thread_state_here(regx_cache_t *cache)
{
    struct regx_last_state *here = regx_cache_last_state(cache);
    regx_thread_state_t *ts = cache->threads.first;

    if (here->cache == cache->serial) {
        return here->ts;
    }
    if (self_number == 0) {
        self_number = atomic_fetch_add(&threads, 1) + 1;
    }
    while (ts != NULL && ts->thread != self_number) {
        ts = ts->next;
    }
    if (ts == NULL) {
        const pid_t self = (pid_t)syscall(SYS_gettid);

        for (ts = cache->threads.first; ts != NULL && !is_left(ts, self); ts = ts->next) {
        }
        if (ts == NULL) {
            ts = add_state(cache);
        }
        if (ts == NULL) {
            return NULL;
        }
        ts->process = getpid();
        ts->owner = self;
        ts->thread = self_number;
    }
    here->cache = cache->serial;
    here->ts = ts;
    return ts;
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
         * used again; that cannot be known. So any place is given up, at random, the first one too:
         * else those that are asked for in turn could push out each other for ever. */
        ts->random = ts->random * 1664525u + 1013904223u;
        other = (ts->random >> 16) % REGX_LOOKUP_WAYS;
    }
    /* The new one gets the first place: what is there may be what this page's requests had before,
     * alive again as another region. */
    atomic_store_explicit(regx_lookup_place(ts, &key, other), regx_lookup_entry(ts, &key, 0),
                          memory_order_relaxed);
    atomic_store_explicit(regx_lookup_place(ts, &key, 0), entry, memory_order_relaxed);
}

/* ---- regions end ---- */

void regx_cache_kill_locked(regx_cache_t *cache, uint32_t number, regx_region_state_t state)
{
    regx_record_t *record = &cache->records[number];

    assert(record->state == REGX_REGION_ALIVE && state > REGX_REGION_ALIVE);
    assert(cache->room.bytes >= record->size && cache->room.count > 0);
    if (cache->fences) {
        atomic_store(&record->state, state);
    } else {
        atomic_store_explicit(&record->state, state, memory_order_release);
    }
    cache->room.bytes -= record->size;
    cache->room.count--;
    regx_regions_push(&cache->regions, &cache->limbo.dead, number);
}

/* ---- given up for room ----
 * A region's heat is halved at each visit and grows by its acquisitions since. A hand goes round
 * what is alive; of the next few regions without users, the one goes whose registration, by cost
 * and heat, is worth least per byte held. What is used stays, whatever it costs. */

#define SAMPLE 16u    /* regions to choose among */
#define VISITS 1024u  /* regions looked at for more than one */
#define HEAT_USE 256u /* of one acquisition: it can be halved eight times */
#define HEAT_MAX (1u << 30)

void regx_cache_give_up_locked(regx_cache_t *cache, uint32_t number)
{
    regx_index_remove(&cache->index, cache->records[number].start, number);
    regx_cache_kill_locked(cache, number, REGX_REGION_GIVEN_UP);
    regx_cache_has_work(cache);
}

uint64_t regx_cache_evict_locked(regx_cache_t *cache)
{
    regx_counters_t *counters = cache->registry->counters;
    const uint32_t program = regx_fpe_mask(), used = cache->regions.used;
    uint32_t chosen = 0, found = 0, visits = 0;
    double least = 0; /* worth per byte */

    for (uint32_t i = 1; i < used && found < SAMPLE && (found == 0 || visits < VISITS); i++) {
        const uint32_t number = cache->hand + 1 < used ? cache->hand + 1 : 1;
        regx_holding_t *holding = &cache->holdings[number];

        cache->hand = number;
        if (cache->records[number].state != REGX_REGION_ALIVE) {
            continue;
        }
        visits++;
        /* Brings its heat up to date. */
        const uint64_t uses = regx_thread_states_uses(cache->threads.first, number);
        const uint32_t acquired = (uint32_t)(uses >> 32);
        /* Threads count on meanwhile: the sum may be one less than it was. */
        const int32_t more = (int32_t)(acquired - holding->seen);
        const uint64_t heat =
            holding->heat / 2 + (uint64_t)HEAT_USE * (more > 0 ? (uint32_t)more : 0);

        holding->heat = heat < HEAT_MAX ? (uint32_t)heat : HEAT_MAX;
        holding->seen = acquired;
        if ((uint32_t)uses != 0) { /* it has users */
            continue;
        }
        const double worth = (double)holding->cost * holding->heat / (double)holding->mr.length;

        found++;
        if (chosen == 0 || worth < least) {
            chosen = number;
            least = worth;
        }
    }
    regx_fpe_restore(program);
    if (chosen == 0) { /* only after a full round: all that is alive has users */
        return 0;
    }
    regx_cache_give_up_locked(cache, chosen);
    regx_count(counters, &counters->evictions, 1);
    return cache->records[chosen].size;
}

/* ---- acting on changes ---- */

typedef struct cut {
    regx_cache_t *cache;
    regx_request_t *request;
    unsigned ended; /* regions */
} cut_t;

#define AHEAD 8u /* records fetched: they are no longer in the processor's first caches */
/* Changes passed, while one region is ended. A miss and a progress pass the whole log: what is not
 * passed may be lapped, and then all ends. */
#define PASSED 8u

static void end_regions(void *context, const uint32_t *numbers, uint32_t count)
{
    cut_t *cut = context;
    regx_cache_t *cache = cut->cache;
    regx_request_t *request = cut->request;

    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            __builtin_prefetch(&cache->records[numbers[i + AHEAD]], 1);
        }
        if (request != NULL && regx_record_serves(&cache->records[numbers[i]], request->start,
                                                  request->end - request->start, request->access)) {
            request->refused = true;
        }
        regx_cache_kill_locked(cache, numbers[i], REGX_REGION_CHANGED);
    }
    cut->ended += count;
}

/* Until nothing that is alive overlaps the change it stays the next to be acted on, from the start:
 * what is inserted meanwhile may overlap it too. */
void regx_cache_catch_up_locked(regx_cache_t *cache, regx_request_t *request)
{
    const uint64_t head = atomic_load_explicit(&cache->log->head, memory_order_acquire);
    regx_counters_t *counters = cache->registry->counters;
    uint64_t applied = atomic_load_explicit(&cache->applied, memory_order_relaxed);
    cut_t cut = {.cache = cache, .request = request};
    size_t left = cache->applied_max;
    unsigned passed = 0;

    if (applied == head) {
        return; /* other threads read what this would write */
    }
    while (applied != head && left > 0) {
        regx_change_t change = {.start = 0, .end = UINTPTR_MAX}; /* if it is lost: all ends */
        const regx_change_state_t state = regx_inval_log_read(cache->log, applied, &change);

        if (state == REGX_CHANGE_LATER) {
            break;
        }
        if (!regx_index_cut(&cache->index, change.start, change.end, &left, end_regions, &cut)) {
            break;
        }
        applied = state == REGX_CHANGE_LOST ? head : applied + 1;
        left -= left > 0 && ++passed % PASSED == 0;
    }
    atomic_store_explicit(&cache->applied, applied, memory_order_release);
    if (cut.ended > 0) {
        regx_cache_has_work(cache);
        atomic_fetch_add(&counters->invalidations, cut.ended); /* perhaps in the cache's thread */
    }
}

/* ---- deregistering ---- */

/* Of those that were dead before the membarrier all acquisitions are seen: no more were released
 * than there were. Of what is alive the sum may be anything, since others acquire and release while
 * it is made. */
static bool is_used_locked(const regx_cache_t *cache, uint32_t number)
{
    const uint32_t uses = (uint32_t)regx_thread_states_uses(cache->threads.first, number);

    assert(cache->limbo.closing || (int32_t)uses >= 0);
    return !cache->limbo.closing && uses != 0;
}

void regx_cache_warn(regx_cache_t *cache)
{
    const regx_cache_config_t *config = &cache->config;

    if (atomic_load_explicit(&cache->warning.to_warn, memory_order_relaxed) &&
        atomic_exchange(&cache->warning.to_warn, false)) {
        config->changed_in_use(config->context, (const void *)cache->warning.start,
                               cache->warning.size);
    }
}

unsigned regx_cache_retire(regx_cache_t *cache, unsigned max)
{
    regx_regions_t *regions = &cache->regions;
    uint32_t number, dead = 0, unused = 0;
    unsigned count = 0;

    if (!atomic_exchange_explicit(&cache->work, false, memory_order_acquire)) {
        return 0;
    }
    /* Some of what is dead, and of what had users of which some are gone. */
    regx_lock(&cache->lock);
    if (atomic_exchange_explicit(&cache->released, false, memory_order_acquire)) {
        while ((number = regx_regions_pop(regions, &cache->limbo.busy)) != 0) {
            regx_regions_push(regions, &cache->limbo.dead, number);
        }
    }
    while (max-- > 0 && (number = regx_regions_pop(regions, &cache->limbo.dead)) != 0) {
        regx_regions_push(regions, &dead, number);
    }
    regx_unlock(&cache->lock);

    const bool passed =
        dead == 0 || cache->limbo.closing || cache->fences || membarrier(PRIVATE_EXPEDITED);

    regx_lock(&cache->lock);
    while ((number = regx_regions_pop(regions, &dead)) != 0) {
        uint32_t *list = &unused;

        if (!passed) {
            list = &cache->limbo.dead;
        } else if (is_used_locked(cache, number)) {
            list = &cache->limbo.busy;
        }
        regx_regions_push(regions, list, number);
    }
    if (cache->limbo.dead != 0) {
        regx_cache_has_work(cache);
    }
    regx_unlock(&cache->lock);

    for (number = unused; number != 0; number = cache->records[number].next) {
        regx_record_t *record = &cache->records[number];

        regx_mr_deregister(cache->registry, &cache->holdings[number].mr);
        regx_monitor_unsubscribe(cache->monitor, record->start, record->start + record->size);
        regx_inval_log_interest(cache->log, record->start, record->start + record->size, -1);
        assert(cache->room.pinned >= record->size);
        atomic_fetch_sub(&cache->room.pinned, record->size);
        count++;
    }
    regx_lock(&cache->lock);
    while ((number = regx_regions_pop(regions, &unused)) != 0) {
        regx_regions_put(regions, number);
    }
    regx_unlock(&cache->lock);
    return count;
}

/* ---- while the application computes ---- */

#define DELAY_MS 10u

static bool has_something_to_do(const regx_cache_t *cache)
{
    return atomic_load(&cache->log->head) != atomic_load(&cache->applied) ||
           atomic_load(&cache->work);
}

static void *reclaim(void *argument)
{
    regx_cache_t *cache = argument;

    while (!atomic_load(&cache->reclaimer.stop)) {
        const uint32_t wakes = atomic_load(&cache->log->wakes);
        bool progresses = true;

        atomic_store(&cache->log->asleep, 1);
        if (!has_something_to_do(cache) && !atomic_load(&cache->reclaimer.stop)) {
            regx_thread_wait(&cache->log->wakes, wakes, 0);
        }
        if (has_something_to_do(cache)) {
            regx_thread_wait(&cache->reclaimer.stop, 0, DELAY_MS);
        }
        while (progresses && !atomic_load(&cache->reclaimer.stop) && has_something_to_do(cache)) {
            const uint64_t before = atomic_load(&cache->applied);

            regx_lock(&cache->lock);
            regx_cache_catch_up_locked(cache, NULL);
            regx_unlock(&cache->lock);
            progresses = regx_cache_retire(cache, REGX_RETIRED_MAX) > 0 ||
                         atomic_load(&cache->applied) != before;
        }
    }
    return NULL;
}

void regx_cache_start_reclaiming(regx_cache_t *cache)
{
    cache->reclaimer.runs =
        cache->monitor->has_thread && cache->registry->transport->registers &&
        regx_thread_start(&cache->reclaimer.thread, "regx-reclaim", reclaim, cache) == 0;
}

void regx_cache_stop_reclaiming(regx_cache_t *cache)
{
    if (!cache->reclaimer.runs) {
        return;
    }
    atomic_store(&cache->reclaimer.stop, 1);
    regx_thread_wake(&cache->reclaimer.stop);
    regx_inval_log_wake(cache->log);
    pthread_join(cache->reclaimer.thread, NULL);
    cache->reclaimer.runs = false; /* only now: the thread reads it */
}
