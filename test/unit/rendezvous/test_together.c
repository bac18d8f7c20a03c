/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path together where nothing was exposed: as read (test_read*.c), by gets that ask for the
 * sender's help. And whether a message goes so.
 */
#include "together_stage.h"

/* All of it, in chunks, each get assisted. */
static void goes_together(stage_t *stage, size_t length)
{
    const regx_counters_t *sender = &stage->sender->counters;
    const uint64_t bytes = sender->bytes[REGX_PATH_together];
    const uint64_t chunks = (length + PAGE - 1) / PAGE;
    const uint64_t gets = stage->receiver->counters.gets;
    const unsigned assisted = stage->receiver->assisted;

    goes_well(stage, length);
    assert_int_equal(sender->bytes[REGX_PATH_together] - bytes, length);
    assert_int_equal(stage->receiver->counters.gets - gets, chunks);
    assert_int_equal(stage->receiver->assisted - assisted, chunks);
    assert_int_equal(malformed(stage), 0);
}

static void every_length_goes_together(void **state)
{
    stage_t *stage = stage_open();

    (void)state;
    for (size_t length = 1; length <= LENGTH; length += length % PAGE < 2 ? 1 : PAGE - 3) {
        goes_together(stage, length);
    }
    assert_int_equal(stage->chunk_bytes, 0);
    stage_close(stage);
}

/* ---- whether a message goes so ---- */

static void a_peer_without_single_copy_gets_bounce(void **state)
{
    static const char reason[] = "together: the kernel does not copy to this peer";
    stage_t *stage = stage_open();

    (void)state;
    stage->receiver->conns[0].conn.single_copy = false;
    goes_well(stage, LENGTH);
    assert_bytes(stage, 0);
    assert_int_equal(fallbacks_of(stage->receiver, reason), 1);
    assert_int_equal(stage->sender->calls[FAKE_REG] + stage->receiver->calls[FAKE_REG], 0);
    stage->receiver->conns[0].conn.single_copy = true;
    goes_together(stage, LENGTH);
    assert_int_equal(fallbacks_of(stage->receiver, reason), 1);
    stage_close(stage);
}

/* The receiver decides: what the sender itself would do does not matter. */
static void a_sender_of_another_strategy_takes_part(void **state)
{
    static const char *const strategies[] = {"auto", "bounce", "pipeline", "direct", "read"};

    (void)state;
    for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++) {
        fake_config_t sender = standard;

        sender.strategy = strategies[i];
        stage_t *stage = stage_open_both(&sender, &standard);
        goes_together(stage, LENGTH);
        stage_close(stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_goes_together),
        cmocka_unit_test(a_peer_without_single_copy_gets_bounce),
        cmocka_unit_test(a_sender_of_another_strategy_takes_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
