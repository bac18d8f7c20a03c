/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of hazards of registration caches, by the numbers of the project's list of what
 * broke others: each is tried with each backend that caches, and every byte is compared with what
 * the oracle, as the device, has.
 */
#ifndef REGX_TEST_HAZARD_H
#define REGX_TEST_HAZARD_H

#include "unit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../below_room.h"
#include "base/util.h"
#include "change.h"
#include "rig.h"

enum { LENGTH = 64 << 10 };

static rig_t rig;
static bool opened;
static char why[256];

static const char *backend; /* of the test that runs */

static inline void open_rig(rig_config_t config)
{
    config.backend = backend;
    opened = rig_open(&rig, &config, why, sizeof(why));
    if (!opened) {
        print_message("not tried: %s\n", why);
        skip();
    }
    rig_settle(&rig); /* of the self-test's changes */
}

/* The user's, and root is not charged. */
static inline void need_locked(size_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (geteuid() != 0 && limit.rlim_cur < bytes) {
        print_message("not tried: this user may lock %zu bytes only\n", (size_t)limit.rlim_cur);
        skip();
    }
}

static inline int setup(void **state)
{
    backend = *state;
    opened = false;
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    if (opened) {
        rig_close(&rig);
    }
    return 0;
}

/* Anywhere (NULL), where other threads do not map when it is unmapped; or there, where it was. */
static inline uint8_t *map_at(void *where, size_t length)
{
    uint8_t *memory = where == NULL
                          ? map_below_room(length)
                          : mmap(where, length, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static inline transfer_t right(direction_t direction, void *base, size_t length, uint64_t stamp)
{
    const transfer_t transfer = rig_transfer(&rig, direction, base, length, stamp);

    assert_int_equal(transfer.status, REGX_OK);
    assert_int_equal(transfer.right, length);
    return transfer;
}

static inline uint64_t count(const _Atomic uint64_t *counter)
{
    return rig_count(&rig, counter);
}

/* Acts on all changes so far, and deregisters all that is dead. */
static inline void settle(void)
{
    unsigned before;

    rig_settle(&rig);
    do {
        before = oracle_registered(rig.oracle);
        regx_registry_progress(&rig.registry);
    } while (oracle_registered(rig.oracle) != before);
}

enum { PATIENCE = 60 }; /* seconds; a cache that never gets there is wrong, not slow */

static inline bool patience_ended(int64_t began)
{
    return regx_now_ns() - began > (int64_t)PATIENCE * 1000000000;
}

/* Until so many regions are registered, and no more: our thread may still be at work. */
static inline void await_registered(unsigned regions)
{
    const int64_t began = regx_now_ns();
    unsigned registered;

    rig_settle(&rig);
    while ((registered = oracle_registered(rig.oracle)) != regions) {
        if (patience_ended(began)) {
            fail_msg("%u regions are registered after %d s, not %u", registered, PATIENCE, regions);
        }
        regx_registry_progress(&rig.registry);
        sched_yield();
    }
}

#define HAZARD(function)                                                                           \
    {                                                                                              \
#function, function, setup, teardown, NULL                                                 \
    }

/* A thread that ends gives its stack back after the thread sanitizer has forgotten it, and hooks
 * then run in it: what they store then has nowhere to be noted, and the sanitizer falls over. */
#ifdef __SANITIZE_THREAD__
enum { BACKENDS = 2 };
#else
enum { BACKENDS = 3 };
#endif

/* Each of them with each backend; `tests` has room for all. */
static inline void hazards_with_backends(const struct CMUnitTest *hazards, size_t count,
                                         struct CMUnitTest *tests)
{
    static const char *const with[] = {"hooks", "notifier", "hooks+notifier"};
    enum { NAME_MOST = 80 };

    for (size_t i = 0; i < count * BACKENDS; i++) {
        char *name = malloc(NAME_MOST); /* stays */

        assert_non_null(name);
        tests[i] = hazards[i % count];
        tests[i].initial_state = (void *)(uintptr_t)with[i / count];
        snprintf(name, NAME_MOST, "%s with %s", tests[i].name, with[i / count]);
        tests[i].name = name;
    }
}

#endif
