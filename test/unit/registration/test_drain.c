/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A change of memory that a transfer uses waits until the transfer is over (drain.c), under hooks
 * of a fake source (hooked.h). Transfers end where the helper calls progress, so what is expected
 * does not depend on time, except where the time is to run out.
 */
#include "../process.h"
#include "hooked.h"

#include "registration/monitor/monitor.h"

enum { PAGE = 4096, PAGES = 8, ROUNDS = 3 };
enum { LONG = 600000, SHORT = 1 }; /* milliseconds: never reached, and reached */

static regx_counters_t counters;
static regx_drain_t *drain;
static regx_monitor_t *monitor;
static unsigned char *memory;

/* What progress does. */
static struct {
    atomic_uint rounds; /* of progress, so far */
    atomic_uint ends;   /* the round in which the hold is let go; 0: none */
    atomic_uint frees;  /* the round in which it gives back `memory` itself */
    uint32_t hold;
    uint64_t head;    /* of the log, when the hold was let go */
    pthread_t thread; /* that did so */
} plan;

static void progress(void *context)
{
    const unsigned round = atomic_fetch_add(&plan.rounds, 1) + 1;

    assert_ptr_equal(context, &plan);
    if (round == atomic_load(&plan.frees)) {
        munmap(memory, PAGE);
    }
    if (round == atomic_load(&plan.ends)) {
        plan.head = atomic_load(&monitor->log->head);
        plan.thread = pthread_self();
        regx_drain_let_go(drain, plan.hold);
    }
}

static void start(const regx_backend_t *backend, unsigned milliseconds)
{
    const regx_drain_config_t config = {.milliseconds = milliseconds,
                                        .progress = progress,
                                        .context = &plan,
                                        .counters = &counters};
    regx_error_t error = "";

    memset(&counters, 0, sizeof(counters));
    memset(&plan, 0, sizeof(plan));
    drain = regx_drain_open(&config);
    assert_non_null(drain);
    const regx_monitor_config_t watched = {
        .hooks = &hooked_source, .counters = &counters, .drain = drain};

    unit_expect(backend->start(&watched, &monitor, error) == REGX_OK, "%s", error);
    assert_ptr_equal(monitor->drain, drain);
    memory = unit_map(NULL, PAGES * PAGE);
    regx_inval_log_interest(monitor->log, (uintptr_t)memory, (uintptr_t)memory + PAGES * PAGE, 1);
}

static void end(void)
{
    monitor->stop(monitor);
    regx_drain_close(drain);
    munmap(memory, PAGES * PAGE);
}

#define DRAIN_TEST(name)                                                                           \
    UNIT_TEST_WITHIN(name, hooked_reset, start(&regx_backend_hooks, LONG), end())

static void expect(uint64_t waits, uint64_t expired)
{
    assert_int_equal(counters.drain_waits, waits);
    assert_int_equal(regx_tally_find(counters.fallbacks, REGX_DRAIN_EXPIRED)->count, expired);
}

/* The middle of the memory; the rest are neighbours. */
static uint32_t hold(void)
{
    return regx_drain_hold(drain, memory + 2 * PAGE + 100, 2 * PAGE);
}

DRAIN_TEST(a_change_waits_until_the_transfer_is_over)
{
    plan.hold = hold();
    assert_int_not_equal(plan.hold, 0);
    atomic_store(&plan.ends, ROUNDS);
    const uint64_t before = atomic_load(&monitor->log->head);
    munmap(memory + 3 * PAGE, PAGE);
    assert_true(atomic_load(&plan.rounds) >= ROUNDS); /* so it was over first */
    assert_int_equal(plan.head, before);              /* and no change had been reported */
    assert_int_equal(atomic_load(&monitor->log->head), before + 1);
    assert_false(pthread_equal(plan.thread, pthread_self()));
    expect(1, 0);
}

DRAIN_TEST(a_neighbour_does_not_wait)
{
    plan.hold = hold();
    munmap(memory, 2 * PAGE);
    munmap(memory + 5 * PAGE, 3 * PAGE);
    expect(0, 0);
    regx_drain_let_go(drain, plan.hold);
    munmap(memory + 2 * PAGE, 2 * PAGE); /* nor what was in use before */
    expect(0, 0);
    assert_int_equal(atomic_load(&plan.rounds), 0);
}

UNIT_TEST_BETWEEN(the_time_runs_out_and_the_change_is_made, hooked_reset, NULL)
{
    start(&regx_backend_hooks, SHORT);
    plan.hold = hold();
    const uint64_t before = atomic_load(&monitor->log->head);

    assert_int_equal(munmap(memory + 3 * PAGE, PAGE), 0);
    expect(1, 1);
    assert_int_equal(atomic_load(&monitor->log->head), before + 1);
    regx_drain_let_go(drain, plan.hold);
    end();
}

/* Progress frees memory, too; if that is in use, by an error, the helper cannot wait for itself. */
DRAIN_TEST(the_helper_does_not_wait_for_itself)
{
    plan.hold = regx_drain_hold(drain, memory, PAGES * PAGE);
    atomic_store(&plan.frees, 1);
    atomic_store(&plan.ends, 2);
    munmap(memory + 3 * PAGE, PAGE);
    expect(1, 0);
}

DRAIN_TEST(a_child_does_not_wait)
{
    plan.hold = hold();
    if (process_in_child()) {
        munmap(memory, PAGES * PAGE);
        regx_drain_close(drain);
        _exit(0);
    }
    expect(0, 0);
    regx_drain_let_go(drain, plan.hold);
}

DRAIN_TEST(more_transfers_than_places_are_counted_and_not_waited_for)
{
    uint32_t holds[REGX_HOLDS_MAX];

    for (unsigned i = 0; i < REGX_HOLDS_MAX; i++) {
        holds[i] = regx_drain_hold(drain, memory, PAGE);
        assert_int_equal(holds[i], i + 1);
    }
    assert_int_equal(hold(), 0);
    assert_string_equal(counters.fallbacks[0].reason, "inuse=drain: too many transfers at once");
    munmap(memory + 2 * PAGE, 3 * PAGE);
    expect(0, 0);
    regx_drain_let_go(drain, 0);
    regx_drain_let_go(drain, holds[7]);
    assert_int_equal(hold(), holds[7]);
    for (unsigned i = 0; i < REGX_HOLDS_MAX; i++) {
        regx_drain_let_go(drain, holds[i]);
    }
}

/* What a transfer uses stays as it is until the transfer is over, whatever is done to it when: the
 * pages are really taken away. */
enum { CHANGES = 300 };

static struct {
    atomic_uint begun, changed; /* transfers, and changes of what they use */
    atomic_bool in_use;
} turns;

static void *transfer_again_and_again(void *unused)
{
    uint32_t chance = 17;

    for (unsigned turn = 1; turn <= CHANGES; turn++) {
        const uint32_t held = regx_drain_hold(drain, memory, PAGES * PAGE);
        bool whole = true;

        memset(memory, (int)turn, PAGES * PAGE);
        atomic_store(&turns.in_use, true);
        atomic_store(&turns.begun, turn);
        chance = chance * 1664525u + 1013904223u;
        for (unsigned look = chance >> 28; look > 0; look--) {
            for (unsigned page = 0; page < PAGES; page++) {
                whole = whole && memory[page * PAGE] == (unsigned char)turn;
            }
            sched_yield();
        }
        atomic_store(&turns.in_use, false);
        regx_drain_let_go(drain, held);
        await(atomic_load(&turns.changed) == turn);
        if (!whole) {
            return memory;
        }
    }
    return NULL;
}

DRAIN_TEST(what_is_in_use_stays_as_it_is)
{
    unsigned used = 0;
    pthread_t thread;
    void *failed;

    memset(&turns, 0, sizeof(turns));
    pthread_create(&thread, NULL, transfer_again_and_again, NULL);
    for (unsigned turn = 1; turn <= CHANGES; turn++) {
        await(atomic_load(&turns.begun) == turn);
        madvise(memory + (size_t)(turn % PAGES) * PAGE, PAGE, MADV_DONTNEED);
        used += atomic_load(&turns.in_use);
        atomic_store(&turns.changed, turn);
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(used, 0); /* when a change was made */
    assert_true(counters.drain_waits > 0 && counters.fallbacks[0].count == 0);
}

UNIT_TEST_BETWEEN(hooks_beside_the_notifier_wait_too, hooked_reset, NULL)
{
    const regx_monitor_config_t alone = {.counters = &counters};
    regx_monitor_t *notifier;
    regx_error_t error;

    unit_need(regx_backend_notifier.start(&alone, &notifier, error) == REGX_OK, "%s", error);
    notifier->stop(notifier);
    start(&regx_backend_hooks_notifier, LONG);
    plan.hold = hold();
    atomic_store(&plan.ends, ROUNDS);
    munmap(memory + 3 * PAGE, PAGE);
    assert_true(atomic_load(&plan.rounds) >= ROUNDS);
    expect(1, 0);
    end();
}
