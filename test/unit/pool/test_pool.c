/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The pool: every slot is given out once, the newest first, and counted.
 */
#include "../unit.h"

#include "pool/pool.h"

enum { SLOT = 4096 };

static char memory[64 * SLOT];

UNIT_TEST(sizes_that_do_not_make_two_slots_are_refused)
{
    regx_counters_t counters = {0};
    regx_pool_t pool;

    assert_int_equal(regx_pool_init(&pool, memory, 0, SLOT, false, &counters), REGX_INVALID);
    assert_int_equal(regx_pool_init(&pool, memory, 2 * SLOT - 1, SLOT, false, &counters),
                     REGX_INVALID);
    assert_int_equal(regx_pool_init(&pool, memory, sizeof(memory), 0, false, &counters),
                     REGX_INVALID);
    /* More slots than numbers for them; the memory is never touched. */
    assert_int_equal(regx_pool_init(&pool, memory, UINT32_MAX, 1, false, &counters), REGX_INVALID);
    assert_int_equal(counters.pool_bytes, 0);
}

UNIT_TEST(slots_lie_apart_within_the_memory)
{
    regx_counters_t counters = {0};
    regx_pool_t pool;

    /* The rest behind the last whole slot belongs to no slot. */
    assert_int_equal(regx_pool_init(&pool, memory, 5 * SLOT + 100, SLOT, false, &counters),
                     REGX_OK);
    assert_int_equal(pool.slots, 5);
    assert_int_equal(counters.pool_bytes, 5 * SLOT + 100);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(regx_pool_get(&pool), i);
        assert_ptr_equal(regx_pool_slot(&pool, i), memory + (size_t)i * SLOT);
        assert_int_equal(counters.slots_high, i + 1);
    }
    assert_int_equal(regx_pool_get(&pool), REGX_SLOT_NONE);
    assert_int_equal(counters.slots_high, 5);
    regx_pool_fini(&pool);
}

UNIT_TEST(the_newest_is_reused_first)
{
    regx_counters_t counters = {0};
    regx_pool_t pool;

    assert_int_equal(regx_pool_init(&pool, memory, sizeof(memory), SLOT, false, &counters),
                     REGX_OK);
    /* Four at a time, given back in order: the last one given back comes first. */
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(regx_pool_get(&pool), i);
    }
    for (uint32_t i = 0; i < 4; i++) {
        regx_pool_put(&pool, i);
    }
    for (uint32_t i = 4; i-- > 0;) {
        assert_int_equal(regx_pool_get(&pool), i);
    }
    assert_int_equal(regx_pool_get(&pool), 4);
    assert_int_equal(counters.slots_high, 5);
    regx_pool_fini(&pool);
}

/* A slot's first word says who holds it: each finds it free and, later, still its own. */
enum { THREADS = 4, ROUNDS = 50000, HELD = 3, SHARED_SLOTS = 8 };

typedef struct holder {
    pthread_t thread;
    regx_pool_t *pool;
    uint32_t name; /* not 0 */
    uint64_t got;
    uint64_t stolen;
} holder_t;

static _Atomic uint32_t *owner(regx_pool_t *pool, uint32_t slot)
{
    return (_Atomic uint32_t *)(void *)regx_pool_slot(pool, slot);
}

static void *hold(void *argument)
{
    holder_t *holder = argument;
    regx_pool_t *pool = holder->pool;

    for (int round = 0; round < ROUNDS || holder->got == 0; round++) {
        uint32_t held[HELD];

        for (int i = 0; i < HELD; i++) {
            held[i] = regx_pool_get(pool);
            if (held[i] != REGX_SLOT_NONE) {
                holder->got++;
                holder->stolen += atomic_exchange(owner(pool, held[i]), holder->name) != 0;
            }
        }
        for (int i = 0; i < HELD; i++) {
            if (held[i] != REGX_SLOT_NONE) {
                holder->stolen += atomic_exchange(owner(pool, held[i]), 0) != holder->name;
                regx_pool_put(pool, held[i]);
            }
        }
    }
    return NULL;
}

UNIT_TEST(threads_never_hold_the_same_slot)
{
    regx_counters_t counters = {.threads = true};
    holder_t holders[THREADS] = {0};
    bool seen[SHARED_SLOTS] = {false};
    regx_pool_t pool;

    memset(memory, 0, sizeof(memory));
    assert_int_equal(
        regx_pool_init(&pool, memory, SHARED_SLOTS * (size_t)SLOT, SLOT, true, &counters), REGX_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        holders[i].pool = &pool;
        holders[i].name = i + 1;
        holders[i].thread = unit_thread(hold, &holders[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(holders[i].thread, NULL);
        assert_int_equal(holders[i].stolen, 0);
        assert_true(holders[i].got > 0);
    }
    assert_in_range(counters.slots_high, HELD, SHARED_SLOTS);
    for (int i = 0; i < SHARED_SLOTS; i++) {
        const uint32_t slot = regx_pool_get(&pool);

        assert_true(slot < SHARED_SLOTS && !seen[slot]);
        seen[slot] = true;
    }
    assert_int_equal(regx_pool_get(&pool), REGX_SLOT_NONE);
    regx_pool_fini(&pool);
}
