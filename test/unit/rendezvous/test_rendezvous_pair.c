/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The whole rendezvous between two processes: cases that chance would take long to find, a cache, a
 * buffer that goes, checksums.
 */
#include "pair.h"

#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/refusal.h"

/* The sender has no room while the receiver grants all that it may: as many chunks as can be in
 * flight, and, for one that could not be registered, as many slots. */
static void grants_that_all_find_no_room_are_sent_later(void **state)
{
    enum { CHUNK = 4096 };

    (void)state;
    for (unsigned depth = 1; depth <= REGX_CHUNK_DEPTH_MAX;
         depth = depth < 8 ? depth + 1 : 2 * depth) {
        for (unsigned refused = 2; refused <= depth; refused += 1 + refused / 4) {
            const fake_config_t config = {.slots = 300,
                                          .slot_size = 64,
                                          .strategy = "pipeline",
                                          .chunk_size = CHUNK,
                                          .chunk_depth = depth};
            pair_t *pair = pair_open(&config, &config);
            guarded_t sent = guarded_new((REGX_CHUNK_DEPTH_MAX + 3) * CHUNK + 5);
            guarded_t received = guarded_new(sent.length);

            guarded_fill(&sent, refused);
            pair->refused_region = refused;
            pair->puts = REGX_AGAIN;
            regx_rndv_recv_t *recv = regx_rndv_recv_open(
                pair->receiver->rndv, &pair->receiver->peers[0], received.base, received.length);
            regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, sent.length,
                                fake_cts(recv), pair_done, pair);
            pair_run(pair);
            assert_int_equal(pair->dones, 0);
            pair->puts = REGX_PENDING;
            pair_run(pair);
            if (pair->dones != 1) {
                fail_msg("depth %u, registration %u refused: stuck; %llu messages refused", depth,
                         refused, (unsigned long long)pair->sender->counters.malformed);
            }
            assert_int_equal(pair->status, REGX_OK);
            regx_rndv_recv_close(pair->receiver->rndv, recv);
            assert_memory_equal(received.base, sent.base, sent.length);
            guarded_free(&sent);
            guarded_free(&received);
            pair_close(pair);
        }
    }
}

/* ---- a cache ---- */

typedef struct kept { /* a pair whose receiver keeps registrations, and one of its buffers */
    pair_t *pair;
    guarded_t sent, received;
} kept_t;

static kept_t kept_open(const char *strategy, size_t length)
{
    const fake_config_t config = {.slots = 20,
                                  .slot_size = 4096,
                                  .strategy = strategy,
                                  .chunk_size = 8192,
                                  .chunk_depth = 2,
                                  .cache_bytes = REGX_UNLIMITED};
    kept_t kept = {.pair = pair_open(&config, &config),
                   .sent = guarded_new(length),
                   .received = guarded_new(length)};

    guarded_fill(&kept.sent, 9);
    kept.pair->puts = REGX_PENDING;
    return kept;
}

static regx_rndv_recv_t *kept_begin(const kept_t *kept, size_t offset, size_t length)
{
    regx_rndv_recv_t *recv =
        regx_rndv_recv_open(kept->pair->receiver->rndv, &kept->pair->receiver->peers[0],
                            kept->received.base + offset, length);

    memset(kept->received.base + offset, 0, length);
    regx_rndv_send_open(kept->pair->sender->rndv, &kept->pair->sender->peers[1],
                        kept->sent.base + offset, length, fake_cts(recv), pair_done, kept->pair);
    return recv;
}

static void kept_end(const kept_t *kept, regx_rndv_recv_t *recv, size_t offset, size_t length)
{
    kept->pair->dones = 0;
    pair_run(kept->pair);
    assert_int_equal(kept->pair->dones, 1);
    assert_int_equal(kept->pair->status, REGX_OK);
    regx_rndv_recv_close(kept->pair->receiver->rndv, recv);
    assert_memory_equal(kept->received.base + offset, kept->sent.base + offset, length);
}

static void kept_close(kept_t *kept)
{
    guarded_free(&kept->sent);
    guarded_free(&kept->received);
    fake_settle(kept->pair->sender);
    fake_settle(kept->pair->receiver);
    pair_close(kept->pair);
}

/* Once the whole was registered, its parts are written by the same key, at either end from the same
 * registration. */
static void an_outer_region_serves_its_parts(void **state)
{
    static const char *const names[] = {"pipeline", "direct"};

    (void)state;
    for (unsigned n = 0; n < 2; n++) {
        kept_t kept = kept_open("direct", 70001);
        const regx_counters_t *counters = &kept.pair->receiver->counters;
        uint64_t seed = n;

        kept_end(&kept, kept_begin(&kept, 0, 70001), 0, 70001);
        kept.pair->receiver->rndv->config.strategy = regx_strategy_find(names[n]);
        for (unsigned i = 0; i < 200; i++) {
            const size_t offset = chance_next(&seed) % 70001;
            const size_t length = 1 + chance_next(&seed) % (70001 - offset);

            kept_end(&kept, kept_begin(&kept, offset, length), offset, length);
        }
        fake_settle(kept.pair->sender);
        fake_settle(kept.pair->receiver);
        assert_int_equal(counters->registrations, 1);
        assert_int_equal(counters->misses, 1);
        assert_in_range(counters->hits, 200, 2000);
        assert_int_equal(kept.pair->sender->counters.registrations, 1);
        assert_int_equal(counters->messages[REGX_PATH_fallback], 0);
        kept_close(&kept);
    }
}

/* What is granted when the buffer changes is written and drained as granted; a later grant is of a
 * new registration. */
static void a_dead_region_is_granted_no_more(void **state)
{
    kept_t kept = kept_open("pipeline", 10 * 8192);
    const size_t length = kept.received.length;
    fake_t *receiver = kept.pair->receiver;
    const regx_counters_t *counters = &receiver->counters;

    (void)state;
    kept_end(&kept, kept_begin(&kept, 0, length), 0, length); /* ten regions */
    regx_rndv_recv_t *recv = kept_begin(&kept, 0, length);
    fake_settle(receiver);
    assert_int_equal(counters->registrations, 10);
    assert_int_equal(counters->hits, 1);
    fake_changed(kept.received.base, length); /* not really: nothing moves */
    fake_settle(receiver);
    assert_int_equal(counters->invalidations, 10);
    assert_int_equal(receiver->open_windows, 1); /* what is granted stays */
    kept_end(&kept, recv, 0, length);
    fake_settle(receiver);
    assert_int_equal(counters->inuse_changes, 1);
    assert_int_equal(counters->registrations, 19);
    assert_int_equal(counters->deregistrations, 10);
    assert_int_equal(counters->hits, 1);
    kept_close(&kept);
}

/* ---- a buffer that goes while it is in use ---- */

static regx_status_t no_region_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    (void)fake;
    return call == FAKE_PUT && put->target == REGX_TARGET_REGION ? REGX_FAILED : REGX_OK;
}

static regx_status_t no_registration_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    (void)fake, (void)put;
    return call == FAKE_REG ? REGX_DENIED : REGX_OK;
}

/* Unmaps a few pages in the middle of memory of that length. */
static size_t punch(const guarded_t *memory, size_t *length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t middle = memory->length / 2;
    uint8_t *at = (uint8_t *)(((uintptr_t)memory->base + middle) & ~(uintptr_t)(page - 1));

    *length = 3 * page;
    assert_int_equal(munmap(at, *length), 0);
    return (size_t)(at - memory->base);
}

/* A chunk could not be written or registered because part of the buffer has been unmapped, at
 * either end. What goes by slots instead ends well, and what is still mapped arrives. */
static void a_buffer_with_a_hole_does_not_crash(void **state)
{
    static const char *const names[] = {"pipeline", "direct"};

    (void)state;
    for (unsigned which = 0; which < 32; which++) {
        /* Denied at the receiver, the sender is asked for slots alone, and warned by nothing. */
        const bool at_receiver = which & 2, at_sender = which & 1 && !(which >= 16 && at_receiver);
        const fake_config_t config = {.slots = 20,
                                      .slot_size = 4000,
                                      .strategy = names[which / 4 % 2],
                                      .chunk_size = 8192,
                                      .chunk_depth = 2,
                                      .verify = which / 8 % 2 != 0};
        pair_t *pair = pair_open(&config, &config);
        guarded_t sent = guarded_new(70001), received = guarded_new(70001);
        size_t hole = 0, length = 0;

        if (which < 16) {
            pair->sender->rule = no_region_rule;
        } else {
            pair->sender->rule = at_sender ? no_registration_rule : NULL;
            pair->receiver->rule = at_receiver ? no_registration_rule : NULL;
        }
        guarded_fill(&sent, 3);
        regx_rndv_recv_t *recv = regx_rndv_recv_open(
            pair->receiver->rndv, &pair->receiver->peers[0], received.base, received.length);
        regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, sent.length,
                            fake_cts(recv), pair_done, pair);
        /* The chunk of the CTS has been refused by now, and nothing has arrived. */
        hole = at_sender ? punch(&sent, &length) : hole;
        hole = at_receiver ? punch(&received, &length) : hole;
        pair_run(pair);
        assert_int_equal(pair->dones, 1);
        assert_int_equal(pair->status, REGX_OK);
        assert_int_equal(pair->receiver->mismatches, 0);
        for (size_t i = 0; i < received.length; i++) {
            if (i < hole || i >= hole + length) {
                assert_int_equal(received.base[i], unit_stamp(3, i));
            } else if (!at_receiver) {
                assert_int_equal(received.base[i], 0); /* nothing foreign was read */
            }
        }
        assert_int_equal(pair->sender->counters.fallbacks[0].state != 0, at_sender);
        assert_int_equal(pair->receiver->counters.fallbacks[0].state != 0, at_receiver);
        regx_rndv_recv_close(pair->receiver->rndv, recv);
        guarded_free(&sent);
        guarded_free(&received);
        pair_close(pair);
    }
}

/* ---- verify ---- */

enum { SPOILED_LENGTH = 50000 };

typedef struct corrupter { /* flips a bit of byte `at` of the message that is at `base` */
    const uint8_t *base;
    size_t at;
    unsigned times;
} corrupter_t;

static corrupter_t corrupter;

static void flip(fake_t *fake, const void *from, size_t length, char *written)
{
    const size_t offset = (size_t)((const uint8_t *)from - corrupter.base);

    (void)fake;
    if (corrupter.at >= offset && corrupter.at - offset < length) {
        written[corrupter.at - offset] ^= 4;
        corrupter.times++;
    }
}

/* One message whose byte `at` the wire flips (SIZE_MAX: none), sent and received with verify or
 * without. */
static void corrupt_one(const char *strategy, bool at_sender, bool at_receiver, size_t at)
{
    fake_config_t config = {
        .slots = 20, .slot_size = 4096, .strategy = strategy, .chunk_size = 8192, .chunk_depth = 2};
    const bool verify = at_sender || at_receiver;
    const bool corrupted = at < SPOILED_LENGTH;
    const uint64_t pieces = strcmp(strategy, "direct") == 0 ? 1 : 5;
    unsigned long long from = 0, to = 0, length = 0;
    char path[16] = "";
    void *base = NULL;

    config.verify = at_receiver;
    fake_config_t sending = config;
    sending.verify = at_sender;
    pair_t *pair = pair_open(&sending, &config);
    guarded_t sent = guarded_new(SPOILED_LENGTH), received = guarded_new(SPOILED_LENGTH);
    const regx_counters_t *counters = &pair->receiver->counters;

    guarded_fill(&sent, 3);
    pair->puts = REGX_OK;
    corrupter = (corrupter_t){.base = sent.base, .at = at};
    pair->sender->corrupt = pair->receiver->corrupt = flip;
    regx_rndv_recv_t *recv = regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 received.base, SPOILED_LENGTH);
    regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, SPOILED_LENGTH,
                        fake_cts(recv), pair_done, pair);
    pair_run(pair);
    assert_int_equal(corrupter.times, corrupted);
    assert_int_equal(memcmp(sent.base, received.base, SPOILED_LENGTH) != 0, corrupted);
    assert_int_equal(counters->mismatches, verify && corrupted);
    assert_int_equal(pair->receiver->mismatches, verify && corrupted);
    assert_int_equal(pair->sender->mismatches, 0);
    if (verify) {
        assert_in_range(counters->verified, pieces, 100);
    } else {
        assert_int_equal(counters->verified, 0);
    }
    if (verify && corrupted) {
        assert_int_equal(pair->receiver->mismatch_peer, 0);
        assert_int_equal(sscanf(pair->receiver->mismatch,
                                "bytes %llu to %llu of %llu at %p by %15s arrived", &from, &to,
                                &length, &base, path),
                         5);
        assert_in_range(at, from, to);
        assert_in_range(to - from, 0, SPOILED_LENGTH - (pieces > 1));
        assert_int_equal(length, SPOILED_LENGTH);
        assert_ptr_equal(base, received.base);
        assert_string_equal(path, strategy);
    }
    regx_rndv_recv_close(pair->receiver->rndv, recv);
    guarded_free(&sent);
    guarded_free(&received);
    pair_close(pair);
}

static void a_flipped_bit_is_found_where_either_end_verifies(void **state)
{
    static const char *const names[] = {"bounce", "pipeline", "direct", "read"};
    static const size_t places[] = {
        0, 1, 4095, 4096, 8191, 8192, 20001, 40959, 40960, SPOILED_LENGTH - 1, SIZE_MAX};

    (void)state;
    for (size_t n = 0; n < 4; n++) {
        for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
            for (unsigned ends = 0; ends < 4; ends++) {
                corrupt_one(names[n], ends & 1, ends & 2, places[p]);
            }
        }
    }
}

static void flip_all(fake_t *fake, const void *from, size_t length, char *written)
{
    (void)fake, (void)from;
    written[length - 1] ^= 1;
}

/* Each range that is wrong is counted; the transfer is told of once. */
static void a_corrupt_transfer_is_reported_once(void **state)
{
    static const char *const names[] = {"pipeline", "read"};

    (void)state;
    for (size_t n = 0; n < 2; n++) {
        const fake_config_t config = {.slots = 20,
                                      .slot_size = 4096,
                                      .strategy = names[n],
                                      .chunk_size = 8192,
                                      .chunk_depth = 2,
                                      .verify = true};
        pair_t *pair = pair_open(&config, &config);
        guarded_t sent = guarded_new(SPOILED_LENGTH), received = guarded_new(SPOILED_LENGTH);

        pair->sender->corrupt = pair->receiver->corrupt = flip_all;
        for (unsigned told = 1; told <= 3; told++) {
            regx_rndv_recv_t *recv = regx_rndv_recv_open(
                pair->receiver->rndv, &pair->receiver->peers[0], received.base, SPOILED_LENGTH);

            regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base,
                                SPOILED_LENGTH, fake_cts(recv), pair_done, pair);
            pair_run(pair);
            assert_int_equal(pair->dones, told);
            assert_int_equal(pair->receiver->mismatches, told);
            assert_int_equal(pair->receiver->counters.mismatches, 7 * told);
            assert_int_equal(pair->receiver->counters.verified, 7 * told);
            regx_rndv_recv_close(pair->receiver->rndv, recv);
        }
        guarded_free(&sent);
        guarded_free(&received);
        pair_close(pair);
    }
}

/* Looking takes longer than the message may: what happens again and again is not looked into. */
static void the_first_refusals_are_looked_into(void **state)
{
    enum { MORE = 6, LENGTH = 4096 };
    const fake_config_t config = {.slots = 4,
                                  .slot_size = 4096,
                                  .strategy = "direct",
                                  .chunk_size = LENGTH,
                                  .chunk_depth = 1};
    pair_t *pair = pair_open(&config, &config);
    regx_tally_t *fallbacks = pair->receiver->counters.fallbacks;
    guarded_t received = guarded_new(LENGTH);

    (void)state;
    pair->refused_region = 1;
    pair->refused_most = UINT32_MAX;
    for (unsigned i = 0; i < REGX_REFUSALS_LOOKED_INTO + MORE; i++) {
        regx_rndv_recv_close(pair->receiver->rndv,
                             regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 received.base, LENGTH));
    }
    assert_int_equal(regx_tally_find(fallbacks, "receiver: no memory to register")->count, MORE);
    assert_int_equal(
        regx_tally_find(fallbacks, "receiver: no room in kernel or device")->count +
            regx_tally_find(fallbacks, "receiver: over the limit of locked memory")->count,
        REGX_REFUSALS_LOOKED_INTO);
    guarded_free(&received);
    pair_close(pair);
}

/* What is refused for want of the transfers' own room is told as that, whatever room there is by
 * the time of telling; and nothing else is. */
static void only_the_share_is_blamed_for_the_share(void **state)
{
    enum { LENGTH = 4096 };
    const fake_config_t config = {.slots = 4,
                                  .slot_size = 4096,
                                  .strategy = "direct",
                                  .chunk_size = LENGTH,
                                  .chunk_depth = 1};
    pair_t *pair = pair_open(&config, &config);
    regx_tally_t *fallbacks = pair->receiver->counters.fallbacks;
    regx_registry_t *registry = &pair->receiver->registry;
    guarded_t received = guarded_new(LENGTH);

    (void)state;
    registry->once_max = LENGTH;
    registry->once[false] = LENGTH; /* what is sent from has no room, and needs none */
    pair->refused_region = 1;
    for (unsigned i = 0; i < 2; i++) {
        regx_rndv_recv_close(pair->receiver->rndv,
                             regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 received.base, LENGTH));
        assert_int_equal(regx_tally_find(fallbacks, "receiver: over btl_regx_once_bytes")->count,
                         i);
        registry->once[true] = 1;
    }
    assert_int_equal(pair->receiver->calls[FAKE_REG], 1);
    registry->once[false] = registry->once[true] = 0;
    guarded_free(&received);
    pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_that_all_find_no_room_are_sent_later),
        cmocka_unit_test(an_outer_region_serves_its_parts),
        cmocka_unit_test(a_dead_region_is_granted_no_more),
        cmocka_unit_test(a_buffer_with_a_hole_does_not_crash),
        cmocka_unit_test(a_flipped_bit_is_found_where_either_end_verifies),
        cmocka_unit_test(a_corrupt_transfer_is_reported_once),
        cmocka_unit_test(the_first_refusals_are_looked_into),
        cmocka_unit_test(only_the_share_is_blamed_for_the_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
