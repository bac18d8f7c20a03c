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

enum {
    SIDES = 8,
    FEW = 2,
    ROUNDS = 40,
    STEPS = 10000,
    LENGTH = 700,
    LARGE = 200000, /* more pieces than a line posts in a turn */
    PATIENCE = 120  /* seconds */
};

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

static regx_verbs_t *of(unsigned which)
{
    return (regx_verbs_t *)parties[which].transport;
}

/* Nobody becomes impatient, however long this takes. */
static void progress(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        of(i)->full_since = 0;
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
            if (i != j) {
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
    alarm(PATIENCE);
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

/* One after the other: the one that was used least recently makes room. */
static void the_least_recently_used_is_closed(void **state)
{
    (void)state;
    open_all(FEW + 1);
    for (unsigned to = 1; to < SIDES; to++) {
        while (!send_next(0, 1)) { /* this one is used all the time */
            progress();
        }
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

/* Frames, puts that carry how many frames came before, and gets, in any order: every put and get is
 * done, every notice comes behind what was sent before. */
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
        default:
            of((drawn >> 24) % SIDES)->full_since = 0;
            regx_transport_ops.progress(parties[(drawn >> 24) % SIDES].transport);
        }
    }
    await_all();
    for (unsigned i = 0; i < SIDES; i++) {
        while (parties[i].got < asked[i]) {
            progress();
        }
        for (unsigned j = 0; j < SIDES; j++) {
            while (parties[j].written[i] < puts[i][j]) {
                progress();
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

/* Those that it is connected to compute, so that nobody closes the other end. */
static void who_has_waited_long_goes_beyond_the_bound(void **state)
{
    (void)state;
    open_all(FEW);
    for (unsigned to = 1; to <= FEW; to++) {
        while (!send_next(0, to)) {
            progress();
        }
        await_all();
        parties[to].sleeps = true;
    }
    for (int i = 0; i < 100; i++) {
        assert_false(send_next(0, FEW + 1));
        progress();
    }
    assert_int_equal(beyond(0), 0);
    of(0)->full_since = regx_now_ns() - REGX_BOUND_PATIENCE_NS;
    assert_false(send_next(0, FEW + 1)); /* now it asks */
    while (!send_next(0, FEW + 1)) {
        progress();
    }
    await_all();
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
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    (void)state;
    open_all(FEW);
    for (unsigned to = 1; to <= FEW; to++) {
        while (!send_next(0, to)) {
            progress();
        }
        await_all();
    }
    parties[1].sleeps = true;
    assert_int_equal(ibv_modify_qp(regx_ep_find(of(1), id_of(0))->qp, &attr, IBV_QP_STATE), 0);
    while (!send_next(0, FEW + 1)) {
        progress();
    }
    while (parties[0].broken == 0) {
        progress();
    }
    await_all();
    assert_int_equal(parties[0].broken, 1);
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
