/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What every unit test needs: cmocka (whose header wants others first) and a few helpers.
 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#undef stop /* a macro of cmocka 2; monitors have a function of that name */

#include "../stamp.h"

/* cmocka hands each test a state, and callbacks get what their callers have: few use all of it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
/* cmocka 2 wants asserts by names that 1 does not have. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* Seconds after which a test that hangs is ended (alarm): no busy machine makes one take so long.
 * Less than what ends its program (test/units.py). */
enum { UNIT_PATIENCE = 600 };

/* Fails the test with that message unless it is so. */
#define unit_expect(so, ...)                                                                       \
    do {                                                                                           \
        if (!(so)) {                                                                               \
            fail_msg(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

/* Skips the test unless it is so, and says that for want of this it was not tried. */
#define unit_need(so, ...)                                                                         \
    do {                                                                                           \
        if (!(so)) {                                                                               \
            print_message("not tried: ");                                                          \
            print_message(__VA_ARGS__);                                                            \
            print_message("\n");                                                                   \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* The byte at that position of the stream named `stream`: content that no other stream has there.
 * (Of key 0 the first stamps would be zeros.) */
static inline uint8_t unit_stamp(uint64_t stream, size_t position)
{
    return stamp_byte(~stream, position);
}

/* What the stream has from there on. */
static inline void unit_fill(uint8_t *to, size_t length, uint64_t stream, size_t position)
{
    stamp_fill(to, length, ~stream, position);
}

/* Whether it is how the stream begins. */
static inline bool unit_is_filled(const uint8_t *data, size_t length, uint64_t stream)
{
    return stamp_check(data, length, ~stream, 0) == length;
}

/* Whether all of it has that value. */
static inline bool unit_is_all(const uint8_t *memory, size_t length, uint8_t value)
{
    return length == 0 || (memory[0] == value && memcmp(memory, memory + 1, length - 1) == 0);
}

/* cmocka's handlers turn a crash into a failure, for the rest of this test no more: it asks what
 * happens in a program that handles no signal. */
static inline void unit_handle_no_faults(void)
{
    (void)signal(SIGSEGV, SIG_DFL);
    (void)signal(SIGBUS, SIG_DFL);
}

/* Starts a thread. */
pthread_t unit_thread(void *(*function)(void *), void *argument);

/* New private memory, of zeros: anywhere (NULL), or there, where nothing is. */
void *unit_map(void *at, size_t length);

/* A figure that scatters, the same in each run. */
static inline uint32_t unit_scatter(uint32_t seed, uint32_t index)
{
    uint64_t x = (((uint64_t)seed << 32) | index) * 0x9e3779b97f4a7c15U;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9U;
    return (uint32_t)(x >> 32);
}

/* ---- the tests of a program ---- */

/* Constructors run in any order, tests in that of their files and lines. */
void unit_add(struct CMUnitTest test, const char *file, int line);

/* UNIT_TEST(what_is_expected) { ... } is a test, which gets `void **state`. */
#define UNIT_TEST(name) UNIT_TEST_BETWEEN(name, NULL, NULL)
#define UNIT_TEST_BETWEEN(name, setup, teardown)                                                   \
    static void name(void **state);                                                                \
    static void unit_timed_##name(void **state)                                                    \
    {                                                                                              \
        alarm(UNIT_PATIENCE);                                                                      \
        name(state);                                                                               \
    }                                                                                              \
    __attribute__((constructor)) static void unit_add_##name(void)                                 \
    {                                                                                              \
        unit_add((struct CMUnitTest){#name, unit_timed_##name, setup, teardown, NULL}, __FILE__,   \
                 __LINE__);                                                                        \
    }                                                                                              \
    static void name(void **state)

/* The same, with statements around it, which may skip it. */
#define UNIT_TEST_WITHIN(name, setup, before, after)                                               \
    static void unit_body_##name(void **state);                                                    \
    UNIT_TEST_BETWEEN(name, setup, NULL)                                                           \
    {                                                                                              \
        before;                                                                                    \
        unit_body_##name(state);                                                                   \
        after;                                                                                     \
    }                                                                                              \
    static void unit_body_##name(void **state)

/* The same, which has `variable` for itself: opened before, and closed after. */
#define UNIT_TEST_WITH(name, setup, type, variable, opened, closed)                                \
    static void unit_with_##name(type variable);                                                   \
    UNIT_TEST_BETWEEN(name, setup, NULL)                                                           \
    {                                                                                              \
        type variable = opened;                                                                    \
        unit_with_##name(variable);                                                                \
        closed;                                                                                    \
    }                                                                                              \
    static void unit_with_##name(type variable)

/* UNIT_WRAP(type, name, parameters) { ... } stands in that function's place in a program that is linked with
 * --wrap=name; __real_name is the function itself. */
#define UNIT_WRAP(type, name, ...)                                                                 \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* What a program does before the first test and after the last, if it says so. */
typedef struct unit_group {
    CMFixtureFunction setup, teardown;
    bool (*refused)(
        void); /* whether this machine lacks what they need; says so if not, instead of a plan */
} unit_group_t;
extern const unit_group_t unit_group;
