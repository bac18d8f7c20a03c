/* SPDX-License-Identifier: BSD-3-Clause
 *
 * More peers than may be connected at once (bound.h): all is sent and done over few connections,
 * each of which makes room for another.
 */
#include "parties.h"

#include <stdlib.h>

#include "transport/verbs/bound.h"

enum {
    ROUNDS = 40,
    STEPS = 10000,
    LARGE = 200000 /* more segments than a line posts in a turn */
};

static uint8_t room[LARGE];

static void all_are_connected_without_a_bound(void **state)
{
    (void)state;
    parties_open(0);
    parties_talk(ROUNDS);
    parties_await();
    for (unsigned i = 0; i < SIDES; i++) {
        assert_int_equal(party_verbs(i)->live, SIDES - 1);
    }
    assert_int_equal(parties_total(REGX_COUNTER_connections_closed), 0);
    parties_close();
}

static void all_talk_to_all_over_few_connections(void **state)
{
    (void)state;
    for (uint32_t connections = FEW; connections < SIDES; connections += 2) {
        parties_open(connections);
        parties_talk(ROUNDS);
        parties_await();
        parties_assert_unbroken();
        assert_true(parties_total(REGX_COUNTER_connections_closed) > 0);
        parties_assert_bounded(connections);
        parties_close();
    }
}

/* One after the other: the one that was used least recently makes room. */
static void the_least_recently_used_is_closed(void **state)
{
    (void)state;
    parties_open(FEW + 1);
    for (unsigned to = 1; to < SIDES; to++) {
        while (!party_send(0, 1)) { /* this one is used all the time */
            parties_progress();
        }
        party_ask(0); /* which is no use */
        while (!party_send(0, to)) {
            parties_progress();
        }
        parties_await();
    }
    assert_int_equal(parties[0].counters.transport[REGX_COUNTER_connections_closed],
                     SIDES - 1 - (FEW + 1));
    assert_int_equal(party_verbs(0)->live, FEW + 1);
    assert_non_null(regx_ep_find(party_verbs(0), party_id(1)));
    assert_non_null(regx_ep_find(party_verbs(0), party_id(SIDES - 2)));
    assert_non_null(regx_ep_find(party_verbs(0), party_id(SIDES - 1)));
    parties_assert_unbroken();
    parties_close();
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    assert_int_equal(status, REGX_OK);
    ((party_t *)put->context)->got++;
    free(put);
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    assert_int_equal(status, REGX_OK);
    ((party_t *)get->context)->got++;
    free(get);
}

static bool put_next(unsigned from, unsigned to)
{
    party_t *party = &parties[from];
    regx_put_t *put = calloc(1, sizeof(*put));

    *put = (regx_put_t){.local = room,
                        .length = LARGE,
                        .target = REGX_TARGET_POOL,
                        .tag = 2,
                        .notice_length = sizeof(unsigned),
                        .done = put_done,
                        .context = party};
    memcpy(put->notice, &party->sent[to], sizeof(unsigned));
    const regx_status_t status = regx_transport_ops.put(party->conns[to], put);
    assert_true(status == REGX_PENDING || status == REGX_AGAIN);
    if (status == REGX_AGAIN) {
        free(put);
    }
    return status == REGX_PENDING;
}

static bool get_next(unsigned from, unsigned to, const regx_mr_t *own, const regx_mr_t *theirs)
{
    party_t *party = &parties[from];
    regx_get_t *get = calloc(1, sizeof(*get));

    *get = (regx_get_t){.local = own->base,
                        .length = LARGE,
                        .region = own,
                        .key = theirs->key,
                        .done = get_done,
                        .context = party};
    const regx_status_t status = regx_transport_ops.get(party->conns[to], get);
    assert_true(status == REGX_PENDING || status == REGX_AGAIN);
    if (status == REGX_AGAIN) {
        free(get);
    }
    return status == REGX_PENDING;
}

/* Who had a connection made, and could not use it then, does so once it can, as callers do. */
static void progress_and_retry(void)
{
    for (unsigned i = 0; i < SIDES * SIDES; i++) {
        const unsigned from = i / SIDES, to = i % SIDES;
        const regx_ep_t *ep = party_ep(from, to);

        if (ep != NULL && ep->conn != NULL && ep->state == REGX_EP_READY && ep->used == 0) {
            party_send(from, to);
        }
    }
    parties_progress();
}

/* Frames, puts that carry how many frames came before, and gets, in any order, with questions for a
 * sign of life between them: every put and get is done, every notice comes behind what was sent
 * before. */
static void puts_and_gets_go_on_over_few_connections(void **state)
{
    static uint8_t sources[SIDES][LARGE], targets[SIDES][LARGE];
    regx_mr_t source[SIDES], target[SIDES];
    unsigned asked[SIDES] = {0}, puts[SIDES][SIDES] = {{0}};
    uint64_t random = 7;

    (void)state;
    parties_open(FEW);
    for (unsigned i = 0; i < SIDES; i++) {
        unit_fill(sources[i], LARGE, i, 0);
        memset(targets[i], 0, LARGE);
        assert_int_equal(regx_transport_ops.reg(parties[i].transport, sources[i], LARGE,
                                                REGX_ACCESS_REMOTE_READ, &source[i]),
                         REGX_OK);
        assert_int_equal(regx_transport_ops.reg(parties[i].transport, targets[i], LARGE,
                                                REGX_ACCESS_LOCAL_WRITE, &target[i]),
                         REGX_OK);
    }
    for (unsigned step = 0; step < STEPS; step++) {
        const uint64_t drawn = chance_next(&random);
        const unsigned from = drawn % SIDES, to = (from + 1 + (drawn >> 8) % (SIDES - 1)) % SIDES;

        switch (drawn >> 16 & 7) {
        case 0:
        case 1:
            party_send(from, to);
            break;
        case 2:
            if (put_next(from, to)) {
                asked[from]++;
                puts[from][to]++;
            }
            break;
        case 3:
            /* All read the same, so that whatever is there is right. */
            asked[from] += get_next(from, to, &target[from], &source[to]);
            break;
        case 4:
            party_ask(from);
            break;
        default:
            regx_transport_ops.progress(parties[(drawn >> 24) % SIDES].transport);
        }
    }
    while (!parties_have_heard()) {
        progress_and_retry();
    }
    for (unsigned i = 0; i < SIDES; i++) {
        while (parties[i].got < asked[i]) {
            progress_and_retry();
        }
        for (unsigned j = 0; j < SIDES; j++) {
            while (parties[j].written[i] < puts[i][j]) {
                progress_and_retry();
            }
            assert_int_equal(parties[j].written[i], puts[i][j]);
        }
        assert_int_equal(parties[i].got, asked[i]);
        assert_true(asked[i] > 0);
    }
    parties_assert_unbroken();
    assert_true(parties_total(REGX_COUNTER_connections_closed) > 0);
    parties_assert_bounded(FEW);
    for (unsigned i = 0; i < SIDES; i++) {
        regx_transport_ops.dereg(parties[i].transport, &source[i]);
        regx_transport_ops.dereg(parties[i].transport, &target[i]);
    }
    parties_close();
}

static void assert_waits(unsigned from, unsigned to)
{
    for (int i = 0; i < 100; i++) {
        assert_false(party_send(from, to));
        parties_progress();
    }
}

/* Those that it is connected to compute, so that nobody closes the other end. */
static void who_has_waited_long_goes_beyond_the_bound(void **state)
{
    (void)state;
    parties_take_places();
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = true;
    }
    assert_waits(0, FEW + 1);
    assert_int_equal(party_beyond(0), 0);
    party_verbs(0)->patience_ns = HOUR_NS;
    party_verbs(0)->full_since = regx_now_ns() - HOUR_NS;
    assert_false(party_send(0, FEW + 1)); /* now it asks */
    assert_waits(0, FEW + 2);             /* one hour for each */
    while (!party_send(0, FEW + 1)) {
        parties_progress();
    }
    parties_await();
    assert_waits(0, FEW + 2);
    assert_int_equal(party_beyond(0), 1);
    assert_int_equal(party_verbs(0)->live, FEW + 1);
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = false;
    }
    while (party_verbs(0)->retiring > 0) {
        parties_progress();
    }
    assert_true(party_verbs(0)->live <= FEW);
    parties_assert_unbroken();
    parties_close();
}

/* All places are taken by peers that compute, and another one asks, once. It stays however long the
 * processor is somewhere else. */
static struct regx_cm_waiting *let_one_wait(void)
{
    struct regx_cm_waiting *waiting;

    parties_take_places();
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = true;
    }
    while (party_verbs(0)->cm.waiting_count == 0) {
        party_send(FEW + 1, 0);
        parties_progress();
    }
    parties[FEW + 1].sleeps = true;
    waiting = &party_verbs(0)->cm.waiting[party_verbs(0)->cm.waiting_first];
    waiting->requested_at = regx_now_ns() + HOUR_NS;
    parties_progress_often();
    assert_int_equal(party_verbs(0)->cm.waiting_count, 1);
    return waiting;
}

static void a_request_waits_for_a_connection_that_breaks(void **state)
{
    (void)state;
    let_one_wait();
    side_fail(party_ep(0, FEW)->qp);
    while (party_ep(0, FEW + 1) == NULL) {
        parties_progress();
    }
    parties[FEW + 1].sleeps = false;
    while (!party_send(FEW + 1, 0)) {
        parties_progress();
    }
    parties_await();
    parties_assert_bounded(FEW);
    parties_close();
}

/* Its sender may have gone. */
static void a_request_that_was_not_repeated_is_not_accepted_late(void **state)
{
    (void)state;
    let_one_wait()->requested_at = regx_now_ns() - REGX_BOUND_KEEP_NS;
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = false;
    }
    while (party_verbs(0)->live == FEW) {
        parties_progress();
    }
    parties_progress_often();
    assert_null(party_ep(0, FEW + 1));
    assert_int_equal(party_verbs(0)->cm.waiting_count, 0);
    parties[FEW + 1].sleeps = false;
    while (!party_send(FEW + 1, 0)) {
        parties_progress();
    }
    parties_await();
    parties_assert_unbroken();
    parties_assert_bounded(FEW);
    parties_close();
}

/* 1 has more for 0 than that has receive buffers for, and closes its transport when it hears that 0
 * has closed the connection. verbs_close would wait for 0, which is in this thread. */
static void what_was_accepted_arrives_at_a_peer_that_closed_for_room(void **state)
{
    (void)state;
    parties_take_places();
    parties_close_one_that_computes();
    parties[0].sleeps = true;
    while (fake_srq_length(party_verbs(0)->srq) > 0) {
        party_send(FEW, 0);
        parties_progress();
    }
    for (int i = 0; i < 10; i++) {
        assert_true(party_send(1, 0));
    }
    party_verbs(1)->closing = true;
    regx_cm_leave(party_ep(1, 0));
    parties[1].sleeps = false;
    parties_progress_often();
    assert_true(party_ep(1, 0)->remote != REGX_EP_REMOTE_OPEN);
    parties[0].sleeps = false;
    parties_await();
    while (party_ep(1, 0) != NULL || party_ep(0, 1) != NULL) {
        parties_progress();
    }
    parties_assert_unbroken();
    party_verbs(1)->closing = false;
    parties_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_are_connected_without_a_bound, parties_reset),
        cmocka_unit_test_setup(all_talk_to_all_over_few_connections, parties_reset),
        cmocka_unit_test_setup(all_talk_to_all_over_few_connections, parties_reset_with_restarts),
        cmocka_unit_test_setup(the_least_recently_used_is_closed, parties_reset),
        cmocka_unit_test_setup(puts_and_gets_go_on_over_few_connections, parties_reset),
        cmocka_unit_test_setup(who_has_waited_long_goes_beyond_the_bound, parties_reset),
        cmocka_unit_test_setup(a_request_waits_for_a_connection_that_breaks, parties_reset),
        cmocka_unit_test_setup(a_request_that_was_not_repeated_is_not_accepted_late, parties_reset),
        cmocka_unit_test_setup(what_was_accepted_arrives_at_a_peer_that_closed_for_room,
                               parties_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
