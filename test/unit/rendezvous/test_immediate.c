/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Immediate data in place of notices: says of a grant what the notice does, or cannot be told so;
 * and of all that a peer may say that is not its grant, nothing comes. (Whole transfers by it are
 * in test_rendezvous and test_threads.)
 */
#include "pair.h"

#include "rendezvous/immediate.h"
#include "rendezvous/recv.h"
#include "rendezvous/send.h"

enum { SLOT = 16384, SLOTS = 8, CHUNK = 8192, LENGTH = 3 * CHUNK, OTHER = 2 };

static fake_t *receiver, *sender, *other;

static void ignore(fake_t *fake, uint64_t from, uint8_t tag, const void *data, size_t length)
{
    (void)fake;
    (void)from;
    (void)tag;
    (void)data;
    (void)length;
}

static void open_all(const char *strategy, bool verify)
{
    const fake_config_t played = {.slots = 2, .slot_size = SLOT};
    const fake_config_t config = {.slots = SLOTS,
                                  .slot_size = SLOT,
                                  .strategy = strategy,
                                  .chunk_size = CHUNK,
                                  .chunk_depth = 2,
                                  .verify = verify};

    receiver = fake_open(0, &config);
    sender = fake_open(1, &played);
    other = fake_open(OTHER, &played);
    sender->deliver = other->deliver = ignore;
    fake_connect(receiver, sender, false);
    fake_connect(receiver, other, false);
}

static void close_all(void)
{
    fake_close(other);
    fake_close(sender);
    fake_close(receiver);
}

static regx_cts_t cts_of(const regx_rndv_recv_t *recv)
{
    regx_cts_t cts;

    assert_true(regx_send_read_cts(receiver->rndv, fake_cts(recv), &cts));
    return cts;
}

static regx_control_t notice_of(regx_control_type_t type, const regx_cts_t *cts, uint64_t offset,
                                uint64_t length, uint32_t slot)
{
    return (regx_control_t){
        .type = type, .to = cts->recv, .offset = offset, .length = length, .slot = slot};
}

static void what_does_not_fit_goes_by_notice(void **state)
{
    const regx_handle_t name = {.id = 5, .generation = 77};
    regx_control_t notice = {.type = REGX_CONTROL_ATP_SLOT, .to = name, .slot = 7 * 4096};

    (void)state;
    assert_true(regx_immediate_pack(&notice, 0) > 0);
    assert_true(regx_immediate_pack(&notice, 0) <= REGX_IMMEDIATE_MAX);
    notice.slot = 0xfff * 4096u;
    assert_true(regx_immediate_pack(&notice, 0) <= REGX_IMMEDIATE_MAX);
    notice.slot = 0x1000 * 4096u;
    assert_int_equal(regx_immediate_pack(&notice, 0), 0);
    notice.slot = 1000;
    assert_int_equal(regx_immediate_pack(&notice, 0), 0);
    notice.slot = 4096;
    notice.has_checksum = true;
    assert_int_equal(regx_immediate_pack(&notice, 0), 0);

    notice = (regx_control_t){.type = REGX_CONTROL_ATP_CHUNK, .to = name, .offset = 127 * CHUNK};
    assert_true(regx_immediate_pack(&notice, CHUNK) > 0);
    assert_true(regx_immediate_pack(&notice, CHUNK) <= REGX_IMMEDIATE_MAX);
    assert_int_equal(regx_immediate_pack(&notice, 0), 0);
    notice.offset = 128 * CHUNK;
    assert_int_equal(regx_immediate_pack(&notice, CHUNK), 0);
    notice.offset = CHUNK + 1;
    assert_int_equal(regx_immediate_pack(&notice, CHUNK), 0);
    notice.offset = 0;
    notice.to.id = 1023;
    assert_true(regx_immediate_pack(&notice, CHUNK) <= REGX_IMMEDIATE_MAX);
    notice.to.id = 1024;
    assert_int_equal(regx_immediate_pack(&notice, CHUNK), 0);
    notice.to.id = 0;
    notice.has_checksum = true;
    assert_int_equal(regx_immediate_pack(&notice, CHUNK), 0);
}

/* Every value there is but those in `granted`, from the peer itself, and those from another. */
static void say_all_else(const regx_rndv_recv_t *recv, const uint32_t *granted, unsigned count)
{
    const uint64_t before = receiver->counters.malformed;
    uint64_t said = 0;

    for (uint32_t value = 0; value <= REGX_IMMEDIATE_MAX; value++) {
        bool is_granted = false;

        for (unsigned i = 0; i < count; i++) {
            is_granted |= value == granted[i];
        }
        regx_rndv_immediate(receiver->rndv, is_granted ? other->id : sender->id, value);
        said++;
    }
    assert_int_equal(receiver->counters.malformed - before, said);
    assert_int_equal(recv->landed, 0);
    assert_int_equal(recv->slots_out + recv->chunks_out, count);
}

static void immediates_acknowledge_slots(void **state)
{
    guarded_t memory = guarded_new(3 * SLOT / 2);
    uint32_t granted[REGX_CTS_SLOTS] = {0};
    uint64_t offset = 0;

    (void)state;
    open_all("bounce", false);
    regx_rndv_recv_t *recv =
        regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
    const regx_cts_t cts = cts_of(recv);
    assert_in_range(cts.slot_count, 1, REGX_CTS_SLOTS);
    for (unsigned i = 0; i < cts.slot_count; i++) {
        const regx_control_t notice =
            notice_of(REGX_CONTROL_ATP_SLOT, &cts, offset, cts.slots[i].length, cts.slots[i].slot);

        granted[i] = regx_immediate_pack(&notice, 0);
        offset += cts.slots[i].length;
    }
    assert_int_equal(offset, memory.length);
    guarded_fill(&receiver->pool_memory, 9);
    say_all_else(recv, granted, cts.slot_count);
    for (unsigned i = 0; i < cts.slot_count; i++) {
        regx_rndv_immediate(receiver->rndv, sender->id, granted[i]);
        regx_rndv_immediate(receiver->rndv, sender->id, granted[i]); /* once is all */
    }
    assert_int_equal(recv->landed, memory.length);
    offset = 0;
    for (unsigned i = 0; i < cts.slot_count; i++) {
        assert_memory_equal(memory.base + offset, receiver->pool_memory.base + cts.slots[i].slot,
                            cts.slots[i].length);
        offset += cts.slots[i].length;
    }
    regx_rndv_recv_close(receiver->rndv, recv);
    guarded_free(&memory);
    close_all();
}

static uint32_t of_chunk(const regx_cts_t *cts, uint64_t offset)
{
    const regx_control_t notice = notice_of(REGX_CONTROL_ATP_CHUNK, cts, offset, CHUNK, 0);

    return regx_immediate_pack(&notice, CHUNK);
}

static void immediates_acknowledge_chunks(void **state)
{
    guarded_t memory = guarded_new(LENGTH);
    uint8_t bytes[REGX_CONTROL_MAX];

    (void)state;
    open_all("pipeline", false);
    regx_rndv_recv_t *recv =
        regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
    const regx_cts_t cts = cts_of(recv);
    uint32_t granted[2] = {of_chunk(&cts, 0), of_chunk(&cts, CHUNK)};
    assert_int_equal(cts.chunk_length, CHUNK);
    say_all_else(recv, granted, 1);

    const regx_control_t start = {
        .type = REGX_CONTROL_READY, .to = cts.recv, .from = {.id = 3, .generation = 4}};
    fake_arrive(receiver, sender->id, bytes, regx_control_pack(&start, bytes));
    assert_int_equal(recv->chunks_out, 2);
    say_all_else(recv, granted, 2);

    regx_rndv_immediate(receiver->rndv, sender->id, granted[1]);
    assert_int_equal(recv->landed, CHUNK);
    assert_int_equal(recv->chunks_out, 2); /* the third */
    regx_rndv_immediate(receiver->rndv, sender->id, granted[0]);
    regx_rndv_immediate(receiver->rndv, sender->id, of_chunk(&cts, 2 * CHUNK));
    assert_int_equal(recv->landed, LENGTH);
    assert_int_equal(recv->chunks_out, 0);
    assert_int_equal(recv->sender.id, 3);
    regx_rndv_recv_close(receiver->rndv, recv);
    while (fake_receive(sender, receiver)) {
    }
    guarded_free(&memory);
    close_all();
}

/* A receive that compares checksums takes nothing without one. */
static void immediates_are_refused_where_a_checksum_is_wanted(void **state)
{
    guarded_t memory = guarded_new(CHUNK);

    (void)state;
    open_all("direct", true);
    regx_rndv_recv_t *recv =
        regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
    const regx_cts_t cts = cts_of(recv);
    regx_rndv_immediate(receiver->rndv, sender->id, of_chunk(&cts, 0));
    assert_int_equal(recv->landed, 0);
    assert_int_equal(receiver->counters.malformed, 1);
    regx_rndv_recv_close(receiver->rndv, recv);
    guarded_free(&memory);
    close_all();
}

/* Nor one that took the place of the receive that was meant. */
static void immediates_of_a_closed_receive_are_refused(void **state)
{
    guarded_t memory = guarded_new(CHUNK);

    (void)state;
    open_all("direct", false);
    for (unsigned round = 0; round < 40; round++) {
        regx_rndv_recv_t *old =
            regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
        const regx_cts_t before = cts_of(old);
        regx_rndv_recv_close(receiver->rndv, old);
        regx_rndv_recv_t *recv =
            regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
        const regx_cts_t cts = cts_of(recv);
        assert_int_equal(cts.recv.id, before.recv.id);
        regx_rndv_immediate(receiver->rndv, sender->id, of_chunk(&before, 0));
        assert_int_equal(recv->landed, 0);
        regx_rndv_immediate(receiver->rndv, sender->id, of_chunk(&cts, 0));
        assert_int_equal(recv->landed, CHUNK);
        regx_rndv_recv_close(receiver->rndv, recv);
    }
    assert_int_equal(receiver->counters.malformed, 40);
    guarded_free(&memory);
    close_all();
}

static uint32_t of_first_slot(const regx_cts_t *cts)
{
    const regx_control_t notice =
        notice_of(REGX_CONTROL_ATP_SLOT, cts, 0, cts->slots[0].length, cts->slots[0].slot);

    return regx_immediate_pack(&notice, 0);
}

/* Nor one that only got the slot, whoever had it before. */
static void immediates_of_a_slot_granted_again_are_refused(void **state)
{
    guarded_t memory = guarded_new(4096);
    regx_rndv_recv_t *recvs[2];

    (void)state;
    open_all("bounce", false);
    for (unsigned round = 0; round < 20; round++) {
        recvs[0] =
            regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
        const regx_cts_t first = cts_of(recvs[0]);
        regx_rndv_recv_close(receiver->rndv, recvs[0]);
        recvs[0] = regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, 1);
        recvs[1] =
            regx_rndv_recv_open(receiver->rndv, &receiver->peers[1], memory.base, memory.length);
        const uint64_t before = receiver->counters.malformed;
        regx_rndv_immediate(receiver->rndv, sender->id, of_first_slot(&first));
        assert_int_equal(receiver->counters.malformed, before + 1);
        for (unsigned i = 0; i < 2; i++) {
            const regx_cts_t cts = cts_of(recvs[i]);

            assert_int_equal(recvs[i]->landed, 0);
            regx_rndv_immediate(receiver->rndv, sender->id, of_first_slot(&cts));
            assert_int_equal(recvs[i]->landed, recvs[i]->length);
            regx_rndv_recv_close(receiver->rndv, recvs[i]);
        }
    }
    guarded_free(&memory);
    close_all();
}

/* All puts of a message tell by it but the first, where the receive has to hear who writes. */
static void everything_that_fits_goes_by_immediate(void **state)
{
    static const struct {
        const char *strategy;
        size_t length;
        unsigned notices;
    } cases[] = {{"direct", LENGTH, 0},
                 {"pipeline", CHUNK, 0},
                 {"pipeline", LENGTH, 0},
                 {"bounce", 3 * SLOT / 2, 0},
                 {"bounce", 2 * SLOTS * SLOT, 1}};

    (void)state;
    fake_immediates = true;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const fake_config_t config = {.slots = SLOTS,
                                      .slot_size = SLOT,
                                      .strategy = cases[i].strategy,
                                      .chunk_size = CHUNK,
                                      .chunk_depth = 2};
        pair_t *pair = pair_open(&config, &config);
        guarded_t from = guarded_new(cases[i].length), to = guarded_new(cases[i].length);

        guarded_fill(&from, i);
        fake_immediate_count = 0;
        regx_rndv_recv_t *recv = regx_rndv_recv_open(pair->receiver->rndv,
                                                     &pair->receiver->peers[0], to.base, to.length);
        regx_rndv_send_open(pair->sender->rndv, &pair->sender->peers[1], from.base, from.length,
                            fake_cts(recv), pair_done, pair);
        pair_run(pair);
        assert_int_equal(pair->dones, 1);
        assert_memory_equal(to.base, from.base, to.length);
        assert_true(pair->sender->counters.puts > 0);
        assert_int_equal(fake_immediate_count, pair->sender->counters.puts - cases[i].notices);
        regx_rndv_recv_close(pair->receiver->rndv, recv);
        pair_close(pair);
        guarded_free(&from);
        guarded_free(&to);
    }
    fake_immediates = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_goes_by_notice),
        cmocka_unit_test(immediates_acknowledge_slots),
        cmocka_unit_test(immediates_acknowledge_chunks),
        cmocka_unit_test(immediates_are_refused_where_a_checksum_is_wanted),
        cmocka_unit_test(immediates_of_a_closed_receive_are_refused),
        cmocka_unit_test(immediates_of_a_slot_granted_again_are_refused),
        cmocka_unit_test(everything_that_fits_goes_by_immediate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
