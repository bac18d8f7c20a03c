/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The receive: what each path grants, registers and copies; what is verified.
 */
#include "recv_stage.h"

static void every_length_arrives(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        stage_t *stage = stage_open(*configs[c]);

        for (size_t length = 1; length < 6 * PAGE; length += length < 40 ? 1 : 509) {
            transfer_finish(stage, transfer_open(stage, 0, 0, length));
        }
        for (size_t length = 1024; length <= 5 * PAGE; length += 1024) {
            for (size_t around = length - 1; around <= length + 1; around++) {
                transfer_finish(stage, transfer_open(stage, 0, 0, around));
            }
        }
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

static void bounce_copies_and_registers_nothing(void **state)
{
    stage_t *stage = stage_open(bounce);

    (void)state;
    transfer_finish(stage, transfer_open(stage, 0, 0, 100000));
    assert_int_equal(stage->receiver->counters.copied_out_bytes, 100000);
    assert_int_equal(stage->receiver->counters.registrations, 0);
    assert_int_equal(stage->receiver->counters.grants, 98);
    stage_close(stage);
}

static void pipeline_registers_chunks_no_more_than_depth_at_once(void **state)
{
    (void)state;
    for (unsigned depth = 1; depth <= 64; depth *= 2) {
        fake_config_t config = pipeline;

        config.chunk_depth = depth;
        stage_t *stage = stage_open(config);
        const regx_counters_t *counters = &stage->receiver->counters;
        transfer_t *transfer = transfer_open(stage, 0, 0, 20 * PAGE + 1);

        assert_int_equal(transfer->count, 1); /* in the CTS */
        start(stage, transfer);
        hear_all(stage);
        assert_int_equal(transfer->count, depth < 21 ? depth : 21);
        transfer_finish(stage, transfer);
        assert_int_equal(counters->registrations, 21);
        assert_int_equal(counters->chunks_high, depth < 21 ? depth : 21);
        assert_int_equal(counters->largest_registration, PAGE);
        assert_int_equal(counters->copied_out_bytes, 0);
        assert_int_equal(counters->grants, 21);
        stage_close(stage);
    }
}

/* The registration that serves a chunk may be of more: the grant says where in it the chunk is. */
static void chunks_lie_within_larger_regions(void **state)
{
    static const fake_config_t *const configs[] = {&pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 2; c++) {
        for (size_t outer = 1; outer <= PAGE; outer += outer < 3 ? 1 : 1000) {
            fake_config_t config = *configs[c];

            config.outer = outer;
            stage_t *stage = stage_open(config);
            transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE + 7);

            assert_int_equal(transfer->grants[0].start, outer);
            transfer_finish(stage, transfer);
            assert_int_equal(malformed(stage), 0);
            stage_close(stage);
        }
    }
}

static void direct_registers_the_whole(void **state)
{
    stage_t *stage = stage_open(direct);

    (void)state;
    transfer_finish(stage, transfer_open(stage, 0, 0, 20 * PAGE + 1));
    assert_int_equal(stage->receiver->counters.registrations, 1);
    assert_int_equal(stage->receiver->counters.largest_registration, 20 * PAGE + 1);
    assert_int_equal(stage->receiver->counters.copied_out_bytes, 0);
    stage_close(stage);
}

static uint64_t granted(const transfer_t *transfer)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < transfer->count; i++) {
        sum += transfer->grants[i].length;
    }
    return sum;
}

/* So that its bytes are still in the cache when they are copied out; one of many gets more. */
static void a_single_message_is_granted_a_megabyte_at_once(void **state)
{
    enum { LONE = 1 << 20, LENGTH = 6 * LONE };
    fake_config_t config = bounce;

    (void)state;
    config.slot_size = LONE / 16;
    config.slots = 128;
    for (int many = 0; many < 2; many++) {
        stage_t *stage = stage_open(config);
        transfer_t *before = many ? transfer_open(stage, 0, 0, 1000) : NULL;
        transfer_t *transfer = transfer_open(stage, 1, 0, LENGTH);

        start(stage, transfer);
        hear_all(stage);
        assert_true(many ? granted(transfer) > LONE : granted(transfer) == LONE);
        transfer_finish(stage, transfer);
        if (before != NULL) {
            transfer_finish(stage, before);
        }
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* Whoever stops in mid-transfer, others go on. */
static void peers_that_stop_leave_slots_to_others(void **state)
{
    stage_t *stage = stage_open(bounce);
    transfer_t *transfers[SENDERS];

    (void)state;
    for (unsigned i = 0; i < SENDERS; i++) {
        transfers[i] = transfer_open(stage, i, i, 100000);
        start(stage, transfers[i]);
        hear_all(stage);
        assert_int_equal(transfers[i]->count, 8 >> i); /* half of what is left */
    }
    for (unsigned i = SENDERS; i-- > 0;) {
        transfer_finish(stage, transfers[i]);
    }
    stage_close(stage);
}

static void two_slots_serve_a_hundred_receives(void **state)
{
    enum { RECEIVES = 100 };
    const size_t length = 5000;
    fake_config_t config = bounce;
    unsigned done = 0;
    unsigned idle = 0;

    (void)state;
    config.slots = 2;
    stage_t *stage = stage_open(config);
    for (unsigned i = 0; i < RECEIVES; i++) {
        transfer_open(stage, i, i % SENDERS, length);
    }
    for (unsigned i = 0; i < RECEIVES; i++) {
        start(stage, stage->transfers[(i * 37) % RECEIVES]);
    }
    while (done < RECEIVES && idle < 1000) {
        const unsigned first = (unsigned)(chance_next(&stage->seed) % RECEIVES);

        hear_all(stage);
        idle++;
        for (unsigned i = 0; i < RECEIVES; i++) {
            transfer_t *transfer = stage->transfers[(first + i) % RECEIVES];

            if (transfer != NULL && transfer->count > 0) {
                serve(stage, transfer, 0);
                idle = 0;
                if (transfer->written == length) {
                    assert_arrived(transfer);
                    transfer_close(stage, transfer);
                    done++;
                }
                break;
            }
        }
    }
    assert_int_equal(done, RECEIVES);
    assert_int_equal(stage->receiver->counters.slots_high, 2);
    assert_true(stage->receiver->counters.grant_stalls > 0);
    assert_int_equal(malformed(stage), 0);
    stage_close(stage);
}

/* Peers that are told and do not answer leave half of the pool to those who do. */
static void unanswered_receives_hold_at_most_half_of_the_pool(void **state)
{
    (void)state;
    for (unsigned slots = 2; slots < 40; slots++) {
        fake_config_t config = bounce;
        unsigned told = 0;

        config.slots = slots;
        stage_t *stage = stage_open(config);
        for (unsigned i = 0; i < 60; i++) {
            told += transfer_open(stage, i, i % 2, 9 * 1024)->count;
        }
        assert_in_range(told, 1, (slots + 1) / 2);
        assert_int_equal(stage->receiver->pool.unused, slots - told);
        for (unsigned i = 60; i < 70; i++) { /* the third process answers */
            transfer_finish(stage, transfer_open(stage, i, 2, 9 * 1024));
        }
        for (unsigned i = 0; i < 60; i++) {
            transfer_finish(stage, stage->transfers[i]);
        }
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* A receive that waits is one stall, however often progress looks whether it can go on. */
static void a_stall_is_counted_once(void **state)
{
    fake_config_t config = bounce;

    (void)state;
    config.slots = 2;
    stage_t *stage = stage_open(config);
    transfer_t *holding[2];

    for (unsigned i = 0; i < 2; i++) {
        holding[i] = transfer_open(stage, i, i, 1024);
        start(stage, holding[i]);
    }
    transfer_t *waiting = transfer_open(stage, 2, 2, 1024);
    start(stage, waiting);
    for (unsigned i = 0; i < 100; i++) {
        start(stage, holding[i % 2]); /* news that makes no room */
        hear_all(stage);
    }
    assert_int_equal(holding[0]->count + holding[1]->count, 2);
    assert_int_equal(waiting->count, 0);
    assert_int_equal(stage->receiver->counters.grant_stalls, 1);
    transfer_finish(stage, holding[0]);
    transfer_finish(stage, holding[1]);
    transfer_finish(stage, waiting);
    assert_int_equal(stage->receiver->counters.grant_stalls, 1);
    stage_close(stage);
}

/* Slots may be with fragments too. Who waits for one goes on when it is back, without a notice. */
static void a_freed_slot_goes_to_a_waiting_receive(void **state)
{
    (void)state;
    for (unsigned waiting = 1; waiting <= 20; waiting++) {
        fake_config_t config = bounce;

        config.slots = 4;
        stage_t *stage = stage_open(config);
        uint32_t slots[4];

        for (unsigned i = 0; i < 4; i++) {
            slots[i] = regx_pool_get(&stage->receiver->pool);
        }
        for (unsigned i = 0; i < waiting; i++) {
            start(stage, transfer_open(stage, i, i % SENDERS, 5000));
        }
        hear_all(stage);
        /* One slot is enough for all of them. */
        regx_pool_put(&stage->receiver->pool, slots[0]);
        for (unsigned i = waiting; i-- > 0;) {
            while (!finish(stage, stage->transfers[i])) {
                for (unsigned other = 0; other < waiting; other++) {
                    transfer_t *transfer = stage->transfers[other];

                    if (transfer != NULL && transfer->count > 0) {
                        serve(stage, transfer, 0);
                        other = waiting;
                    } else if (other == waiting - 1) {
                        fail_msg("%u wait, and nobody has the slot", waiting);
                    }
                }
            }
        }
        for (unsigned i = 0; i < waiting; i++) {
            transfer_finish(stage, stage->transfers[i]);
        }
        for (unsigned i = 1; i < 4; i++) {
            regx_pool_put(&stage->receiver->pool, slots[i]);
        }
        stage_close(stage);
    }
}

/* A transfer by chunks needs no slot, so that it does not wait for who needs one. */
static void chunks_do_not_wait_for_slots(void **state)
{
    fake_config_t config = bounce;
    uint32_t slots[4];

    (void)state;
    config.slots = 4;
    config.strategy = "auto";
    config.chunk_depth = 1;
    stage_t *stage = stage_open(config);
    stage->receiver->conns[1].conn.shares_pool = true; /* process 1 bounces, process 2 does not */
    for (unsigned i = 0; i < 4; i++) {
        slots[i] = regx_pool_get(&stage->receiver->pool);
    }
    transfer_t *without = transfer_open(stage, 0, 0, 5 * PAGE);
    transfer_t *chunks = transfer_open(stage, 1, 1, 20 * PAGE);
    start(stage, without);
    hear_all(stage);
    assert_int_equal(without->count, 0);
    transfer_finish(stage, chunks);
    for (unsigned i = 0; i < 4; i++) {
        regx_pool_put(&stage->receiver->pool, slots[i]);
    }
    transfer_finish(stage, without);
    stage_close(stage);
}

/* ---- verify ---- */

/* Where checksums are asked for, a notice without one is no notice. Where they are not, one that
 * comes is compared all the same. */
static void an_atp_without_the_checksum_asked_for_is_refused(void **state)
{
    static const fake_config_t *const configs[] = {&bounce, &pipeline, &direct};

    (void)state;
    for (size_t c = 0; c < 3; c++) {
        for (int verify = 0; verify < 2; verify++) {
            fake_config_t config = *configs[c];

            config.verify = verify;
            stage_t *stage = stage_open(config);
            const regx_counters_t *counters = &stage->receiver->counters;
            transfer_t *transfer = transfer_open(stage, 0, 0, 6 * PAGE);
            regx_control_t notice = notice_of(transfer, &transfer->grants[0],
                                              transfer->grants[0].chunk ? REGX_CONTROL_ATP_CHUNK
                                                                        : REGX_CONTROL_ATP_SLOT);

            write_grant(transfer, &transfer->grants[0]);
            if (verify) {
                notice.has_checksum = false;
                tell(stage, transfer, &notice);
                assert_int_equal(malformed(stage), 1);
                assert_int_equal(counters->verified, 0);
            } else {
                notice.has_checksum = true;
                notice.checksum = 12345;
                drop_grant(transfer, 0, true);
                tell(stage, transfer, &notice);
                transfer->started = true;
                assert_int_equal(malformed(stage), 0);
                assert_int_equal(counters->verified, 1);
                assert_int_equal(counters->mismatches, 1);
                assert_int_equal(stage->receiver->mismatches, 1);
                assert_int_equal(stage->receiver->mismatch_peer, 1);
            }
            transfer_finish(stage, transfer);
            assert_int_equal(counters->verified > 1, verify && c < 2);
            assert_int_equal(counters->mismatches, !verify);
            stage_close(stage);
        }
    }
}

/* Messages name a slot by 32 bits of its place in the pool. */
static void a_pool_of_four_gigabytes_is_refused(void **state)
{
    static const size_t slot_size = 1 << 20;
    const regx_rndv_config_t config = {
        .strategy = regx_strategy_find("bounce"), .chunk_size = PAGE, .chunk_depth = 1};
    regx_counters_t counters = {0};
    regx_registry_t registry = {0};

    (void)state;
    for (size_t slots = 4094; slots <= 4097; slots++) {
        regx_pool_t pool;

        /* The memory is not there, and is not touched. */
        assert_int_equal(
            regx_pool_init(&pool, NULL, slots * slot_size, slot_size, false, &counters), REGX_OK);
        regx_rndv_t *rndv = regx_rndv_create(&config, &pool, &registry, &counters);
        assert_int_equal(rndv != NULL, slots < 4096);
        if (rndv != NULL) {
            regx_rndv_destroy(rndv);
        }
        regx_pool_fini(&pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_arrives),
        cmocka_unit_test(bounce_copies_and_registers_nothing),
        cmocka_unit_test(pipeline_registers_chunks_no_more_than_depth_at_once),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(direct_registers_the_whole),
        cmocka_unit_test(a_single_message_is_granted_a_megabyte_at_once),
        cmocka_unit_test(peers_that_stop_leave_slots_to_others),
        cmocka_unit_test(two_slots_serve_a_hundred_receives),
        cmocka_unit_test(unanswered_receives_hold_at_most_half_of_the_pool),
        cmocka_unit_test(a_stall_is_counted_once),
        cmocka_unit_test(a_freed_slot_goes_to_a_waiting_receive),
        cmocka_unit_test(chunks_do_not_wait_for_slots),
        cmocka_unit_test(an_atp_without_the_checksum_asked_for_is_refused),
        cmocka_unit_test(a_pool_of_four_gigabytes_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
