/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The look-up cache: where a thread found regions lately. A hint, that is right for what is asked
 * for again, and never believed about what is another region by now.
 */
#include "registry.h"

/* The next page, from that one on, whose requests are looked for in set 0; also: first in `way`. */
static uintptr_t next_of_set(uintptr_t page, uint32_t way)
{
    regx_lookup_key_t key;

    do {
        page += PAGE;
        key = regx_lookup_key(page);
    } while (key.set != 0 || (way < REGX_LOOKUP_WAYS && key.way != way));
    return page;
}

static regx_thread_state_t *ts(const registry_t *r)
{
    return regx_cache_last_state(r->cache)->ts;
}

/* Places that name a region for requests that begin there, and those of them that name that one. */
static unsigned places(const registry_t *r, uintptr_t at, uint32_t number, unsigned *right)
{
    const regx_lookup_key_t key = regx_lookup_key(at);
    unsigned count = 0;

    *right = 0;
    for (uint32_t probe = 0; probe < REGX_LOOKUP_WAYS; probe++) {
        const uint32_t entry = regx_lookup_entry(ts(r), &key, probe);

        if (entry != 0 && regx_lookup_is(entry, &key)) {
            count++;
            *right += regx_lookup_number(entry) == number;
        }
    }
    return count;
}

static bool is_in_lookup(registry_t *r, uintptr_t at)
{
    unsigned right;

    places(r, at, regx_index_exact(&r->cache->index, at, at + PAGE), &right);
    return right == 1;
}

/* A set of the look-up cache is full of what nobody asks for, under numbers that are alive again.
 */
static registry_t *open_with_a_full_set(uintptr_t *last)
{
    registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, false);
    uintptr_t at = 0;

    for (unsigned i = 0; i < REGX_LOOKUP_WAYS; i++) {
        at = next_of_set(at, REGX_LOOKUP_WAYS);
        registry_use(r, at, PAGE);
    }
    registry_log(r, PAGE, at);
    regx_registry_progress(&r->registry);
    assert_int_equal(r->live, 0);
    for (uintptr_t i = 1; i <= REGX_LOOKUP_WAYS; i++) {
        registry_use(r, ((uintptr_t)1 << 40) + i * PAGE, PAGE);
    }
    assert_int_equal(r->cache->regions.used, 1 + REGX_LOOKUP_WAYS);
    for (unsigned i = 0; i < REGX_LOOKUP_WAYS; i++) {
        assert_true(ts(r)->lookup[0][i] != 0);
    }
    *last = at;
    return r;
}

static void what_is_asked_for_replaces_what_is_not_any_more(void **state)
{
    uintptr_t live[REGX_LOOKUP_WAYS];
    unsigned found = 0;

    (void)state;
    /* Two that are looked for in the same place first do not push out each other. */
    registry_t *r = open_with_a_full_set(&live[0]);

    live[0] = next_of_set(live[0], 0);
    live[1] = next_of_set(live[0], 0);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(registry_served(r, live[i], PAGE), round == 0 ? MISS : HIT);
            assert_true(is_in_lookup(r, live[i]));
            assert_true(round == 0 || is_in_lookup(r, live[1 - i]));
        }
    }
    registry_close(r);

    /* As many as there are places, wherever they are looked for first: soon all of them are there.
     */
    for (uint32_t way = 0; way <= REGX_LOOKUP_WAYS; way++) {
        r = open_with_a_full_set(&live[0]);
        live[0] = next_of_set(live[0], way);
        for (unsigned i = 1; i < REGX_LOOKUP_WAYS; i++) {
            live[i] = next_of_set(live[i - 1], way);
        }
        found = 0;
        for (unsigned round = 0; round < 100 && found < REGX_LOOKUP_WAYS; round++) {
            found = 0;
            for (unsigned i = 0; i < REGX_LOOKUP_WAYS; i++) {
                registry_use(r, live[i], PAGE);
            }
            for (unsigned i = 0; i < REGX_LOOKUP_WAYS; i++) {
                found += is_in_lookup(r, live[i]);
            }
        }
        assert_int_equal(found, REGX_LOOKUP_WAYS);
        registry_close(r);
    }
}

static uint32_t first_place(const registry_t *r, uintptr_t at)
{
    const regx_lookup_key_t key = regx_lookup_key(at);

    return regx_lookup_number(regx_lookup_entry(ts(r), &key, 0));
}

/* Where a region was that is another by now, the look-ups do not come upon that one first. */
static void a_buffer_mapped_anew_is_found_at_the_first_place(void **state)
{
    registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, false);
    regx_region_t region;

    (void)state;
    registry_get(r, 0x100000, PAGE, &region);
    const uint32_t number = region.kept;

    regx_region_release(&r->registry, &region);
    registry_log(r, 0x100000, PAGE);
    regx_registry_progress(&r->registry);
    registry_get(r, 0x900000, PAGE, &region);
    assert_int_equal(region.kept, number);
    regx_region_release(&r->registry, &region);
    assert_int_equal(first_place(r, 0x100000), number);
    registry_get(r, 0x100000, PAGE, &region);
    assert_true(region.kept != number);
    assert_int_equal(first_place(r, 0x100000), region.kept);
    regx_region_release(&r->registry, &region);
    registry_close(r);
}

/* Two pages that the look-up cache cannot tell apart are both found in it. */
static void two_pages_with_the_same_key_are_both_found(void **state)
{
    registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, false);
    const uintptr_t at = 0x100000;
    const regx_lookup_key_t key = regx_lookup_key(at);
    uintptr_t last = 1, apart = 1; /* Fibonacci numbers, which the hash spreads least */
    regx_lookup_key_t other;

    (void)state;
    do {
        const uintptr_t next = last + apart;

        last = apart;
        apart = next;
        other = regx_lookup_key(at + apart * PAGE);
    } while (key.set != other.set || key.way != other.way || key.tag != other.tag);
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(registry_served(r, at, PAGE), round == 0 ? MISS : HIT);
        assert_int_equal(registry_served(r, at + apart * PAGE, PAGE), round == 0 ? MISS : HIT);
        unsigned right;

        assert_int_equal(places(r, at, first_place(r, at), &right), 2);
    }
    registry_close(r);
}

/* What the look-up cache remembers may be another region by now. */
static void a_record_used_again_is_another_region(void **state)
{
    registry_t *r = registry_open_threaded(REGX_UNLIMITED, false, false);
    regx_region_t region;

    (void)state;
    for (uintptr_t round = 1; round <= 100; round++) {
        const uintptr_t at = round << 16;

        registry_get(r, at, 2 * PAGE, &region);
        assert_int_equal(region.kept, 1); /* the same record each time */
        regx_region_release(&r->registry, &region);
        assert_int_equal(registry_served(r, at, 2 * PAGE), HIT);
        if (round > 1) {
            registry_get(r, at - 0x10000, PAGE, &region); /* where it was before */
            assert_ptr_equal(region.mr->base, at - 0x10000);
            regx_region_release(&r->registry, &region);
            registry_log(r, at - 0x10000, PAGE);
        }
        registry_log(r, at, PAGE);
        regx_registry_progress(&r->registry);
        assert_int_equal(r->live, 0);
    }
    assert_in_range(r->cache->regions.used, 2, 3);
    registry_close(r);
}

/* Of what the look-up cache remembers, only what is alive costs a query; a buffer that was mapped
 * anew has that of its new region alone. */
static void what_is_dead_is_not_asked_about(void **state)
{
    (void)state;
    for (int fences = 0; fences <= 1; fences++) {
        registry_t *r = registry_open_threaded(REGX_UNLIMITED, true, fences);

        for (unsigned round = 0; round < 5; round++) {
            r->asks = 0;
            assert_int_equal(registry_served(r, 0x100000, PAGE), MISS);
            assert_int_equal(r->asks, 1);
            assert_int_equal(registry_served(r, 0x100000, PAGE), HIT);
            assert_int_equal(r->asks, 2);
            registry_log(r, 0x100000, PAGE);
            regx_registry_progress(&r->registry);
        }
        registry_close(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_used_again_is_another_region),
        cmocka_unit_test(what_is_dead_is_not_asked_about),
        cmocka_unit_test(what_is_asked_for_replaces_what_is_not_any_more),
        cmocka_unit_test(a_buffer_mapped_anew_is_found_at_the_first_place),
        cmocka_unit_test(two_pages_with_the_same_key_are_both_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
