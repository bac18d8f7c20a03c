/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transports carry the messages of two processes: one kind, and the same at both ends.
 */
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "btl/pairing.h"

#define UCT                                                                                        \
    {                                                                                              \
        .kind = "uct", .kind_length = 3, .for_node = true                                          \
    }
#define VERBS                                                                                      \
    {                                                                                              \
        .kind = "verbs", .kind_length = 5                                                          \
    }

/* The fabric that each transport is on: those of one fabric reach each other. */
typedef struct process {
    regx_candidate_t list[REGX_PAIRING_MAX];
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

static void decide(const process_t *ours, const process_t *theirs, bool same_node,
                   int talks_to[REGX_PAIRING_MAX])
{
    two_t two = {ours, theirs};
    const regx_pairing_t pairing = {.ours = ours->list,
                                    .theirs = theirs->list,
                                    .our_count = ours->count,
                                    .their_count = theirs->count,
                                    .same_node = same_node,
                                    .reaches = reaches,
                                    .context = &two};

    regx_pair(&pairing, talks_to);
}

static const process_t both = {.list = {UCT, VERBS}, .fabric = {0, 1}, .count = 2};
static const process_t elsewhere = {.list = {UCT, VERBS}, .fabric = {0, 2}, .count = 2};
static const process_t uct_alone = {.list = {UCT}, .count = 1};
static const process_t verbs_alone = {.list = {VERBS}, .fabric = {1}, .count = 1};
static const process_t rails = {.list = {UCT, VERBS, VERBS}, .fabric = {0, 1, 1}, .count = 3};
static const process_t rails_alone = {.list = {VERBS, VERBS}, .fabric = {1, 1}, .count = 2};

static void node_goes_by_uct_and_others_by_verbs(void **state)
{
    int talks_to[REGX_PAIRING_MAX];

    (void)state;
    decide(&both, &both, true, talks_to);
    assert_int_equal(talks_to[0], 0);
    assert_int_equal(talks_to[1], REGX_PAIRING_OTHERS);
    decide(&both, &both, false, talks_to);
    assert_int_equal(talks_to[0], REGX_PAIRING_OTHERS);
    assert_int_equal(talks_to[1], 1);
}

static void what_is_left_carries_where_the_preferred_does_not_lead(void **state)
{
    int talks_to[REGX_PAIRING_MAX];

    (void)state;
    decide(&both, &elsewhere, false, talks_to);
    assert_int_equal(talks_to[0], 0);
    assert_int_equal(talks_to[1], REGX_PAIRING_NONE);
    decide(&both, &uct_alone, false, talks_to);
    assert_int_equal(talks_to[0], 0);
    decide(&both, &verbs_alone, true, talks_to);
    assert_int_equal(talks_to[0], REGX_PAIRING_NONE);
    assert_int_equal(talks_to[1], 0);
}

static void nothing_in_common_is_seen(void **state)
{
    int talks_to[REGX_PAIRING_MAX];

    (void)state;
    decide(&uct_alone, &verbs_alone, false, talks_to);
    assert_int_equal(talks_to[0], REGX_PAIRING_NONE);
}

/* The first rail of one process to the first of the other, whatever else is open. */
static void the_nth_rails_of_both_processes_meet(void **state)
{
    int talks_to[REGX_PAIRING_MAX];

    (void)state;
    decide(&rails, &rails_alone, false, talks_to);
    assert_int_equal(talks_to[1], 0);
    assert_int_equal(talks_to[2], 1);
    decide(&rails_alone, &rails, false, talks_to);
    assert_int_equal(talks_to[0], 1);
    assert_int_equal(talks_to[1], 2);
}

static process_t any_process(uint64_t *state)
{
    static const regx_candidate_t uct = UCT, verbs = VERBS;
    process_t process = {.count = 0};

    if (chance_next(state) % 4 != 0) {
        process.list[process.count++] = uct;
    }
    for (uint64_t ports = chance_next(state) % 6; ports > 0; ports--) {
        process.fabric[process.count] = (unsigned)(1 + chance_next(state) % 3);
        process.list[process.count++] = verbs;
    }
    return process;
}

/* Ours talks to theirs where theirs talks to ours; all of one kind, and as many as can be. */
static void both_ends_decide_alike(void **state)
{
    int ours[REGX_PAIRING_MAX], theirs[REGX_PAIRING_MAX];
    uint64_t chance = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        const process_t one = any_process(&chance), other = any_process(&chance);
        const bool same_node = chance_next(&chance) % 2 == 0;
        int kind = -1;

        decide(&one, &other, same_node, ours);
        decide(&other, &one, same_node, theirs);
        for (unsigned i = 0; i < one.count; i++) {
            if (ours[i] >= 0) {
                assert_int_equal(theirs[ours[i]], i);
                assert_true(kind < 0 || kind == (int)one.list[i].for_node);
                kind = one.list[i].for_node;
            }
            for (unsigned j = 0; j < other.count; j++) { /* two that are free do not match */
                assert_false(ours[i] == REGX_PAIRING_NONE && theirs[j] == REGX_PAIRING_NONE &&
                             one.list[i].for_node == other.list[j].for_node &&
                             one.fabric[i] == other.fabric[j]);
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
        cmocka_unit_test(node_goes_by_uct_and_others_by_verbs),
        cmocka_unit_test(what_is_left_carries_where_the_preferred_does_not_lead),
        cmocka_unit_test(nothing_in_common_is_seen),
        cmocka_unit_test(the_nth_rails_of_both_processes_meet),
        cmocka_unit_test(both_ends_decide_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
