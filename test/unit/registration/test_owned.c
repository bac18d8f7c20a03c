/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owned memory (MPI_Alloc_mem): a device registers a block of it once, for its life.
 */
#include "registry.h"

enum { BLOCK = 0x40000, USES = 20, THREADS = 4, ROUNDS = 300 };

static const uintptr_t here = 0x10000000;

static regx_owned_t owned;
static _Atomic unsigned given_back;
static _Atomic uintptr_t given_back_last;
static registry_t *giver; /* whose registrations are to have ended by then; NULL: does not matter */
static _Atomic unsigned live_then;

static void give_back(void *base, size_t length)
{
    assert_int_equal(length, BLOCK);
    given_back++;
    given_back_last = (uintptr_t)base;
    live_then = giver != NULL ? giver->live : 0;
}

static void add(uintptr_t base)
{
    assert_true(regx_owned_add(&owned, (void *)base, BLOCK));
}

static void set_free(uintptr_t base)
{
    regx_owned_free(&owned, (void *)base);
}

static void owned_reset(void)
{
    unit_handle_no_faults(); /* else it may have protected its own, and nothing is used for life */
    given_back = 0;
    giver = NULL;
    regx_owned_init(&owned, true, give_back);
}

/* Nothing is kept of other memory. */
static registry_t *open_none(uint64_t bytes)
{
    giver = registry_open_over(NULL, &(regx_cache_config_t){.bytes = bytes, .owned = &owned});
    return giver;
}

static registry_t *begin(void)
{
    owned_reset();
    return open_none(UNLIMITED);
}

static void end(registry_t *r)
{
    registry_close(r);
    regx_owned_fini(&owned);
}

#define OWNED_TEST(test) UNIT_TEST_WITH(test, NULL, registry_t *, r, begin(), end(r))
/* The same, which opens and closes its registries itself. */
#define OWNED_ALONE_TEST(test) UNIT_TEST_WITHIN(test, NULL, owned_reset(), regx_owned_fini(&owned))

/* Whether it is used without being registered now; all of its block is there for every access. */
static bool used_again(registry_t *r, uintptr_t base, size_t length, unsigned access)
{
    const unsigned before = r->regs;
    regx_region_t region;

    assert_int_equal(registry_try(r, base, length, access, &region), REGX_OK);
    assert_true((uintptr_t)region.mr->base <= base &&
                base + length <= (uintptr_t)region.mr->base + region.mr->length);
    assert_int_equal(region.mr->access & access, access);
    regx_region_release(&r->registry, &region);
    return r->regs == before;
}

static bool registered(registry_t *r, uintptr_t base, size_t length, unsigned access)
{
    return !used_again(r, base, length, access);
}

OWNED_ALONE_TEST(a_block_is_registered_once_whatever_of_it_is_used_for_what)
{
    static const unsigned accesses[] = {REGX_ACCESS_REMOTE_WRITE, REGX_ACCESS_LOCAL,
                                        REGX_ACCESS_REMOTE_READ, REGX_ACCESS_LOCAL_WRITE};
    registry_t *r = open_none(UNLIMITED);

    add(here);
    add(here - BLOCK); /* below, and next to it */
    assert_int_equal(r->regs, 0);
    assert_true(registered(r, here + 5, 100, REGX_ACCESS_LOCAL));
    for (unsigned i = 0; i < USES; i++) {
        assert_true(used_again(r, here + i * 1000, BLOCK - i * 1000, accesses[i % 4]));
    }
    assert_int_equal(r->counters.registered_bytes, BLOCK);
    assert_int_equal(r->counters.uncached, 0);
    assert_int_equal(r->counters.uses_owned, USES + 1);
    assert_true(registered(r, here - 1, 1, REGX_ACCESS_LOCAL));
    assert_int_equal(r->live, 2);
    /* Other memory, as a control: what begins in a block and sticks out of it, too. */
    for (unsigned i = 0; i < USES; i++) {
        assert_true(registered(r, here + BLOCK, 100, REGX_ACCESS_LOCAL));
        assert_true(registered(r, here - 1, 2, REGX_ACCESS_LOCAL));
    }
    assert_int_equal(r->counters.uncached, 2 * USES);
    assert_int_equal(r->live, 2);
    registry_close(r);
    assert_int_equal(given_back, 0); /* the program has it still */
}

OWNED_ALONE_TEST(a_cache_has_nothing_to_do_with_it)
{
    registry_t *r = registry_open(UNLIMITED, UNLIMITED, true);

    add(here);
    r->registry.owned = &owned;
    r->registry.owned_max = UNLIMITED;
    assert_true(registered(r, here, BLOCK, REGX_ACCESS_LOCAL));
    registry_log(r, here, BLOCK); /* that is nobody's interest */
    for (unsigned i = 0; i < USES; i++) {
        assert_true(used_again(r, here + i, 1000, REGX_ACCESS_REMOTE_READ));
    }
    assert_int_equal(r->subscribes, 0);
    assert_int_equal(r->cache->room.count, 0);
    assert_int_equal(registry_served(r, here + BLOCK, PAGE), MISS);
    assert_int_equal(registry_served(r, here + BLOCK, PAGE), HIT);
    registry_close(r);
}

OWNED_TEST(what_is_freed_and_allocated_again_is_registered_anew)
{
    for (unsigned i = 1; i <= USES; i++) {
        add(here);
        assert_true(registered(r, here, BLOCK, REGX_ACCESS_LOCAL));
        assert_true(used_again(r, here, BLOCK, REGX_ACCESS_LOCAL));
        set_free(here);
        assert_int_equal(given_back, i);
        assert_ptr_equal(given_back_last, here);
        assert_int_equal(live_then, 0);
        assert_int_equal(r->deregs, i);
    }
    assert_true(registered(r, here, BLOCK, REGX_ACCESS_LOCAL)); /* nobody's now */
    assert_true(registered(r, here, BLOCK, REGX_ACCESS_LOCAL));
    add(here);
    set_free(here); /* was never used */
    assert_int_equal(given_back, USES + 1);
}

/* The program's error. Its key names what it named, until nobody has it any more. */
OWNED_TEST(what_is_freed_in_use_lasts_until_the_last_use_ends)
{
    regx_region_t first, second, other;

    add(here);
    registry_get(r, here, 100, &first);
    registry_get(r, here + 100, 100, &second);
    assert_ptr_equal(first.mr, second.mr);
    set_free(here);
    assert_int_equal(r->deregs, 0);
    registry_get(r, here, 100, &other); /* no new use of the old registration */
    assert_ptr_not_equal(other.mr, first.mr);
    assert_false(regx_region_seems_kept(&r->registry, (void *)here, 100, REGX_ACCESS_LOCAL));
    regx_region_release(&r->registry, &other);
    regx_region_release(&r->registry, &first);
    assert_int_equal(given_back, 0);
    assert_int_equal(r->live, 1);
    regx_region_release(&r->registry, &second);
    assert_int_equal(given_back, 1);
    assert_int_equal(live_then, 0);
    assert_int_equal(r->live, 0);
}

OWNED_TEST(what_the_device_refuses_is_as_other_memory)
{
    add(here);
    r->refuse_access = REGX_ACCESS_REMOTE_READ; /* a whole block needs every one */
    assert_true(regx_region_seems_kept(&r->registry, (void *)here, 100, REGX_ACCESS_LOCAL));
    assert_true(registered(r, here, 100, REGX_ACCESS_LOCAL));
    assert_int_equal(r->regs, 2);
    assert_false(regx_region_seems_kept(&r->registry, (void *)here, 100, REGX_ACCESS_LOCAL));
    r->refuse_access = 0;
    for (unsigned i = 1; i <= USES; i++) { /* it was tried once */
        assert_true(registered(r, here, 100, REGX_ACCESS_LOCAL));
        assert_int_equal(r->regs, 2 + i);
        assert_int_equal(r->counters.uncached, 1 + i);
    }
    assert_int_equal(r->counters.uses_owned, 0);
    set_free(here);
    add(here);
    assert_true(registered(r, here, 100, REGX_ACCESS_LOCAL));
    assert_true(used_again(r, here, 100, REGX_ACCESS_LOCAL));
}

static void bring_in(int signal)
{
}

/* It may have protected a block. Afterwards what was registered before serves again. */
OWNED_TEST(while_the_program_brings_in_pages_each_use_is_registered)
{
    regx_region_t region;

    add(here);
    add(here + BLOCK);
    assert_true(registered(r, here, 100, REGX_ACCESS_LOCAL));
    (void)signal(SIGSEGV, bring_in);
    for (unsigned i = 0; i < 2; i++) {
        const uintptr_t base = here + i * BLOCK; /* known, not known */

        assert_false(regx_region_seems_kept(&r->registry, (void *)base, 9, REGX_ACCESS_LOCAL));
        assert_false(
            regx_region_acquire_kept(&r->registry, (void *)base, 9, REGX_ACCESS_LOCAL, &region));
        assert_true(registered(r, base, 9, REGX_ACCESS_LOCAL));
        assert_true(registered(r, base, 9, REGX_ACCESS_LOCAL));
    }
    assert_int_equal(r->counters.uses_owned, 1);
    assert_int_equal(r->live, 1);
    unit_handle_no_faults();
    assert_true(used_again(r, here, 100, REGX_ACCESS_LOCAL));
}

/* For want of room: later uses try again, after ever longer pauses. */
OWNED_TEST(what_the_device_has_no_room_for_is_registered_when_it_has)
{
    enum { REFUSED = 12 };
    regx_region_t none;

    add(here);
    r->refusal = REGX_NO_MEMORY;
    r->refusals = UINT32_MAX;
    for (unsigned i = 0; i < REFUSED; i++) {
        assert_int_equal(registry_try(r, here, 10, REGX_ACCESS_LOCAL, &none), REGX_NO_MEMORY);
    }
    assert_int_equal(r->registry.owned_bytes, 0);
    r->refusals = 0;
    for (unsigned i = 0; i < 4 * REFUSED; i++) {
        registry_use(r, here + i, 100);
    }
    assert_true(r->counters.registrations > 1 && r->counters.registrations < REFUSED);
    assert_true(regx_region_seems_kept(&r->registry, (void *)here, 10, REGX_ACCESS_LOCAL));
}

/* By bytes, and by half of the device's regions. */
OWNED_ALONE_TEST(no_more_is_registered_for_life_than_may_be)
{
    for (int by_bytes = 0; by_bytes <= 1; by_bytes++) {
        registry_t *r = open_none(by_bytes ? 2 * BLOCK + PAGE : UNLIMITED);

        r->transport.mr_count = by_bytes ? 0 : 5;
        for (unsigned i = 0; i < 4; i++) {
            add(here + i * BLOCK);
            assert_true(registered(r, here + i * BLOCK, 10, REGX_ACCESS_LOCAL));
        }
        assert_int_equal(r->live, 2);
        for (unsigned i = 0; i < 4; i++) {
            assert_true(used_again(r, here + i * BLOCK, 10, REGX_ACCESS_LOCAL) == (i < 2));
        }
        set_free(here);
        assert_true(registered(r, here + 3 * BLOCK, 10, REGX_ACCESS_LOCAL));
        assert_true(used_again(r, here + 3 * BLOCK, 10, REGX_ACCESS_LOCAL));
        for (unsigned i = 1; i < 4; i++) {
            set_free(here + i * BLOCK);
        }
        registry_close(r);
    }
}

OWNED_ALONE_TEST(each_device_registers_it_once)
{
    registry_t *first = open_none(UNLIMITED), *second = open_none(UNLIMITED);

    add(here);
    for (unsigned i = 0; i < USES; i++) {
        registry_use(first, here, 100);
        registry_use(second, here, 100);
    }
    assert_int_equal(first->regs, 1);
    assert_int_equal(second->regs, 1);
    registry_close(first); /* checks that nothing of it is left */
    registry_use(second, here, 100);
    assert_int_equal(second->regs, 1);
    set_free(here);
    assert_int_equal(second->live, 0);
    assert_int_equal(given_back, 1);
    registry_close(second);
}

OWNED_TEST(a_use_may_ask_for_what_is_registered_alone)
{
    regx_region_t region;

    add(here);
    assert_true(regx_region_seems_kept(&r->registry, (void *)here, 100, REGX_ACCESS_LOCAL));
    assert_false(
        regx_region_acquire_kept(&r->registry, (void *)here, 100, REGX_ACCESS_LOCAL, &region));
    assert_int_equal(r->regs, 0);
    registry_use(r, here, 100);
    assert_true(regx_region_acquire_kept(&r->registry, (void *)(here + 9), 100, REGX_ACCESS_LOCAL,
                                         &region));
    regx_region_t copy = region;
    memset(&region, 0xee, sizeof(region));
    regx_region_release(&r->registry, &copy);
    assert_int_equal(r->regs, 1);
}

/* Its parent's registrations name its parent's memory. */
OWNED_TEST(a_child_of_fork_uses_and_ends_none)
{
    add(here);
    add(here + BLOCK);
    registry_use(r, here, 100);
    r->transport.forked = true;
    assert_true(registered(r, here, 100, REGX_ACCESS_LOCAL));
    assert_false(regx_region_seems_kept(&r->registry, (void *)here, 100, REGX_ACCESS_LOCAL));
    set_free(here);
    set_free(here + BLOCK);
    assert_int_equal(r->live, 1);
    r->live = 0; /* the parent's */
    r->counters.registrations = r->counters.deregistrations;
    r->counters.registered_bytes = 0;
}

/* While it is being registered another use has a registration of its own; and if it is freed then, the
 * first one is good for its own use. */
static void use_and_free(registry_t *r, uintptr_t start, uintptr_t end)
{
    r->during = NULL;
    assert_int_equal(end - start, BLOCK);
    assert_true(registered(r, start, 100, REGX_ACCESS_LOCAL));
    assert_int_equal(r->counters.uncached, 1);
    set_free(start);
}

OWNED_TEST(it_may_be_freed_while_it_is_registered)
{
    regx_region_t region;

    add(here);
    r->during = use_and_free;
    registry_get(r, here, 100, &region);
    assert_int_equal(r->live, 1);
    assert_int_equal(given_back, 0);
    regx_region_release(&r->registry, &region);
    assert_int_equal(r->live, 0);
    assert_int_equal(given_back, 1);
}

typedef struct worker {
    pthread_t thread;
    registry_t *r;
    uintptr_t own; /* its block; all use the one at `here` */
} worker_t;

static void *work(void *argument)
{
    const worker_t *worker = argument;
    regx_region_t all, own;

    for (unsigned i = 0; i < ROUNDS; i++) {
        add(worker->own);
        registry_get(worker->r, here + i, 100, &all);
        registry_get(worker->r, worker->own, 100, &own);
        assert_int_equal(own.mr->length, BLOCK);
        regx_region_release(&worker->r->registry, &all);
        if (i % 2 == 0) { /* freed in use */
            set_free(worker->own);
            regx_region_release(&worker->r->registry, &own);
        } else {
            regx_region_release(&worker->r->registry, &own);
            set_free(worker->own);
        }
    }
    return NULL;
}

OWNED_TEST(threads_use_allocate_and_free_at_the_same_time)
{
    worker_t workers[THREADS];

    r->counters.threads = true;
    giver = NULL;
    add(here);
    for (uintptr_t i = 0; i < THREADS; i++) {
        workers[i] = (worker_t){.r = r, .own = here + (i + 1) * 2 * BLOCK};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    assert_int_equal(given_back, THREADS * ROUNDS);
    assert_int_equal(r->live, 1);
    assert_int_equal(r->counters.registrations - r->counters.uncached, THREADS * ROUNDS + 1);
    assert_int_equal(r->counters.uses_owned + r->counters.uncached, 2 * THREADS * ROUNDS);
}
