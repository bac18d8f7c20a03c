/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Slots that are written straight from the sender's buffer, where that is registered already: when,
 * and what becomes of the registration.
 */
#include "pair.h"

enum { SLOT = 4096, SLOTS = 20, CHUNK = 4 * SLOT, LENGTH = 8 * CHUNK };

typedef struct stage {
    pair_t pair; /* first: it is the context */
    guarded_t sent, received;
    regx_rndv_recv_t *recv;
    unsigned straight, staged; /* puts into the pool, in the end */
    unsigned fail_at;          /* the number of the put that fails; 0: none */
    bool chunks_fail;
    unsigned again; /* puts that find no room first */
} stage_t;

/* Every put comes here before it is made. */
static regx_status_t stage_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    stage_t *stage = fake->context;

    if (call != FAKE_PUT) {
        return pair_rule(fake, call, put);
    }
    if (stage->again > 0) {
        stage->again--;
        return REGX_AGAIN;
    }
    if (put->target == REGX_TARGET_REGION) {
        return stage->chunks_fail ? REGX_FAILED : stage->pair.puts;
    }
    *(put->region != NULL ? &stage->straight : &stage->staged) += 1;
    return stage->straight + stage->staged == stage->fail_at ? REGX_FAILED : stage->pair.puts;
}

static stage_t *stage_open(const fake_config_t *config, regx_status_t puts)
{
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    pair_t *pair = pair_open(config, config);
    stage->pair = *pair;
    free(pair);
    pair = &stage->pair;
    pair->sender->rule = stage_rule;
    pair->sender->context = pair->receiver->context = stage;
    pair->puts = puts;
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 7);
    return stage;
}

static const fake_config_t bouncing = {.slots = SLOTS,
                                       .slot_size = SLOT,
                                       .strategy = "bounce",
                                       .chunk_size = CHUNK,
                                       .chunk_depth = 2,
                                       .cache_bytes = REGX_UNLIMITED};

/* As an earlier transfer leaves it. */
static void keep(stage_t *stage, size_t offset, size_t length, unsigned access)
{
    regx_registry_t *registry = &stage->pair.sender->registry;
    regx_region_t region;

    assert_int_equal(
        regx_region_acquire(registry, stage->sent.base + offset, length, access, &region), REGX_OK);
    regx_region_release(registry, &region);
}

static void begin(stage_t *stage)
{
    pair_t *pair = &stage->pair;

    stage->recv = regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                      stage->received.base, LENGTH);
    regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], stage->sent.base, LENGTH,
                        fake_cts(stage->recv), pair_done, pair);
}

static void finish(stage_t *stage)
{
    for (unsigned again = stage->again; again > 0; again--) { /* nothing else happens meanwhile */
        regx_rndv_progress(stage->pair.sender->rndv);
    }
    pair_run(&stage->pair);
    assert_int_equal(stage->pair.dones, 1);
    assert_int_equal(stage->pair.status, REGX_OK);
    assert_memory_equal(stage->received.base, stage->sent.base, LENGTH);
    assert_int_equal(stage->pair.receiver->mismatches, 0);
    regx_rndv_recv_close(stage->pair.receiver->rndv, stage->recv);
}

/* What is kept can be given up: nobody uses it any more. */
static void stage_close(stage_t *stage)
{
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    fake_settle(stage->pair.sender);
    fake_settle(stage->pair.receiver);
    fake_assert_idle(stage->pair.sender);
    fake_assert_idle(stage->pair.receiver);
    fake_close(stage->pair.sender);
    fake_close(stage->pair.receiver);
    free(stage);
}

static void a_kept_buffer_is_written_from(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 8; which++) {
        fake_config_t config = bouncing;

        config.verify = which % 2 != 0;
        config.strategy = which & 2 ? "auto" : "bounce"; /* whose receiver can register nothing */
        stage_t *stage = stage_open(&config, which & 4 ? REGX_OK : REGX_PENDING);
        const regx_counters_t *counters = &stage->pair.sender->counters;

        stage->pair.refused_region = which & 2 ? 1 : 0;
        stage->pair.refused_most = which & 2 ? UINT32_MAX : 0;
        stage->again = 3;
        keep(stage, 0, LENGTH, REGX_ACCESS_LOCAL);
        begin(stage);
        finish(stage);
        fake_settle(stage->pair.sender);
        assert_int_equal(stage->staged, 0);
        assert_int_equal(stage->straight, counters->puts);
        assert_int_equal(counters->hits, counters->puts);
        assert_int_equal(counters->registrations, 1);
        assert_int_equal(counters->bytes[REGX_PATH_bounce], LENGTH);
        assert_int_equal(counters->messages[REGX_PATH_bounce], 1);
        stage_close(stage);
    }
}

/* Nothing is registered for it, and nothing looked up where that is for nothing. */
static void a_buffer_that_is_not_kept_is_not_registered(void **state)
{
    enum { NEVER, FOR_ANOTHER_USE, CHANGED, NO_CACHE, NOT_PINNED, CASES };

    (void)state;
    for (unsigned which = 0; which < CASES; which++) {
        fake_config_t config = bouncing;

        config.cache_bytes = which == NO_CACHE ? 0 : config.cache_bytes;
        stage_t *stage = stage_open(&config, REGX_PENDING);
        fake_t *sender = stage->pair.sender;

        sender->transport.registers = which != NOT_PINNED;
        if (which != NEVER) {
            keep(stage, 0, LENGTH,
                 which == FOR_ANOTHER_USE ? REGX_ACCESS_REMOTE_WRITE : REGX_ACCESS_LOCAL);
        }
        if (which == CHANGED) {
            fake_changed(stage->sent.base, LENGTH);
        }
        const uint64_t registrations = sender->counters.registrations;
        begin(stage);
        finish(stage);
        fake_settle(sender);
        assert_int_equal(stage->straight, 0);
        assert_int_equal(stage->staged, sender->counters.puts);
        assert_int_equal(sender->counters.registrations, registrations);
        assert_int_equal(sender->counters.hits, 0);
        assert_int_equal(sender->counters.bytes[REGX_PATH_bounce], LENGTH);
        stage_close(stage);
    }
}

/* A slot goes one way or the other. */
static void only_the_kept_part_is_written_from(void **state)
{
    stage_t *stage = stage_open(&bouncing, REGX_PENDING);

    (void)state;
    keep(stage, CHUNK + 1, CHUNK, REGX_ACCESS_LOCAL); /* of whole pages, so of those around it */
    begin(stage);
    finish(stage);
    assert_in_range(stage->straight, 1, CHUNK / SLOT + 1);
    assert_int_equal(stage->straight + stage->staged, stage->pair.sender->counters.puts);
    assert_int_equal(stage->pair.sender->counters.registrations, 1);
    stage_close(stage);
}

/* The buffer changes while slots are written from it: those stay registered until they have been,
 * and no other is. */
static void a_registration_that_dies_is_held_and_not_used_again(void **state)
{
    stage_t *stage = stage_open(&bouncing, REGX_PENDING);
    fake_t *sender = stage->pair.sender;

    (void)state;
    keep(stage, 0, LENGTH, REGX_ACCESS_LOCAL);
    begin(stage);
    const unsigned before = stage->straight;
    assert_true(before > 0);
    assert_true(fake_complete(sender, 1, before - 1, REGX_OK)); /* the last of them */
    fake_changed(stage->sent.base, LENGTH);                     /* not really: nothing moves */
    fake_settle(sender);
    assert_int_equal(sender->counters.invalidations, 1);
    assert_int_equal(sender->open_windows, 1);
    finish(stage); /* the fake aborts if one is written from what is not registered */
    assert_int_equal(stage->straight, before);
    assert_true(stage->staged > 0);
    fake_settle(sender);
    assert_int_equal(sender->open_windows, 0);
    assert_int_equal(sender->counters.registrations, 1);
    stage_close(stage);
}

/* A chunk that failed is a warning: what is read by slots then is read with care. */
static void a_suspect_buffer_is_copied(void **state)
{
    fake_config_t config = bouncing;

    (void)state;
    config.strategy = "pipeline";
    stage_t *stage = stage_open(&config, REGX_PENDING);

    stage->chunks_fail = true;
    keep(stage, 0, LENGTH, REGX_ACCESS_LOCAL);
    begin(stage);
    finish(stage);
    assert_int_equal(stage->straight, 0);
    assert_int_equal(stage->pair.sender->counters.bytes[REGX_PATH_bounce], LENGTH);
    stage_close(stage);
}

/* Each ends in failure: at once, later, while one is held, and by the peer's going. */
static void every_end_releases_the_registration(void **state)
{
    enum { AT_ONCE, LATER, HELD, GONE, CASES };

    (void)state;
    for (unsigned which = 0; which < CASES; which++) {
        for (unsigned nth = 1; nth <= 4; nth++) {
            stage_t *stage = stage_open(&bouncing, which == AT_ONCE ? REGX_OK : REGX_PENDING);
            fake_t *sender = stage->pair.sender;

            keep(stage, 0, LENGTH, REGX_ACCESS_LOCAL);
            stage->fail_at = which == AT_ONCE ? nth : 0;
            stage->again = which == HELD ? UINT32_MAX : 0;
            begin(stage);
            if (which == LATER) {
                assert_true(fake_complete(sender, 1, nth - 1, REGX_FAILED));
            } else if (which >= HELD) {
                assert_int_equal(stage->pair.dones, 0);
                regx_rndv_forget(sender->rndv, &sender->peers[1]);
            }
            while (fake_complete(sender, 1, 0, which == GONE ? REGX_FAILED : REGX_OK)) {
            }
            assert_int_equal(stage->pair.dones, 1);
            assert_int_equal(stage->pair.status, which >= HELD ? REGX_UNREACHABLE : REGX_FAILED);
            assert_int_equal(stage->staged, 0);
            regx_rndv_recv_close(stage->pair.receiver->rndv, stage->recv);
            while (fake_receive(stage->pair.receiver, sender) ||
                   fake_receive(sender, stage->pair.receiver)) {
            }
            stage_close(stage);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kept_buffer_is_written_from),
        cmocka_unit_test(a_buffer_that_is_not_kept_is_not_registered),
        cmocka_unit_test(only_the_kept_part_is_written_from),
        cmocka_unit_test(a_registration_that_dies_is_held_and_not_used_again),
        cmocka_unit_test(a_suspect_buffer_is_copied),
        cmocka_unit_test(every_end_releases_the_registration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
