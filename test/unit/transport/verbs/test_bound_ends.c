/* SPDX-License-Identifier: BSD-3-Clause
 *
 * More peers than may be connected at once (bound.h), of which some are gone, leave, or fail while
 * their connection is closed for room: that is told, and their places are given to others.
 */
#include "parties.h"

/* A peer leaves 0, which hears it. */
static void leave_first(unsigned which)
{
    assert_true(party_send(which, 0));
    parties_await();
    party_leave(which, 0);
    while (!party_ep(0, which)->remote_closed) {
        parties_progress();
    }
}

/* Waits until a side was told of a peer, and all that was under way with it has ended. */
static void await_broken(unsigned which)
{
    while (parties[which].broken == 0 || !regx_list_empty(&party_verbs(which)->broken)) {
        parties_progress();
    }
    assert_int_equal(parties[which].broken, 1);
}

static void assert_unreachable(unsigned from, unsigned to)
{
    uint64_t stream = 0;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(regx_transport_ops.send(parties[from].conns[to], 1, NULL, 0, side_pack,
                                                 &stream, LENGTH),
                         REGX_UNREACHABLE);
    }
}

/* What is closed for room still tells of a peer that is gone. */
static void a_peer_that_is_gone_when_it_should_close_is_told(void **state)
{
    (void)state;
    parties_take_places();
    parties[1].sleeps = true;
    side_fail(party_ep(1, 0)->qp);
    while (!party_send(0, FEW + 1)) {
        parties_progress();
    }
    await_broken(0);
    parties_await();
    assert_unreachable(0, 1); /* it is not asked again */
    parties_close();
}

/* It had heard of the end before, so that nothing that we sent fails. */
static void a_peer_that_dies_instead_of_closing_is_told_and_gives_its_place_back(void **state)
{
    (void)state;
    parties_take_places();
    parties_close_one_that_computes();
    side_fail(party_ep(1, 0)->qp);
    party_ask(0);
    await_broken(0);
    while (!party_send(0, FEW + 1)) {
        parties_progress();
    }
    parties_await();
    assert_unreachable(0, 1);
    assert_int_equal(party_verbs(0)->retiring, 0);
    assert_int_equal(party_beyond(0), 0);
    parties_close();
}

/* What fails is replaced and keeps its place, which another gets later. */
static void a_queue_pair_that_fails_is_replaced_in_its_place(void **state)
{
    (void)state;
    parties_take_places();
    for (unsigned to = 1; to <= FEW; to++) {
        side_fail(party_ep(to, 0)->qp);
        assert_true(party_send(0, to));
        parties_await();
        while (!party_send(to, 0)) {
            parties_progress();
        }
        parties_await();
    }
    assert_int_equal(parties_total(REGX_COUNTER_restarts), 2 * FEW);
    assert_int_equal(party_verbs(0)->live, FEW);
    for (unsigned to = FEW + 1; to < SIDES; to++) {
        while (!party_send(0, to)) {
            parties_progress();
        }
        parties_await();
    }
    parties_assert_unbroken();
    parties_assert_bounded(FEW);
    parties_close();
}

/* It is not replaced. 0 has closed it and not heard all that 1 may have sent before, and is
 * told. */
static void a_queue_pair_that_fails_while_it_is_closed_is_told_of(void **state)
{
    (void)state;
    parties_take_places();
    parties_close_one_that_computes();
    side_fail(party_ep(1, 0)->qp);
    side_fail(party_ep(0, 1)->qp);
    parties[1].sleeps = false;
    await_broken(0);
    assert_unreachable(0, 1);
    assert_int_equal(parties_total(REGX_COUNTER_restarts), 0);
    while (!party_send(0, FEW + 1)) {
        parties_progress();
    }
    parties_await();
    parties_close();
}

/* Who waits for the end of a closed connection, to make another, asks whether the peer is there. */
static void who_was_asked_for_a_sign_of_life_can_be_connected_again(void **state)
{
    (void)state;
    parties_take_places();
    parties_close_one_that_computes();
    assert_false(party_send(0, 1));
    const uint64_t posted = party_ep(0, 1)->posted;
    party_ask(0);
    assert_int_equal(party_ep(0, 1)->posted, posted + 1);
    parties[1].sleeps = false;
    while (!party_send(0, 1)) {
        parties_progress();
    }
    parties_await();
    parties_assert_unbroken();
    parties_assert_bounded(FEW);
    parties_close();
}

static void who_leaves_what_is_being_closed_is_not_told_that_it_broke(void **state)
{
    (void)state;
    parties_take_places();
    parties[1].sleeps = true;
    side_fail(party_ep(1, 0)->qp);
    assert_false(party_send(0, FEW + 1));
    assert_int_equal(party_verbs(0)->retiring, 1);
    party_leave(0, 1);
    while (party_ep(0, 1) != NULL) {
        parties_progress();
    }
    parties_assert_unbroken();
    assert_int_equal(party_verbs(0)->retiring, 0);
    parties_close();
}

/* A request that comes late. */
static void a_broken_connection_that_is_asked_for_takes_no_place(void **state)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    parties_take_places();
    side_fail(party_ep(1, 0)->qp);
    assert_true(party_send(0, 1));
    await_broken(0);
    const regx_ep_t *ep = party_ep(0, 1);
    const regx_cm_message_t message = {.kind = REGX_CM_RENEW,
                                       .qpn = 1,
                                       .epoch = ep->peer_epoch,
                                       .born = ep->peer_epoch,
                                       .known = ep->epoch,
                                       .from = party_id(1),
                                       .to = party_id(0),
                                       .address = party_verbs(1)->address};
    const regx_cm_source_t source = {.qpn = message.address.qpn};
    assert_null(ep->qp);
    regx_cm_message_pack(&message, bytes);
    regx_cm_receive(party_verbs(0), bytes, sizeof(bytes), &source);
    parties_progress_often();
    assert_null(party_ep(0, 1));
    assert_int_equal(party_verbs(0)->retiring, 0);
    assert_int_equal(party_verbs(0)->live, FEW - 1);
    parties_close();
}

/* They have said goodbye, and 0 has not. */
static void peers_that_have_left_give_their_places_back(void **state)
{
    (void)state;
    parties_take_places();
    for (unsigned which = 1; which <= FEW; which++) {
        leave_first(which);
    }
    for (unsigned to = FEW + 1; to <= 2 * FEW; to++) {
        while (!party_send(0, to)) {
            parties_progress();
        }
        parties_await();
    }
    for (unsigned which = 1; which <= FEW; which++) {
        while (party_ep(0, which) != NULL || party_ep(which, 0) != NULL) {
            parties_progress();
        }
    }
    parties_assert_unbroken();
    parties_assert_bounded(FEW);
    parties_close();
}

/* As when their processes have ended. */
static void peers_that_have_left_and_gone_give_their_places_back_without_a_word(void **state)
{
    (void)state;
    parties_take_places();
    leave_first(1);
    side_fail(party_ep(1, 0)->qp);
    parties[1].sleeps = true;
    assert_true(party_send(0, FEW)); /* so that the other one is closed */
    parties_await();
    while (!party_send(0, FEW + 1)) {
        parties_progress();
    }
    parties_await();
    assert_null(party_ep(0, 1));
    parties_assert_unbroken();
    parties_assert_bounded(FEW);
    parties_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_peer_that_is_gone_when_it_should_close_is_told, parties_reset),
        cmocka_unit_test_setup(a_peer_that_dies_instead_of_closing_is_told_and_gives_its_place_back,
                               parties_reset),
        cmocka_unit_test_setup(a_peer_that_dies_instead_of_closing_is_told_and_gives_its_place_back,
                               parties_reset_with_restarts),
        cmocka_unit_test_setup(a_queue_pair_that_fails_is_replaced_in_its_place,
                               parties_reset_with_restarts),
        cmocka_unit_test_setup(a_queue_pair_that_fails_while_it_is_closed_is_told_of,
                               parties_reset_with_restarts),
        cmocka_unit_test_setup(who_was_asked_for_a_sign_of_life_can_be_connected_again,
                               parties_reset),
        cmocka_unit_test_setup(who_leaves_what_is_being_closed_is_not_told_that_it_broke,
                               parties_reset),
        cmocka_unit_test_setup(a_broken_connection_that_is_asked_for_takes_no_place, parties_reset),
        cmocka_unit_test_setup(peers_that_have_left_give_their_places_back, parties_reset),
        cmocka_unit_test_setup(peers_that_have_left_and_gone_give_their_places_back_without_a_word,
                               parties_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
