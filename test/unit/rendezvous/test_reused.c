/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A receive takes the record of a closed one. Whatever that holds, it behaves as with a new record.
 */
#include "pair.h"

#include "base/util.h"
#include "rendezvous/recv.h"

enum { CHUNK = 4096, DEPTH = 4, WHOLE = DEPTH * CHUNK, MESSAGES = 6 };

/* What is done to the records of closed receives: they are freed, or nothing of them is valid. */
typedef enum records { FREED, POISONED } records_t;

/* What an end did. */
typedef struct effects {
    uint64_t grants, puts, gets, registrations, deregistrations, copied_out, chunks_high;
    uint64_t messages[REGX_PATH_COUNT], bytes[REGX_PATH_COUNT], fallbacks;
    unsigned calls[FAKE_CALLS];
} effects_t;

typedef struct both_ends {
    effects_t sender, receiver;
} both_ends_t;

static effects_t effects_of(const fake_t *fake)
{
    const regx_counters_t *counters = &fake->counters;
    effects_t effects;

    memset(&effects, 0, sizeof(effects)); /* they are compared as bytes */
    effects.grants = counters->grants;
    effects.puts = counters->puts;
    effects.gets = counters->gets;
    effects.registrations = counters->registrations;
    effects.deregistrations = counters->deregistrations;
    effects.copied_out = counters->copied_out_bytes;
    effects.chunks_high = counters->chunks_high;
    for (unsigned path = 0; path < REGX_PATH_COUNT; path++) {
        effects.messages[path] = counters->messages[path];
        effects.bytes[path] = counters->bytes[path];
    }
    effects.fallbacks = counters->fallbacks[0].count;
    memcpy(effects.calls, fake->calls, sizeof(effects.calls));
    return effects;
}

static void spoil(const fake_t *fake, records_t records)
{
    regx_link_t *const head = &fake->rndv->free_recvs;

    if (records == FREED) {
        regx_recvs_free(fake->rndv);
        return;
    }
    assert_false(regx_list_empty(head));
    for (regx_link_t *at = head->next; at != head; at = at->next) {
        regx_rndv_recv_t *recv = REGX_CONTAINER_OF(at, regx_rndv_recv_t, link);
        const regx_link_t link = *at;

        memset(recv, 0xa5, sizeof(*recv) + DEPTH * sizeof(recv->chunks[0]));
        recv->link = link;
    }
}

static regx_rndv_recv_t *open_recv(const pair_t *pair, const guarded_t *received)
{
    regx_rndv_recv_t *recv = regx_rndv_recv_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                 received->base, received->length);

    assert_non_null(recv);
    return recv;
}

static void close_recv(const pair_t *pair, regx_rndv_recv_t *recv, records_t records)
{
    regx_rndv_recv_close(pair->receiver->rndv, recv);
    spoil(pair->receiver, records);
}

/* Sends a message, whose bytes are to arrive, from memory that is new. */
static void send_once(pair_t *pair, const guarded_t *received, uint64_t stream, records_t records)
{
    guarded_t sent = guarded_new(received->length);

    guarded_fill(&sent, stream);
    memset(received->base, 0x11, received->length);
    /* Closed with what the CTS granted. */
    close_recv(pair, open_recv(pair, received), records);
    regx_rndv_recv_t *recv = open_recv(pair, received);
    regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, sent.length,
                        fake_cts(recv), pair_done, pair);
    pair_run(pair);
    assert_int_equal(pair->dones, stream);
    assert_int_equal(pair->status, REGX_OK);
    assert_memory_equal(received->base, sent.base, sent.length);
    close_recv(pair, recv, records);
    fake_changed(sent.base, sent.length);
    guarded_free(&sent);
    fake_settle(pair->sender);
    fake_settle(pair->receiver);
}

/* Messages into the same buffer. The registration of that number is refused at the receiver, and
 * those up to the other; 0: none. */
static both_ends_t run(const fake_config_t *config, size_t length, unsigned refused, unsigned most,
                       records_t records)
{
    pair_t *pair = pair_open(config, config);
    guarded_t received = guarded_new(length);

    pair->refused_region = refused;
    pair->refused_most = most;
    for (uint64_t stream = 1; stream <= MESSAGES; stream++) {
        send_once(pair, &received, stream, records);
    }
    const both_ends_t effects = {effects_of(pair->sender), effects_of(pair->receiver)};
    fake_changed(received.base, received.length);
    guarded_free(&received);
    fake_settle(pair->sender);
    fake_settle(pair->receiver);
    pair_close(pair);
    return effects;
}

static effects_t assert_same(const fake_config_t *config, size_t length, unsigned refused,
                             unsigned most)
{
    const both_ends_t expected = run(config, length, refused, most, FREED);
    const both_ends_t reused = run(config, length, refused, most, POISONED);

    assert_memory_equal(&reused.sender, &expected.sender, sizeof(effects_t));
    assert_memory_equal(&reused.receiver, &expected.receiver, sizeof(effects_t));
    return reused.sender;
}

static void assert_path(const char *strategy, regx_path_t path)
{
    const fake_config_t config = {.slots = 8,
                                  .slot_size = 1024,
                                  .strategy = strategy,
                                  .chunk_size = CHUNK,
                                  .chunk_depth = DEPTH};
    static const size_t lengths[] = {1, CHUNK, CHUNK + 1, WHOLE, 2 * WHOLE + 7};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        const effects_t sent = assert_same(&config, lengths[i], 0, 0);

        assert_int_equal(sent.messages[path], MESSAGES);
        assert_int_equal(sent.bytes[path], MESSAGES * lengths[i]);
        for (unsigned refused = 1; refused <= 2 * DEPTH; refused++) {
            assert_same(&config, lengths[i], refused, 0);
            assert_same(&config, lengths[i], refused, refused + 2);
        }
    }
}

static void bounce_behaves_as_with_new_records(void **state)
{
    (void)state;
    assert_path("bounce", REGX_PATH_bounce);
}

static void pipeline_behaves_as_with_new_records(void **state)
{
    (void)state;
    assert_path("pipeline", REGX_PATH_pipeline);
}

static void direct_behaves_as_with_new_records(void **state)
{
    (void)state;
    assert_path("direct", REGX_PATH_direct);
}

static void read_behaves_as_with_new_records(void **state)
{
    (void)state;
    assert_path("read", REGX_PATH_read);
}

/* A buffer that is known is granted whole, and written in pieces. */
static void known_whole_behaves_as_with_new_records(void **state)
{
    const fake_config_t config = {.slots = 300,
                                  .slot_size = 64,
                                  .strategy = "auto",
                                  .chunk_size = CHUNK,
                                  .chunk_depth = DEPTH,
                                  .cache_bytes = REGX_UNLIMITED};

    (void)state;
    const effects_t sent = assert_same(&config, WHOLE, 0, 0);
    assert_int_equal(sent.messages[REGX_PATH_pipeline], MESSAGES);
    assert_int_equal(sent.puts, MESSAGES * DEPTH);
    for (unsigned refused = 1; refused <= 2 * DEPTH; refused++) {
        assert_same(&config, WHOLE, refused, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounce_behaves_as_with_new_records),
        cmocka_unit_test(pipeline_behaves_as_with_new_records),
        cmocka_unit_test(direct_behaves_as_with_new_records),
        cmocka_unit_test(read_behaves_as_with_new_records),
        cmocka_unit_test(known_whole_behaves_as_with_new_records),
    };

    return cmocka_run_group_tests_name("reused records", tests, NULL, NULL);
}
