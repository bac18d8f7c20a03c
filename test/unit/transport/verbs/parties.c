/* SPDX-License-Identifier: BSD-3-Clause */
#include "parties.h"

#include <unistd.h>

#include "transport/verbs/keepalive.h"

party_t parties[SIDES];
static regx_verbs_settings_t settings = REGX_VERBS_DEFAULTS;

uint64_t party_id(unsigned which)
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
    const unsigned from = (unsigned)(sender - party_id(0)), to = (unsigned)(party - parties);

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

regx_verbs_t *party_verbs(unsigned which)
{
    return (regx_verbs_t *)parties[which].transport;
}

regx_ep_t *party_ep(unsigned from, unsigned to)
{
    return regx_ep_find(party_verbs(from), party_id(to));
}

void parties_open(uint32_t connections)
{
    uint8_t address[REGX_ADDRESS_MAX];
    char error[256];

    settings.connections = connections;
    settings.srq_depth = 64;
    memset(parties, 0, sizeof(parties));
    for (unsigned i = 0; i < SIDES; i++) {
        const regx_transport_config_t config = {
            .self = party_id(i),
            .pool_size = POOL,
            .pool_min = POOL,
            .counters = &parties[i].counters,
            .settings = &settings,
            .events = {.context = &parties[i], .deliver = deliver, .broken = broken}};

        assert_int_equal(
            regx_transport_ops.open(&config, error, sizeof(error), &parties[i].transport), REGX_OK);
        party_verbs(i)->patience_ns = INT64_MAX;
    }
    for (unsigned i = 0; i < SIDES * SIDES; i++) {
        party_t *from = &parties[i / SIDES];
        const size_t length = regx_transport_ops.address(parties[i % SIDES].transport, address);

        if (i / SIDES != i % SIDES) {
            assert_int_equal(regx_transport_ops.connect(from->transport, party_id(i % SIDES), false,
                                                        address, length, &from->conns[i % SIDES]),
                             REGX_OK);
        }
    }
}

void parties_progress(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        if (!parties[i].sleeps) {
            regx_transport_ops.progress(parties[i].transport);
        }
    }
}

uint64_t parties_total(unsigned counter)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < SIDES; i++) {
        sum += parties[i].counters.transport[counter];
    }
    return sum;
}

uint64_t party_beyond(unsigned which)
{
    return regx_tally_find(parties[which].counters.fallbacks,
                           "verbs: more connections than verbs_connections")
        ->count;
}

void parties_close(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        assert_int_equal(parties[i].counters.malformed, 0);
        regx_eps_break(party_verbs(i), "test", "the end");
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

bool party_send(unsigned from, unsigned to)
{
    party_t *party = &parties[from];
    uint64_t stream = stream_of(from, to, party->sent[to]);
    const regx_status_t status =
        regx_transport_ops.send(party->conns[to], 1, NULL, 0, side_pack, &stream, LENGTH);

    assert_true(status == REGX_OK || status == REGX_AGAIN);
    party->sent[to] += status == REGX_OK;
    return status == REGX_OK;
}

bool parties_have_heard(void)
{
    for (unsigned i = 0; i < SIDES * SIDES; i++) {
        if (parties[i / SIDES].sent[i % SIDES] != parties[i % SIDES].heard[i / SIDES]) {
            return false;
        }
    }
    return true;
}

void parties_assert_unbroken(void)
{
    for (unsigned i = 0; i < SIDES; i++) {
        assert_int_equal(parties[i].broken, 0);
    }
}

void parties_talk(unsigned rounds)
{
    for (bool more = true; more; parties_progress()) {
        more = false;
        for (unsigned i = 0; i < SIDES * SIDES; i++) {
            const unsigned from = i / SIDES, to = i % SIDES;

            if (from != to && parties[from].sent[to] < rounds && !parties[from].sleeps) {
                party_send(from, to);
                more = true;
            }
        }
    }
}

void parties_await(void)
{
    while (!parties_have_heard()) {
        parties_progress();
    }
}

void parties_assert_bounded(uint32_t connections)
{
    for (unsigned i = 0; i < SIDES; i++) {
        assert_true(parties[i].counters.transport[REGX_COUNTER_connections_high] <= connections);
        assert_int_equal(party_beyond(i), 0);
    }
}

int parties_reset(void **state)
{
    (void)state;
    alarm(UNIT_PATIENCE);
    fake_reset();
    settings.restart_limit = 0;
    return 0;
}

int parties_reset_with_restarts(void **state)
{
    parties_reset(state);
    settings.restart_limit = 600;
    return 0;
}

void party_ask(unsigned which)
{
    party_verbs(which)->idle_ns = party_verbs(which)->look_next = 0;
    regx_keepalive_progress(party_verbs(which));
    party_verbs(which)->idle_ns = INT64_MAX;
}

void parties_take_places(void)
{
    parties_open(FEW);
    for (unsigned to = 1; to <= FEW; to++) {
        while (!party_send(0, to)) {
            parties_progress();
        }
        parties_await();
    }
}

void parties_progress_often(void)
{
    for (int i = 0; i < 100; i++) {
        parties_progress();
    }
}

void party_leave(unsigned which, unsigned to)
{
    regx_transport_ops.disconnect(parties[which].conns[to]);
    parties[which].conns[to] = NULL;
}

void parties_close_one_that_computes(void)
{
    parties[1].sleeps = true;
    while (party_ep(0, 1)->local != REGX_EP_CLOSED ||
           party_ep(0, 1)->posted != party_ep(0, 1)->done) {
        assert_false(party_send(0, FEW + 1));
        parties_progress();
    }
}
