/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernel's copies on the node: in which order they are made, and what becomes of them where
 * they are refused. Shared copies: who copies what of a get, and what becomes of it if the peer may
 * not write, dies or lies. `one` gets, `two` helps.
 */
#include "../../process.h"
#include "shm_parties.h"

#include "../pair.h"
#include <time.h>

SHM_TEST(every_other_get_of_several_pieces_begins_with_the_last)
{
    static const size_t lengths[] = {2 * PIECE, PIECE, 2 * PIECE, 3 * PIECE - 9, 2 * PIECE + 7};
    unsigned long_ones = 0;
    op_t op;

    for (unsigned i = 0; i < 20; i++) {
        const size_t length = lengths[i % 5], last = length - 64;

        get_start(&one, &op, 0, length, false);
        step(&one);
        if (length > PIECE) {
            const bool from_end = long_ones++ % 2 == 0;

            assert_int_equal(op.ended, 0);
            assert_int_equal(memcmp(sink, source, 64) == 0, !from_end);
            assert_int_equal(memcmp(sink + last, source + last, 64) == 0, from_end);
        }
        parties_await(&op.ended, 1);
        get_check(&op);
    }
}

/* Nor for those from another peer. */
SHM_TEST(a_short_get_does_not_wait_for_the_end_of_a_long_one)
{
    op_t ops[4];

    regx_conn_t *const to_two = one.conn;
    party_open(&three, THREE, false);
    party_connect(&one, &three);
    regx_conn_t *const to_three = one.conn;
    for (unsigned other = 0; other < 2; other++) {
        one.conn = to_two;
        for (unsigned i = 0; i < 3; i++) {
            get_start(&one, &ops[i], 0, SHM_ZONE, false);
        }
        one.conn = other != 0 ? to_three : to_two;
        get_start(&one, &ops[3], 7, 100, false);
        while (ops[3].ended == 0) {
            step(&one);
            assert_int_equal(ops[0].ended + ops[1].ended + ops[2].ended, 0);
        }
        for (unsigned i = 0; i < 3; i++) {
            parties_await(&ops[i].ended, 1);
        }
        get_check(&ops[2]);
    }
    tested->ops->disconnect(to_three);
    one.conn = to_two;
    party_close(&three);
}

/* Who looks seldom has more copied at a look. */
SHM_TEST(a_program_that_looks_seldom_has_more_copied)
{
    const struct timespec pause = {.tv_nsec = 3000000};
    op_t op;

    get_start(&one, &op, 0, SHM_ZONE, false);
    step(&one);
    nanosleep(&pause, NULL); /* long enough to count as seldom */
    const size_t before = op.get.pending.moved;
    step(&one);
    assert_true(op.get.pending.moved - before >= 1024 * 1024 || op.ended > 0);
    parties_await(&op.ended, 1);
    get_check(&op);
}

/* A put that is copied, and whose notice finds no room, lets those behind it go on. */
SHM_TEST(gets_do_not_wait_for_a_full_mailbox)
{
    uint8_t *local = guarded_new(PIECE), *remote = guarded_new(PIECE);
    regx_mr_t region;
    op_t put, get;

    while (party_try(&one, 1, 1, 100) == REGX_OK) {
    }
    party_reg(&two, remote, PIECE, REGX_ACCESS_REMOTE_WRITE, &region);
    unit_fill(local, PIECE, 5, 0);
    op_put(&put, local, PIECE, REGX_TARGET_REGION, 0);
    put.put.key = region.key;
    assert_int_equal(regx_shm_put(one.conn, &put.put), REGX_PENDING);
    get_start(&one, &get, 8, PIECE, false);
    step_to_end(&one, &get);
    get_check(&get);
    for (unsigned i = 0; i < 100; i++) {
        step(&one);
    }
    assert_int_equal(put.ended, 0);
    op_await(&put); /* now the other reads */
    assert_true(unit_is_filled(remote, PIECE, 5));
    guarded_free(local, PIECE);
    guarded_free(remote, PIECE);
}

/* ---- where the kernel refuses ---- */

/* It allows it, then does not any more. */
static void refused_on_the_way(void)
{
    op_t ops[2];

    in_child = true;
    shm_parties_open(false);
    zones_new();
    get_start(&one, &ops[0], 0, 2 * PIECE, false);
    get_start(&one, &ops[1], 0, 1, false);
    step(&one);
    REQUIRE(process_deny(SYS_process_vm_readv, EPERM));
    until(ops[0].ended + ops[1].ended >= 2, step(&one));
    REQUIRE(ops[0].status == REGX_DENIED);
}

UNIT_TEST(the_kernel_may_refuse_on_the_way)
{
    in_child_process(refused_on_the_way);
}

/* ---- shared copies: who copies what of a get ---- */

enum { LONG = 2 * PIECE + 200000 }; /* its halves are two pieces each */

static regx_claim_cell_t *cell(void)
{
    return &regx_shm_main(shm_of(&one))->cells[0];
}

static bool is_unused(const party_t *party)
{
    return shm_of(party)->shared_copies.free == &shm_of(party)->shared_copies.gets[0];
}

/* ---- who copies ---- */

SHM_TEST(a_peer_that_is_busy_is_not_waited_for)
{
    op_t op;

    get_start(&one, &op, 3, LONG, true);
    step_to_end(&one, &op);
    get_check(&op);
    assert_true(one.counters.chunks_receiver > 2);
    work(&two); /* now it finds the request, and writes nothing */
    assert_true(unit_is_all(sink + 3, LONG, 0xee));
    assert_int_equal(two.counters.chunks_sender, 0);
    assert_int_equal(regx_shared_copies_asked(&shm_of(&two)->shared_copies), 0);
}

SHM_TEST(the_peer_copies_the_second_half)
{
    op_t op;

    const uint64_t before = one.counters.bytes_shm;
    get_start(&one, &op, 3, LONG, true);
    work(&two);
    assert_true(two.counters.chunks_sender == 2 && op.ended == 0);
    while (op.ended == 0) {
        assert_true(step(&one) > 0);
    }
    get_check(&op);
    assert_int_equal(one.counters.chunks_receiver, 2);
    const uint64_t read = one.counters.bytes_shm - before;
    assert_in_range(read, LONG / 2, LONG / 2 + REGX_CLAIM_PAGE);
}

SHM_TEST(what_the_peer_does_not_claim_is_read)
{
    op_t ops[2];

    for (unsigned i = 0; i < 2; i++) {
        get_start(&one, &ops[i], i * SHM_ZONE / 2, SHM_ZONE / 2, true);
    }
    step(&two); /* the requests */
    step(&two); /* a piece of the older one */
    assert_true(two.counters.chunks_sender > 0);
    assert_true((uint32_t)cell()[0].word > 0 && (uint32_t)cell()[1].word == 0);
    for (unsigned i = 0; i < 2; i++) {
        step_to_end(&one, &ops[i]);
        get_check(&ops[i]);
    }
}

SHM_TEST(a_process_with_copies_of_its_own_helps_later)
{
    op_t own, op;

    get_start(&one, &op, 0, LONG, true);
    step(&two); /* it has the request */
    const uint64_t before = two.counters.chunks_sender;
    get_start(&two, &own, LONG, LONG, false);
    while (own.ended == 0) {
        step(&two);
        assert_int_equal(two.counters.chunks_sender, before);
    }
    get_check(&own);
    work(&two);
    assert_true(two.counters.chunks_sender > before);
    parties_await(&op.ended, 1);
    get_check(&op);
}

/* In both orders of copying; and it is not asked while it is known to be busy. */
SHM_TEST(a_request_to_a_busy_peer_is_taken_back)
{
    op_t own, op;

    for (unsigned i = 0; i < 3; i++) {
        if (i < 2) {
            get_start(&one, &op, 5, LONG, true);
            assert_false(is_unused(&one));
        }
        get_start(&two, &own, LONG + 8, LONG, false);
        if (i == 2) {
            get_start(&one, &op, 5, LONG, true);
        }
        while (op.ended == 0) {
            step(&one);
            assert_true(is_unused(&one));
        }
        get_check(&op);
        assert_int_equal(one.counters.chunks_receiver, 0);
        work(&two);
        get_check(&own);
        assert_int_equal(two.counters.chunks_sender, 0);
        assert_int_equal(regx_shared_copies_asked(&shm_of(&two)->shared_copies), 0);
    }
}

SHM_TEST(without_a_cell_a_get_is_a_plain_one)
{
    enum { MANY = REGX_SHARED_COPIES + 8 };
    static op_t ops[MANY];

    for (unsigned round = 0; round < 2; round++) {
        unsigned cells = 0;

        for (unsigned i = 0; i < MANY; i++) {
            get_start(&one, &ops[i], i, REGX_SHARED_COPY_MIN + i, true);
        }
        assert_null(shm_of(&one)->shared_copies.free);
        for (unsigned i = 0; i < MANY; i++) {
            parties_await(&ops[i].ended, 1);
            assert_int_equal(ops[i].status, REGX_OK);
        }
        get_check(&ops[MANY - 1]);
        for (const regx_shared_copy_t *at = shm_of(&one)->shared_copies.free; at != NULL;
             at = at->next_free) {
            cells++;
        }
        assert_int_equal(cells, REGX_SHARED_COPIES);
    }
}

/* ---- trouble ---- */

static void refuse_to_write(void)
{
    op_t op;

    in_child = true;
    REQUIRE(process_deny(SYS_process_vm_writev, EPERM));
    shm_parties_open(false);
    zones_new();
    get_start(&one, &op, 3, LONG, true);
    work(&two);
    REQUIRE(two.counters.chunks_sender == 0 &&
            regx_shared_copies_asked(&shm_of(&two)->shared_copies) == 0);
    REQUIRE(fell_back(&two, "process_vm: not permitted (rights, dumpable, Yama, seccomp)"));
    REQUIRE(fallbacks(&two) == 1 && (uint32_t)cell()->word > 0);
    step_to_end(&one, &op);
    REQUIRE(op.status == REGX_OK && memcmp(sink + 3, source + 3, LONG) == 0);
    memset(sink, 0xee, SHM_ZONE);
    get_start(&one, &op, 3, LONG, true);
    work(&two);
    parties_await(&op.ended, 1);
    REQUIRE(op.status == REGX_OK && memcmp(sink + 3, source + 3, LONG) == 0);
}

UNIT_TEST(what_the_peer_may_not_write_the_receiver_reads)
{
    in_child_process(refuse_to_write);
}

/* The peer claims a piece, and no progress of it ends that. */
static void claim(regx_claim_piece_t *piece)
{
    const uint32_t number = (uint32_t)(cell()->word >> 32);

    assert_int_equal(regx_claim_take(cell(), number, LONG / 4, REGX_CLAIM_BY_PEER, piece), REGX_OK);
}

SHM_TEST(a_peer_that_dies_at_a_piece_is_not_waited_for)
{
    regx_claim_piece_t piece;
    op_t op;

    get_start(&one, &op, 0, LONG, true);
    claim(&piece);
    for (unsigned i = 0; i < 10; i++) {
        step(&one);
    }
    assert_int_equal(op.ended, 0);
    conn_of(&one)->peer.vm.life.made--; /* another process has its number */
    step_to_end(&one, &op);
    assert_int_equal(op.status, REGX_FAILED);
    assert_int_equal(atomic_load(&shm_of(&one)->copy_count), 0);
}

static _Atomic bool disconnects;
static regx_claim_piece_t slow;

static void *end_slowly(void *nothing)
{
    await(disconnects);
    for (unsigned i = 0; i < 1000; i++) {
        sched_yield(); /* the other most likely waits by now, and if not it is right too */
    }
    sink[slow.begin] = 0x77; /* as the kernel would for it */
    regx_claim_end(cell(), REGX_CLAIM_BY_PEER, true);
    return nothing;
}

/* Whether this process has still to read, or only waits for the peer. */
UNIT_TEST(who_disconnects_waits_for_the_peers_piece)
{
    for (unsigned ending = 0; ending < 2; ending++) {
        op_t op;

        shm_parties_open(false);
        zones_new();
        get_start(&one, &op, 0, LONG, true);
        claim(&slow);
        for (unsigned i = 0; i < 50 * ending; i++) {
            step(&one);
        }
        assert_true(op.ended == 0 && regx_list_empty(&shm_of(&one)->ending) == (ending == 0));
        disconnects = false;
        const pthread_t peer = unit_thread(end_slowly, NULL);
        disconnects = true;
        party_leave(&one);
        assert_true(op.ended == 1 && op.status == REGX_FAILED);
        assert_int_equal(sink[slow.begin], 0x77);
        pthread_join(peer, NULL);
        memset(sink, 0xee, SHM_ZONE);
        zones_free();
        parties_close();
    }
}

/* ---- lies ---- */

static void ask(const void *frame, uint32_t length)
{
    regx_mailbox_out_t *out = &conn_of(&one)->out;

    regx_mailbox_line_t *line = regx_mailbox_next_line(out);

    memcpy(line->data, frame, regx_min(length, REGX_MAILBOX_INLINE));
    regx_mailbox_show_line(out, line, 0, length, REGX_FRAME_SHARED_COPY);
}

SHM_TEST(malformed_requests_are_refused)
{
    const regx_shared_copy_frame_t right = {
        .number = 1, .local = 4096, .remote = 4096, .length = REGX_SHARED_COPY_MIN};
    regx_shared_copy_frame_t wrong[] = {right, right, right, right, right, right};
    const char longer[600] = {0};

    wrong[0].cell = REGX_SHARED_COPIES;
    wrong[1].length = 0;
    wrong[2].length = UINT64_MAX - 4095;
    wrong[3].remote = UINT64_MAX - right.length + 1;
    wrong[4].local = UINT64_MAX - right.length + 1;
    wrong[5].length = REGX_CLAIM_MAX + 1;
    for (unsigned i = 0; i < 6; i++) {
        ask(&wrong[i], sizeof(wrong[i]));
    }
    ask(&right, sizeof(right) - 1);
    ask(&right, 1);
    ask(longer, sizeof(longer));
    ask(&right, sizeof(right)); /* of a cell that is in no use */
    work(&two);
    assert_true(two.counters.malformed == 9 && two.counters.chunks_sender == 0);
    assert_int_equal(regx_shared_copies_asked(&shm_of(&two)->shared_copies), 0);
    two.counters.malformed = 0;
    parties_exchange();
}

SHM_TEST(a_spoilt_cell_ends_the_get)
{
    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t before = one.counters.malformed;
        op_t op;

        get_start(&one, &op, 0, LONG, true);
        if (i == 0) {
            atomic_store(&cell()->word, 0);
        } else {
            atomic_fetch_or(&cell()->word, REGX_CLAIM_UNITS);
        }
        step_to_end(&one, &op);
        assert_true(op.status == REGX_FAILED && one.counters.malformed > before);
    }
    one.counters.malformed = 0;
}
