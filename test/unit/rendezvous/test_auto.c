/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The strategy auto: what may be chosen between two processes, what is said of it, and how a user
 * pins it. What is found out is test_autotune's.
 */
#include "pair.h"

#include <limits.h>

#include "rendezvous/auto.h"

enum { KIB = 1024, LENGTH = 64 * KIB + 5, SIZE = 2 };

static const fake_config_t standard = {.slots = 64,
                                       .slot_size = 16 * KIB,
                                       .strategy = "auto",
                                       .chunk_size = 32 * KIB,
                                       .chunk_depth = 4};

static pair_t *open_pair(bool within_node)
{
    pair_t *pair = pair_open(&standard, &standard);

    fake_connect(pair->sender, pair->receiver, within_node);
    fake_connect(pair->receiver, pair->sender, within_node);
    return pair;
}

static void send(pair_t *pair, unsigned count)
{
    for (; count > 0; count--) {
        static uint64_t stream;
        guarded_t sent = guarded_new(LENGTH), received = guarded_new(LENGTH);

        guarded_fill(&sent, ++stream);
        regx_rndv_recv_t *recv = regx_rndv_recv_open(
            pair->receiver->rndv, &pair->receiver->peers[0], received.base, LENGTH);
        regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, LENGTH,
                            fake_cts(recv), pair_done, pair);
        pair_run(pair);
        assert_memory_equal(received.base, sent.base, LENGTH);
        regx_rndv_recv_close(pair->receiver->rndv, recv);
        guarded_free(&sent);
        guarded_free(&received);
    }
}

/* Decisions of the receiver that begin so. */
static uint64_t decisions(const pair_t *pair, const char *begin)
{
    uint64_t count = 0;

    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        const regx_tally_t *tally = &pair->receiver->counters.decisions[i];

        count += strncmp(tally->reason, begin, strlen(begin)) == 0 ? tally->count : 0;
    }
    return count;
}

static void each_message_is_a_decision_and_goes_so(void **state)
{
    pair_t *pair = open_pair(true);
    uint64_t sum = 0;

    (void)state;
    send(pair, 100);
    for (int path = 0; path < REGX_PATH_COUNT; path++) {
        char name[32];

        snprintf(name, sizeof(name), "%s: ", regx_path_name(path));
        assert_int_equal(pair->sender->counters.messages[path], decisions(pair, name));
        sum += decisions(pair, name);
    }
    assert_int_equal(sum, 100);
    assert_true(decisions(pair, "bounce: on trial") > 0);
    assert_true(decisions(pair, "read: on trial") > 0);
    assert_true(decisions(pair, "together: on trial") > 0);
    pair_close(pair);
}

static void where_the_pool_is_not_shared_pipeline_goes_first(void **state)
{
    pair_t *pair = open_pair(false);

    (void)state;
    send(pair, 100);
    assert_int_equal(decisions(pair, "pipeline: not tried yet"), 100);
    send(pair, 1000);
    assert_true(decisions(pair, "bounce: on trial") > 0);
    assert_int_equal(decisions(pair, "read: ") + decisions(pair, "together: "), 0);
    pair_close(pair);
}

static void where_the_kernel_does_not_copy_is_no_trial(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pair_t *pair = open_pair(true);

        pair->receiver->conns[0].conn.single_copy = i != 0;
        pair->receiver->peers[0].no_puts = i == 1;
        pair->receiver->peers[0].no_gets = i == 2;
        send(pair, 20);
        assert_int_equal(decisions(pair, "bounce: the kernel does not copy to this peer"), 20);
        assert_int_equal(pair->sender->counters.messages[REGX_PATH_bounce], 20);
        pair_close(pair);
    }
}

/* Nothing but bounce can be had: that is found out too. */
static void what_is_refused_does_not_win(void **state)
{
    (void)state;
    for (int within_node = 0; within_node < 2; within_node++) {
        const regx_auto_wire_t wire = within_node ? REGX_AUTO_NODE : REGX_AUTO_APART;
        pair_t *pair = open_pair(within_node);
        unsigned candidate = REGX_AUTOTUNE_CANDIDATES;

        pair->refused_region = 1;
        pair->refused_most = UINT_MAX;
        pair->sender_refused = 1;
        send(pair, within_node ? 50 : 600);
        assert_true(regx_autotune_outcome(&pair->receiver->rndv->autotune[wire][SIZE], &candidate));
        assert_int_equal(regx_auto_path(wire, candidate), REGX_PATH_bounce);
        assert_true(decisions(pair, "bounce: fastest when tried") > 20);
        pair_close(pair);
    }
}

static regx_auto_choice_t choice_of(const char *text)
{
    char error[REGX_OPTION_ERROR];
    regx_auto_choice_t choice;

    assert_true(regx_auto_choice_read(text, &choice, error));
    return choice;
}

static void what_the_user_pins_is_taken(void **state)
{
    static const char *const choices[] = {"16K:bounce", "32K:bounce,64K:read", "64K:together",
                                          "16K:pipeline,1M:bounce"};
    static const regx_path_t paths[] = {REGX_PATH_bounce, REGX_PATH_read, REGX_PATH_together,
                                        REGX_PATH_pipeline};

    (void)state;
    for (unsigned i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        pair_t *pair = open_pair(true);
        char reason[64];

        pair->receiver->rndv->config.auto_choice = choice_of(choices[i]);
        send(pair, 20);
        snprintf(reason, sizeof(reason), "%s: pinned", regx_path_name(paths[i]));
        assert_int_equal(decisions(pair, reason), 20);
        assert_int_equal(pair->sender->counters.messages[paths[i]], 20);
        pair_close(pair);
    }
}

static void below_the_first_pinned_size_it_is_found_out(void **state)
{
    pair_t *pair = open_pair(true);

    (void)state;
    pair->receiver->rndv->config.auto_choice = choice_of("128K:read");
    send(pair, 20);
    assert_true(decisions(pair, "bounce: on trial") > 0);
    pair_close(pair);
}

/* As a strategy that is asked for and cannot be had. */
static void what_is_pinned_and_impossible_is_a_fallback(void **state)
{
    pair_t *pair = open_pair(false);

    (void)state;
    pair->receiver->rndv->config.auto_choice = choice_of("16K:together");
    send(pair, 3);
    assert_int_equal(pair->sender->counters.messages[REGX_PATH_bounce], 3);
    assert_int_equal(pair->sender->counters.messages[REGX_PATH_fallback], 3);
    pair_close(pair);
}

static void bad_choices_are_refused_by_one_line(void **state)
{
    static const char *const bad[] = {"together",
                                      "64K",
                                      "64K:",
                                      "64K:auto",
                                      "64K:eager",
                                      "64K:faster",
                                      "64K:read,",
                                      ":read",
                                      "8K:read",
                                      "48K:read",
                                      "0:read",
                                      "-64K:read",
                                      "64K:read,64K:bounce",
                                      "64K:read,32K:bounce",
                                      "64K:read 1M:bounce",
                                      "16384G:read",
                                      "64K:read,,1M:bounce"};

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char error[REGX_OPTION_ERROR] = "";
        regx_auto_choice_t choice;

        if (regx_auto_choice_read(bad[i], &choice, error)) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_non_null(strstr(error, "btl_regx_auto_choice="));
        assert_non_null(strstr(error, "together"));
        assert_null(strchr(error, '\n'));
    }
}

static void nothing_pinned_is_nothing(void **state)
{
    const regx_auto_choice_t none = {{0}}, empty = choice_of(""), null = choice_of(NULL);

    (void)state;
    assert_memory_equal(&none, &empty, sizeof(none));
    assert_memory_equal(&none, &null, sizeof(none));
}

/* What was found, at a size as at those in between that nobody used, can be given again. */
static void what_was_found_can_be_pinned(void **state)
{
    pair_t *pair = open_pair(true);
    regx_autotune_t *autotune = pair->receiver->rndv->autotune[REGX_AUTO_NODE];
    char text[REGX_AUTO_CHOICE];

    (void)state;
    assert_false(regx_auto_choice_write(pair->receiver->rndv, text));
    for (unsigned size = 1; size < 9; size += 2) {
        for (unsigned i = 0; i < REGX_AUTOTUNE_CANDIDATES; i++) {
            const regx_path_t wanted = size < 4 ? REGX_PATH_read : REGX_PATH_bounce;

            if (regx_auto_path(REGX_AUTO_NODE, i) == wanted) {
                autotune[size].tune[0].winner = (uint8_t)i;
            }
        }
        autotune[size].tune[0].trials = 1;
    }
    assert_true(regx_auto_choice_write(pair->receiver->rndv, text));
    assert_string_equal(text, "32K:read,512K:bounce");
    const regx_auto_choice_t choice = choice_of(text);

    assert_int_equal(choice.path[0], 0);
    assert_int_equal(choice.path[1], REGX_PATH_read);
    assert_int_equal(choice.path[4], REGX_PATH_read);
    assert_int_equal(choice.path[5], REGX_PATH_bounce);
    assert_int_equal(choice.path[REGX_AUTOTUNE_SIZES - 1], REGX_PATH_bounce);
    pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_is_a_decision_and_goes_so),
        cmocka_unit_test(where_the_pool_is_not_shared_pipeline_goes_first),
        cmocka_unit_test(where_the_kernel_does_not_copy_is_no_trial),
        cmocka_unit_test(what_is_refused_does_not_win),
        cmocka_unit_test(what_the_user_pins_is_taken),
        cmocka_unit_test(below_the_first_pinned_size_it_is_found_out),
        cmocka_unit_test(what_is_pinned_and_impossible_is_a_fallback),
        cmocka_unit_test(bad_choices_are_refused_by_one_line),
        cmocka_unit_test(nothing_pinned_is_nothing),
        cmocka_unit_test(what_was_found_can_be_pinned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
