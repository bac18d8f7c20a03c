/* SPDX-License-Identifier: BSD-3-Clause
 *
 * More peers than may be connected at once (bound.h), on devices in memory. Every side talks to
 * every other; each counts by sender what arrived, which must be in order and whole.
 */
#include <stdlib.h>
#include <unistd.h>

#include "fake_device.h"
#include "sides.h"

#include "transport/verbs/bound.h"
#include "transport/verbs/keepalive.h"

enum {
    SIDES = 8,
    FEW = 2,
    ROUNDS = 40,
    STEPS = 10000,
    LENGTH = 700,
    LARGE = 200000 /* more pieces than a line posts in a turn */
};

#define HOUR_NS INT64_C(3600000000000)

typedef struct party {
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conns[SIDES];
    unsigned sent[SIDES], heard[SIDES]; /* frames to and from each */
    unsigned written[SIDES];            /* puts, likewise */
    unsigned got;
    unsigned broken;
    bool sleeps; /* outside the library */
} party_t;

static party_t parties[SIDES];
static regx_verbs_settings_t settings = REGX_VERBS_DEFAULTS;
static uint8_t room[LARGE];

static uint64_t id_of(unsigned which)
{
    return 100 + which;
}

static uint64_t stream_of(unsigned from, unsigned to, unsigned number)
{
    return (uint64_t)number << 16 | from << 8 | to;
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    party_t *party = context;
    const unsigned from = (unsigned)(sender - id_of(0)), to = (unsigned)(party - parties);

    if (tag == 2) { /* of a put: everything sent before has arrived */
        assert_int_equal(length, sizeof(unsigned));
        assert_int_equal(*(const unsigned *)data, party->heard[from]);
        party->written[from]++;
        return;
    }
    assert_int_equal(length, LENGTH);
    assert_true(unit_is_filled(data, length, stream_of(from, to, party->heard[from])));
    party->heard[from]++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    (void)peer;
    (void)what;
    ((party_t *)context)->broken++;
}

static regx_verbs_t *of(unsigned which)
{
    return (regx_verbs_t *)parties[which].transport;
}

/* The endpoint of one side to another; or NULL. */
static regx_ep_t *between(unsigned from, unsigned to)
{
    return regx_ep_find(of(from), id_of(to));
}

/* Nobody becomes impatient, however long the test takes. */
static void open_all(uint32_t connections)
{
    uint8_t address[REGX_ADDRESS_MAX];
    char error[256];

    settings.connections = connections;
    settings.srq_depth = 64;
    memset(parties, 0, sizeof(parties));
    for (unsigned i = 0; i < SIDES; i++) {
        const regx_transport_config_t config = {
            .self = id_of(i),
            .pool_size = POOL,
            .pool_least = POOL,
            .counters = &parties[i].counters,
            .verbs = &settings,
            .events = {.context = &parties[i], .deliver = deliver, .broken = broken}};

        assert_int_equal(
            regx_transport_ops.open(&config, error, sizeof(error), &parties[i].transport), REGX_OK);
        of(i)->patience_ns = INT64_MAX;
    }
    for (unsigned i = 0; i < SIDES * SIDES; i++) {
        party_t *from = &parties[i / SIDES];
        const size_t length = regx_transport_ops.address(parties[i % SIDES].transport, address);

        if (i / SIDES != i % SIDES) {
            assert_int_equal(regx_transport_ops.connect(from->transport, id_of(i % SIDES), false,
                                                        address, length, &from->conns[i % SIDES]),
                             REGX_OK);
        }
    }
}

static void progress(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        if (!parties[i].sleeps) {
            regx_transport_ops.progress(parties[i].transport);
        }
    }
}

static uint64_t total(unsigned counter)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < SIDES; i++) {
        sum += parties[i].counters.transport[counter];
    }
    return sum;
}

static uint64_t beyond(unsigned which)
{
    return regx_tally_find(parties[which].counters.fallbacks,
                           "verbs: more connections than verbs_connections")
        ->count;
}

static void close_all(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        assert_int_equal(parties[i].counters.malformed, 0);
        regx_eps_break(of(i), "test", "the end");
    }
    for (unsigned i = 0; i < SIDES; i++) {
        for (unsigned j = 0; j < SIDES; j++) {
            if (parties[i].conns[j] != NULL) {
                regx_transport_ops.disconnect(parties[i].conns[j]);
            }
        }
        regx_transport_ops.close(parties[i].transport);
    }
}

/* The next frame. false: not now. */
static bool send_next(unsigned from, unsigned to)
{
    party_t *party = &parties[from];
    uint64_t stream = stream_of(from, to, party->sent[to]);
    const regx_status_t status =
        regx_transport_ops.send(party->conns[to], 1, NULL, 0, side_pack, &stream, LENGTH);

    assert_true(status == REGX_OK || status == REGX_AGAIN);
    party->sent[to] += status == REGX_OK;
    return status == REGX_OK;
}

static bool all_heard(void)
{
    for (unsigned i = 0; i < SIDES * SIDES; i++) {
        if (parties[i / SIDES].sent[i % SIDES] != parties[i % SIDES].heard[i / SIDES]) {
            return false;
        }
    }
    return true;
}

static void assert_unbroken(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        assert_int_equal(parties[i].broken, 0);
    }
}

/* Each to each, at once. */
static void talk(unsigned rounds)
{
    for (bool more = true; more; progress()) {
        more = false;
        for (unsigned i = 0; i < SIDES * SIDES; i++) {
            const unsigned from = i / SIDES, to = i % SIDES;

            if (from != to && parties[from].sent[to] < rounds && !parties[from].sleeps) {
                send_next(from, to);
                more = true;
            }
        }
    }
}

static void await_all(void)
{
    while (!all_heard()) {
        progress();
    }
}

static void assert_bounded(uint32_t connections)
{
    for (unsigned i = 0; i < SIDES; i++) {
        assert_true(parties[i].counters.transport[REGX_COUNTER_connections_high] <= connections);
        assert_int_equal(beyond(i), 0);
    }
}

static int reset(void **state)
{
    (void)state;
    alarm(UNIT_PATIENCE);
    fake_reset();
    return 0;
}

static void all_are_connected_without_a_bound(void **state)
{
    (void)state;
    open_all(0);
    talk(ROUNDS);
    await_all();
    for (unsigned i = 0; i < SIDES; i++) {
        assert_int_equal(of(i)->live, SIDES - 1);
    }
    assert_int_equal(total(REGX_COUNTER_connections_closed), 0);
    close_all();
}

static void all_talk_to_all_over_few_connections(void **state)
{
    (void)state;
    for (uint32_t connections = FEW; connections < SIDES; connections += 2) {
        open_all(connections);
        talk(ROUNDS);
        await_all();
        assert_unbroken();
        assert_true(total(REGX_COUNTER_connections_closed) > 0);
        assert_bounded(connections);
        close_all();
    }
}

/* Asks whoever may be asked. */
static void ask_for_signs_of_life(unsigned which)
{
    of(which)->idle_ns = of(which)->look_next = 0;
    regx_keepalive_progress(of(which));
    of(which)->idle_ns = INT64_MAX;
}

/* One after the other: the one that was used least recently makes room. */
static void the_least_recently_used_is_closed(void **state)
{
    (void)state;
    open_all(FEW + 1);
    for (unsigned to = 1; to < SIDES; to++) {
        while (!send_next(0, 1)) { /* this one is used all the time */
            progress();
        }
        ask_for_signs_of_life(0); /* which is no use */
        while (!send_next(0, to)) {
            progress();
        }
        await_all();
    }
    assert_int_equal(parties[0].counters.transport[REGX_COUNTER_connections_closed],
                     SIDES - 1 - (FEW + 1));
    assert_int_equal(of(0)->live, FEW + 1);
    assert_non_null(regx_ep_find(of(0), id_of(1)));
    assert_non_null(regx_ep_find(of(0), id_of(SIDES - 2)));
    assert_non_null(regx_ep_find(of(0), id_of(SIDES - 1)));
    assert_unbroken();
    close_all();
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
        const regx_ep_t *ep = between(from, to);

        if (ep != NULL && ep->conn != NULL && ep->state == REGX_EP_READY && ep->used == 0) {
            send_next(from, to);
        }
    }
    progress();
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
    open_all(FEW);
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
            send_next(from, to);
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
            ask_for_signs_of_life(from);
            break;
        default:
            regx_transport_ops.progress(parties[(drawn >> 24) % SIDES].transport);
        }
    }
    while (!all_heard()) {
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
    assert_unbroken();
    assert_true(total(REGX_COUNTER_connections_closed) > 0);
    assert_bounded(FEW);
    for (unsigned i = 0; i < SIDES; i++) {
        regx_transport_ops.dereg(parties[i].transport, &source[i]);
        regx_transport_ops.dereg(parties[i].transport, &target[i]);
    }
    close_all();
}

/* Side 0 gets all its places: connections to 1 and following, 1 used least recently. */
static void take_all_places(void)
{
    open_all(FEW);
    for (unsigned to = 1; to <= FEW; to++) {
        while (!send_next(0, to)) {
            progress();
        }
        await_all();
    }
}

static void progress_often(void)
{
    for (int i = 0; i < 100; i++) {
        progress();
    }
}

static void assert_waits(unsigned from, unsigned to)
{
    for (int i = 0; i < 100; i++) {
        assert_false(send_next(from, to));
        progress();
    }
}

/* 0 wants another connection, closes that to 1 and says so. 1 computes and does not answer. */
static void close_to_one_that_computes(void)
{
    parties[1].sleeps = true;
    while (between(0, 1)->local != REGX_EP_CLOSED || between(0, 1)->posted != between(0, 1)->done) {
        assert_false(send_next(0, FEW + 1));
        progress();
    }
}

/* The queue pair of one side to another fails, and with it the other's when that uses it. */
static void fail_queue_pair(unsigned which, unsigned to)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    assert_int_equal(ibv_modify_qp(between(which, to)->qp, &attr, IBV_QP_STATE), 0);
}

static void leave(unsigned which, unsigned to)
{
    regx_transport_ops.disconnect(parties[which].conns[to]);
    parties[which].conns[to] = NULL;
}

/* A peer leaves 0, which hears it. */
static void leave_first(unsigned which)
{
    assert_true(send_next(which, 0));
    await_all();
    leave(which, 0);
    while (!between(0, which)->remote_closed) {
        progress();
    }
}

/* Waits until a side was told of a peer, and all that was under way with it has ended. */
static void await_broken(unsigned which)
{
    while (parties[which].broken == 0 || !regx_list_empty(&of(which)->broken)) {
        progress();
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

/* Those that it is connected to compute, so that nobody closes the other end. */
static void who_has_waited_long_goes_beyond_the_bound(void **state)
{
    (void)state;
    take_all_places();
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = true;
    }
    assert_waits(0, FEW + 1);
    assert_int_equal(beyond(0), 0);
    of(0)->patience_ns = HOUR_NS;
    of(0)->full_since = regx_now_ns() - HOUR_NS;
    assert_false(send_next(0, FEW + 1)); /* now it asks */
    assert_waits(0, FEW + 2);            /* one hour for each */
    while (!send_next(0, FEW + 1)) {
        progress();
    }
    await_all();
    assert_waits(0, FEW + 2);
    assert_int_equal(beyond(0), 1);
    assert_int_equal(of(0)->live, FEW + 1);
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = false;
    }
    while (of(0)->retiring > 0) {
        progress();
    }
    assert_true(of(0)->live <= FEW);
    assert_unbroken();
    close_all();
}

/* What is closed for room still tells of a peer that is gone. */
static void a_peer_that_is_gone_when_it_should_close_is_told(void **state)
{
    (void)state;
    take_all_places();
    parties[1].sleeps = true;
    fail_queue_pair(1, 0);
    while (!send_next(0, FEW + 1)) {
        progress();
    }
    await_broken(0);
    await_all();
    assert_unreachable(0, 1); /* it is not asked again */
    close_all();
}

/* It had heard of the end before, so that nothing that we sent fails. */
static void a_peer_that_dies_instead_of_closing_is_told_and_gives_its_place_back(void **state)
{
    (void)state;
    take_all_places();
    close_to_one_that_computes();
    fail_queue_pair(1, 0);
    ask_for_signs_of_life(0);
    await_broken(0);
    while (!send_next(0, FEW + 1)) {
        progress();
    }
    await_all();
    assert_unreachable(0, 1);
    assert_int_equal(of(0)->retiring, 0);
    assert_int_equal(beyond(0), 0);
    close_all();
}

/* Who waits for the end of a closed connection, to make another, asks whether the peer is there. */
static void who_was_asked_for_a_sign_of_life_can_be_connected_again(void **state)
{
    (void)state;
    take_all_places();
    close_to_one_that_computes();
    assert_false(send_next(0, 1));
    const uint64_t posted = between(0, 1)->posted;
    ask_for_signs_of_life(0);
    assert_int_equal(between(0, 1)->posted, posted + 1);
    parties[1].sleeps = false;
    while (!send_next(0, 1)) {
        progress();
    }
    await_all();
    assert_unbroken();
    assert_bounded(FEW);
    close_all();
}

static void who_leaves_what_is_being_closed_is_not_told_that_it_broke(void **state)
{
    (void)state;
    take_all_places();
    parties[1].sleeps = true;
    fail_queue_pair(1, 0);
    assert_false(send_next(0, FEW + 1));
    assert_int_equal(of(0)->retiring, 1);
    leave(0, 1);
    while (between(0, 1) != NULL) {
        progress();
    }
    assert_unbroken();
    assert_int_equal(of(0)->retiring, 0);
    close_all();
}

/* A request that comes late. */
static void a_broken_connection_that_is_asked_for_takes_no_place(void **state)
{
    uint8_t bytes[REGX_CM_MESSAGE_SIZE];

    (void)state;
    take_all_places();
    fail_queue_pair(1, 0);
    assert_true(send_next(0, 1));
    await_broken(0);
    const regx_ep_t *ep = between(0, 1);
    const regx_cm_message_t message = {.kind = REGX_CM_RENEW,
                                       .qpn = 1,
                                       .epoch = ep->peer_epoch,
                                       .known = ep->epoch,
                                       .from = id_of(1),
                                       .to = id_of(0),
                                       .address = of(1)->address};
    const regx_cm_source_t source = {.qpn = message.address.qpn};
    assert_null(ep->qp);
    regx_cm_message_pack(&message, bytes);
    regx_cm_receive(of(0), bytes, sizeof(bytes), &source);
    progress_often();
    assert_null(between(0, 1));
    assert_int_equal(of(0)->retiring, 0);
    assert_int_equal(of(0)->live, FEW - 1);
    close_all();
}

/* They have said goodbye, and 0 has not. */
static void peers_that_have_left_give_their_places_back(void **state)
{
    (void)state;
    take_all_places();
    for (unsigned which = 1; which <= FEW; which++) {
        leave_first(which);
    }
    for (unsigned to = FEW + 1; to <= 2 * FEW; to++) {
        while (!send_next(0, to)) {
            progress();
        }
        await_all();
    }
    for (unsigned which = 1; which <= FEW; which++) {
        while (between(0, which) != NULL || between(which, 0) != NULL) {
            progress();
        }
    }
    assert_unbroken();
    assert_bounded(FEW);
    close_all();
}

/* As when their processes have ended. */
static void peers_that_have_left_and_gone_give_their_places_back_without_a_word(void **state)
{
    (void)state;
    take_all_places();
    leave_first(1);
    fail_queue_pair(1, 0);
    parties[1].sleeps = true;
    assert_true(send_next(0, FEW)); /* so that the other one is closed */
    await_all();
    while (!send_next(0, FEW + 1)) {
        progress();
    }
    await_all();
    assert_null(between(0, 1));
    assert_unbroken();
    assert_bounded(FEW);
    close_all();
}

/* All places are taken by peers that compute, and another one asks, once. It stays however long the
 * processor is somewhere else. */
static struct regx_cm_waiting *let_one_wait(void)
{
    struct regx_cm_waiting *waiting;

    take_all_places();
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = true;
    }
    while (of(0)->cm.waiting_count == 0) {
        send_next(FEW + 1, 0);
        progress();
    }
    parties[FEW + 1].sleeps = true;
    waiting = &of(0)->cm.waiting[of(0)->cm.waiting_first];
    waiting->heard_at = regx_now_ns() + HOUR_NS;
    progress_often();
    assert_int_equal(of(0)->cm.waiting_count, 1);
    return waiting;
}

static void a_request_waits_for_a_connection_that_breaks(void **state)
{
    (void)state;
    let_one_wait();
    fail_queue_pair(0, FEW);
    while (between(0, FEW + 1) == NULL) {
        progress();
    }
    parties[FEW + 1].sleeps = false;
    while (!send_next(FEW + 1, 0)) {
        progress();
    }
    await_all();
    assert_bounded(FEW);
    close_all();
}

/* Its sender may have gone. */
static void a_request_that_was_not_repeated_is_not_accepted_late(void **state)
{
    (void)state;
    let_one_wait()->heard_at = regx_now_ns() - REGX_BOUND_KEEP_NS;
    for (unsigned to = 1; to <= FEW; to++) {
        parties[to].sleeps = false;
    }
    while (of(0)->live == FEW) {
        progress();
    }
    progress_often();
    assert_null(between(0, FEW + 1));
    assert_int_equal(of(0)->cm.waiting_count, 0);
    parties[FEW + 1].sleeps = false;
    while (!send_next(FEW + 1, 0)) {
        progress();
    }
    await_all();
    assert_unbroken();
    assert_bounded(FEW);
    close_all();
}

/* 1 has more for 0 than that has receive buffers for, and closes its transport when it hears that 0
 * has closed the connection. verbs_close would wait for 0, which is in this thread. */
static void what_was_accepted_arrives_at_a_peer_that_closed_for_room(void **state)
{
    (void)state;
    take_all_places();
    close_to_one_that_computes();
    parties[0].sleeps = true;
    while (fake_srq_length(of(0)->srq) > 0) {
        send_next(FEW, 0);
        progress();
    }
    for (int i = 0; i < 10; i++) {
        assert_true(send_next(1, 0));
    }
    of(1)->closing = true;
    regx_cm_leave(between(1, 0));
    parties[1].sleeps = false;
    progress_often();
    assert_true(between(1, 0)->remote_closed);
    parties[0].sleeps = false;
    await_all();
    while (between(1, 0) != NULL || between(0, 1) != NULL) {
        progress();
    }
    assert_unbroken();
    of(1)->closing = false;
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_are_connected_without_a_bound, reset),
        cmocka_unit_test_setup(all_talk_to_all_over_few_connections, reset),
        cmocka_unit_test_setup(the_least_recently_used_is_closed, reset),
        cmocka_unit_test_setup(puts_and_gets_go_on_over_few_connections, reset),
        cmocka_unit_test_setup(who_has_waited_long_goes_beyond_the_bound, reset),
        cmocka_unit_test_setup(a_peer_that_is_gone_when_it_should_close_is_told, reset),
        cmocka_unit_test_setup(a_peer_that_dies_instead_of_closing_is_told_and_gives_its_place_back,
                               reset),
        cmocka_unit_test_setup(who_was_asked_for_a_sign_of_life_can_be_connected_again, reset),
        cmocka_unit_test_setup(who_leaves_what_is_being_closed_is_not_told_that_it_broke, reset),
        cmocka_unit_test_setup(a_broken_connection_that_is_asked_for_takes_no_place, reset),
        cmocka_unit_test_setup(peers_that_have_left_give_their_places_back, reset),
        cmocka_unit_test_setup(peers_that_have_left_and_gone_give_their_places_back_without_a_word,
                               reset),
        cmocka_unit_test_setup(a_request_waits_for_a_connection_that_breaks, reset),
        cmocka_unit_test_setup(a_request_that_was_not_repeated_is_not_accepted_late, reset),
        cmocka_unit_test_setup(what_was_accepted_arrives_at_a_peer_that_closed_for_room, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
