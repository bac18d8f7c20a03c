/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which ports of two processes carry their messages: the same at both ends.
 */
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "btl/pairing.h"

/* The fabric that each port is on: those of one fabric reach each other. */
typedef struct process {
    unsigned fabric[REGX_PAIRING_MAX];
    unsigned count;
} process_t;

typedef struct two {
    const process_t *ours, *theirs;
} two_t;

static bool reaches(void *context, unsigned ours, unsigned theirs)
{
    const two_t *two = context;

    return two->ours->fabric[ours] == two->theirs->fabric[theirs];
}

static void decide(const process_t *ours, const process_t *theirs, int talks_to[REGX_PAIRING_MAX])
{
    two_t two = {ours, theirs};
    const regx_pairing_t pairing = {ours->count, theirs->count, reaches, &two};

    regx_pair(&pairing, talks_to);
}

static void ports_at_the_same_place_meet(void **state)
{
    const process_t rails = {.fabric = {1, 1}, .count = 2};
    const process_t other = {.fabric = {2, 1, 1}, .count = 3};
    int talks_to[REGX_PAIRING_MAX];

    (void)state;
    decide(&rails, &rails, talks_to);
    assert_int_equal(talks_to[0], 0);
    assert_int_equal(talks_to[1], 1);
    decide(&rails, &other, talks_to);
    assert_int_equal(talks_to[0], 2);
    assert_int_equal(talks_to[1], 1);
}

static void nothing_in_common_is_seen(void **state)
{
    const process_t one = {.fabric = {1}, .count = 1}, other = {.fabric = {2}, .count = 1};
    const process_t none = {.count = 0};
    int talks_to[REGX_PAIRING_MAX];

    (void)state;
    decide(&one, &other, talks_to);
    assert_int_equal(talks_to[0], REGX_PAIRING_NONE);
    decide(&one, &none, talks_to);
    assert_int_equal(talks_to[0], REGX_PAIRING_NONE);
}

static process_t any_process(uint64_t *state)
{
    process_t process = {.count = 0};

    for (uint64_t ports = chance_next(state) % 6; ports > 0; ports--) {
        process.fabric[process.count++] = (unsigned)(1 + chance_next(state) % 3);
    }
    return process;
}

/* Ours talks to theirs where theirs talks to ours, and as many as can be. */
static void both_ends_decide_alike(void **state)
{
    int ours[REGX_PAIRING_MAX], theirs[REGX_PAIRING_MAX];
    uint64_t chance = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        const process_t one = any_process(&chance), other = any_process(&chance);

        decide(&one, &other, ours);
        decide(&other, &one, theirs);
        for (unsigned i = 0; i < one.count; i++) {
            assert_true(ours[i] < 0 || theirs[ours[i]] == (int)i);
            for (unsigned j = 0; j < other.count; j++) { /* two that are free do not match */
                assert_false(ours[i] < 0 && theirs[j] < 0 && one.fabric[i] == other.fabric[j]);
            }
        }
        for (unsigned j = 0; j < other.count; j++) {
            assert_true(theirs[j] < 0 || ours[theirs[j]] == (int)j);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_at_the_same_place_meet),
        cmocka_unit_test(nothing_in_common_is_seen),
        cmocka_unit_test(both_ends_decide_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
