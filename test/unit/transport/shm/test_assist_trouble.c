/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Assisted gets in trouble: a peer that may not write, that dies, that lies; a get that is given
 * up.
 */
#include "../../process.h"
#include "copies.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "transport/counters.h"

enum { LONG = 2 * STEP + 12345 };

/* ---- a piece that cannot be written ---- */

static void get_with_a_peer_that_fails(side_t *side)
{
    bool denied;

    begin(side);
    pair_hear(side->socket, &denied, sizeof(denied));
    op_t op = assisted_op(side, 3, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    meet(side); /* it claims a piece and cannot write it */
    meet(side);
    REQUIRE(regx_claim_look(&side->shm->assists.cells[0], 1) > 0);
    await(side, &op);
    assert_got(&op);
    op_free(&op);
    REQUIRE(side->counters.chunks_receiver > 0);
    REQUIRE(!denied || side->counters.transport[REGX_COUNTER_bytes_shm] == LONG);
    finish(side);
}

static void fail_to_write(side_t *side)
{
    begin(side);
    const bool denied = process_deny(SYS_process_vm_writev, EPERM);

    if (!denied) {
        printf("not tried: the kernel cannot be told to refuse\n");
    }
    pair_tell(side->socket, &denied, sizeof(denied));
    meet(side);
    regx_shm_progress(side->transport);
    if (denied) {
        REQUIRE(side->counters.chunks_sender == 0);
        REQUIRE(strcmp(side->counters.fallbacks[0].reason,
                       "process_vm: assisting a peer's get refused") == 0);
        REQUIRE(side->counters.fallbacks[0].count == 1);
        REQUIRE(side->shm->requests.count == 0);
    }
    meet(side);
    finish(side);
}

static void a_piece_that_the_peer_may_not_write_is_read(void **state)
{
    (void)state;
    run_pair(false, get_with_a_peer_that_fails, fail_to_write);
}

static void get_what_is_gone(side_t *side)
{
    begin(side);
    op_t op = assisted_op(side, ZONE / 2 - LONG / 2, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    meet(side);
    meet(side);
    await(side, &op);
    REQUIRE(op.ended == 1 && op.status == REGX_FAILED);
    op_free(&op);
    meet(side);
    finish(side);
}

static void unmap_and_assist(side_t *side)
{
    begin(side);
    REQUIRE(munmap(zone + ZONE / 2, ZONE / 2) == 0);
    meet(side);
    work_alone(side);
    REQUIRE(side->counters.chunks_sender == 0);
    meet(side);
    meet(side);
    finish(side);
}

static void what_is_not_there_fails_for_both(void **state)
{
    (void)state;
    run_pair(false, get_what_is_gone, unmap_and_assist);
}

/* ---- a peer that is at a piece ---- */

/* Claims a piece of the other's get as progress does. Returns the cell. */
static regx_claim_cell_t *claim_piece(side_t *side, uint32_t number, regx_claim_piece_t *piece)
{
    regx_claim_cell_t *cells = regx_shm_main_at(&regx_shm_conn_of(side->conn)->main)->cells;

    REQUIRE(regx_claim_take(&cells[0], number, LONG / 4, piece) == REGX_OK);
    return &cells[0];
}

static void get_from_the_dead(side_t *side)
{
    begin(side);
    op_t op = assisted_op(side, 0, LONG);
    REQUIRE(post(&op) == REGX_PENDING);
    meet(side); /* it claims, and dies */
    meet(side);
    await(side, &op);
    REQUIRE(op.ended == 1 && op.status == REGX_FAILED);
    op_free(&op);
    REQUIRE(atomic_load(&side->shm->copy_count) == 0);
    finish_alone();
}

static void die_at_a_piece(side_t *side)
{
    regx_claim_piece_t piece;

    begin(side);
    meet(side);
    claim_piece(side, 1, &piece);
    meet(side);
    raise(SIGKILL);
}

static void a_peer_that_dies_at_a_piece_is_not_waited_for(void **state)
{
    (void)state;
    run_killed(get_from_the_dead, die_at_a_piece);
}

static void drop_while_the_peer_writes(side_t *side)
{
    const regx_shm_address_t other = regx_shm_conn_of(side->conn)->address;
    regx_claim_piece_t unused;

    for (unsigned ending = 0; ending < 2; ending++) {
        if (ending == 0) {
            begin(side);
        }
        op_t op = assisted_op(side, 0, LONG);
        REQUIRE(post(&op) == REGX_PENDING);
        meet(side); /* it claims */
        meet(side);
        for (unsigned i = 0; i < 50 * ending; i++) {
            regx_shm_progress(side->transport);
        }
        REQUIRE(op.ended == 0 && (side->shm->ending.first != NULL) == (ending == 1));
        meet(side); /* it ends its piece when it likes */
        regx_shm_disconnect(side->conn);
        REQUIRE(op.ended == 1 && op.status == REGX_FAILED);
        REQUIRE(regx_claim_take(&side->shm->assists.cells[0], 1 + 2 * ending, REGX_CLAIM_PAGE,
                                &unused) != REGX_OK);
        REQUIRE(side->shm->assists.cells[0].ended > 0); /* it was waited for */
        op_free(&op);
        side->conn = side_connect(side, CHILD, &other);
        while (regx_shm_send(side->conn, 1, "", 0, NULL, NULL, 0) != REGX_OK) {
            progress(side);
        }
    }
    finish(side);
}

static void write_slowly(side_t *side)
{
    begin(side);
    for (uint32_t number = 1; number <= 3; number += 2) { /* odd: a connection's first get */
        regx_claim_piece_t piece;

        meet(side);
        regx_claim_cell_t *cell = claim_piece(side, number, &piece);
        meet(side);
        meet(side);
        for (unsigned i = 0; i < 1000; i++) {
            sched_yield(); /* the other most likely waits by now, and if not it is right too */
        }
        regx_claim_end(cell, &piece, true);
    }
    finish(side);
}

static void who_disconnects_waits_for_the_peers_piece(void **state)
{
    (void)state;
    run_pair(false, drop_while_the_peer_writes, write_slowly);
}

/* ---- lies ---- */

static void send_own(side_t *side, const void *frame, uint32_t length)
{
    regx_mailbox_out_t *out = &regx_shm_conn_of(side->conn)->out;

    memcpy(regx_mailbox_next_line(out)->data, frame, regx_min(length, REGX_MAILBOX_INLINE));
    regx_mailbox_publish(out, 0, length, REGX_FRAME_ASSIST);
}

static void ask_wrongly(side_t *side)
{
    const regx_assist_frame_t right = {
        .number = 1, .local = 4096, .remote = 4096, .length = REGX_ASSIST_MIN};
    regx_assist_frame_t wrong[] = {right, right, right, right, right, right};

    begin(side);
    wrong[0].cell = REGX_ASSIST_CELLS;
    wrong[1].length = 0;
    wrong[2].length = UINT64_MAX - 4095;
    wrong[3].remote = UINT64_MAX - right.length + 1;
    wrong[4].local = UINT64_MAX - right.length + 1;
    wrong[5].length = REGX_CLAIM_MAX + 1;
    for (unsigned i = 0; i < 6; i++) {
        send_own(side, &wrong[i], sizeof(wrong[i]));
    }
    send_own(side, &right, sizeof(right) - 1);
    send_own(side, &right, 1);
    char longer[600] = {0};
    send_own(side, longer, sizeof(longer));
    send_own(side, &right, sizeof(right)); /* of a cell that is in no use */
    meet(side);
    finish(side);
}

static void hear_wrongly(side_t *side)
{
    begin(side);
    meet(side);
    work_alone(side);
    REQUIRE(side->counters.malformed == 9 && side->counters.chunks_sender == 0);
    REQUIRE(side->shm->requests.count == 0 && side->shm->inbound_count == 1);
    finish(side);
}

static void malformed_requests_are_refused(void **state)
{
    (void)state;
    run_pair(false, ask_wrongly, hear_wrongly);
}

static void get_with_a_spoilt_cell(side_t *side)
{
    begin(side);
    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t before = side->counters.malformed;
        regx_claim_cell_t *cell = &side->shm->assists.cells[0];
        op_t op = assisted_op(side, 0, LONG);

        REQUIRE(post(&op) == REGX_PENDING);
        if (i == 0) {
            atomic_store(&cell->claimed, 0);
        } else if (i == 1) {
            atomic_fetch_add(&cell->claimed, 0x7fffffff);
        } else if (i == 2) {
            atomic_store(&cell->ended, UINT32_MAX);
        } else {
            atomic_store(&cell->failed, UINT64_MAX - 5);
        }
        await(side, &op);
        REQUIRE(op.status == REGX_FAILED && side->counters.malformed > before);
        op_free(&op);
    }
    meet(side);
    finish(side);
}

static void look_on(side_t *side)
{
    begin(side);
    meet(side);
    finish(side);
}

static void a_spoilt_cell_ends_the_get(void **state)
{
    (void)state;
    run_pair(false, get_with_a_spoilt_cell, look_on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_that_the_peer_may_not_write_is_read),
        cmocka_unit_test(what_is_not_there_fails_for_both),
        cmocka_unit_test(a_peer_that_dies_at_a_piece_is_not_waited_for),
        cmocka_unit_test(who_disconnects_waits_for_the_peers_piece),
        cmocka_unit_test(malformed_requests_are_refused),
        cmocka_unit_test(a_spoilt_cell_ends_the_get),
    };

    return cmocka_run_group_tests_name("assist_trouble", tests, NULL, NULL);
}
