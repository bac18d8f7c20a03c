/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One sending engine over a device, whose peers are played by the test: what it registers while it
 * waits for a CTS, what that serves, and when it is given up.
 */
#include "../unit.h"

#include <stdlib.h>

#include "rendezvous/rendezvous.h"

enum { PEERS = 2, SLOT = 4096, SLOTS = 4, CHUNK = 8192, LENGTH = 3 * CHUNK };

typedef struct rig {
    regx_transport_t transport;
    regx_conn_t conns[PEERS];
    regx_peer_t peers[PEERS];
    regx_counters_t counters;
    regx_flow_t flow;
    regx_pool_t pool;
    regx_registry_t registry;
    regx_rndv_t *rndv;
    char *memory, *buffer;
    unsigned done;
} rig_t;

static unsigned made, live; /* registrations */
static uintptr_t serial;    /* of the one that the last put used */

static regx_status_t reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr)
{
    live++;
    *mr = (regx_mr_t){.base = base, .length = length, .handle = (void *)(uintptr_t)++made};
    return REGX_OK;
}

static void dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    assert_true(live > 0);
    live--;
    mr->handle = NULL;
}

static regx_status_t put(regx_conn_t *conn, regx_put_t *put)
{
    assert_non_null(put->region);
    assert_true((const char *)put->local >= (const char *)put->region->base &&
                (const char *)put->local + put->length <=
                    (const char *)put->region->base + put->region->length);
    serial = (uintptr_t)put->region->handle;
    return REGX_OK;
}

static regx_status_t send_frame(regx_conn_t *conn, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t fill, void *context,
                                size_t length)
{
    return REGX_OK;
}

static void never(void *context, const regx_peer_t *peer, const char *what, bool may_be_longer)
{
    fail_msg("%s", what);
}

static rig_t *rig_open(const char *strategy)
{
    static const regx_transport_ops_t ops = {
        .send = send_frame, .put = put, .reg = reg, .dereg = dereg};
    rig_t *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    made = live = 0;
    rig->memory = aligned_alloc(4096, SLOTS * SLOT);
    rig->buffer = malloc(LENGTH);
    assert_true(rig->memory != NULL && rig->buffer != NULL);
    rig->transport = (regx_transport_t){.ops = &ops,
                                        .registers = true,
                                        .pool_memory = rig->memory,
                                        .pool_size = SLOTS * SLOT,
                                        .max_frame = 128};
    rig->counters.flows[0] = &rig->flow;
    for (unsigned i = 0; i < PEERS; i++) {
        rig->conns[i] = (regx_conn_t){.transport = &rig->transport, .peer = i};
        rig->peers[i] = (regx_peer_t){.id = i, .conn = &rig->conns[i]};
    }
    const regx_cache_config_t cache = {.bytes = 0};
    const regx_rndv_config_t config = {.strategy = regx_strategy_find(strategy),
                                       .chunk_size = CHUNK,
                                       .chunk_depth = 1,
                                       .may_expose = true,
                                       .lost = never,
                                       .flow = &rig->flow};
    assert_int_equal(
        regx_pool_init(&rig->pool, rig->memory, SLOTS * SLOT, SLOT, false, &rig->counters),
        REGX_OK);
    assert_int_equal(
        regx_registry_open(&rig->registry, NULL, &cache, &rig->transport, &rig->counters), REGX_OK);
    rig->rndv = regx_rndv_create(&config, &rig->pool, &rig->registry, &rig->counters);
    assert_non_null(rig->rndv);
    return rig;
}

static void rig_close(rig_t *rig)
{
    regx_rndv_destroy(rig->rndv);
    assert_int_equal(live, 0);
    regx_registry_close(&rig->registry);
    regx_pool_fini(&rig->pool);
    free(rig->memory);
    free(rig->buffer);
    free(rig);
}

/* The RTS is sent, and some time goes by. */
static void announces(rig_t *rig, unsigned peer, size_t length)
{
    regx_rndv_exposure_t exposure;

    assert_false(regx_rndv_expose(rig->rndv, &rig->peers[peer], rig->buffer, length, &exposure));
    regx_rndv_progress(rig->rndv);
}

static void done(void *context, regx_status_t status)
{
    ((rig_t *)context)->done++;
}

/* The CTS comes: that path, and of pipeline so much. */
static void is_answered(rig_t *rig, unsigned peer, size_t length, regx_path_t path, size_t granted)
{
    regx_cts_t cts = {.version = REGX_CONTROL_VERSION,
                      .path = (uint8_t)path,
                      .count = path == REGX_PATH_pipeline,
                      .why = REGX_WHY_asked,
                      .recv = {.id = 1, .generation = 1},
                      .length = length};
    uint8_t bytes[REGX_CTS_SIZE];

    if (path == REGX_PATH_pipeline) {
        cts.chunk_length = granted;
    }
    memcpy(bytes, &cts, sizeof(bytes));
    regx_rndv_send_open(rig->rndv, &rig->peers[peer], rig->buffer, length, bytes, done, rig);
    assert_int_equal(rig->counters.malformed, 0);
}

/* A message of one chunk, whole. */
static void sends(rig_t *rig, unsigned peer)
{
    const unsigned before = rig->done;

    announces(rig, peer, CHUNK);
    is_answered(rig, peer, CHUNK, REGX_PATH_pipeline, CHUNK);
    assert_int_equal(rig->done, before + 1);
}

static void the_first_chunk_is_registered_while_the_cts_is_awaited(void **state)
{
    rig_t *rig = rig_open("pipeline");

    sends(rig, 0);
    announces(rig, 0, LENGTH);
    assert_int_equal(live, 1);
    is_answered(rig, 0, LENGTH, REGX_PATH_pipeline, CHUNK);
    assert_int_equal(made, 2);
    assert_int_equal(serial, 2);
    assert_int_equal(live, 0);
    regx_rndv_forget(rig->rndv, &rig->peers[0]); /* the other chunks are never granted */
    rig_close(rig);
}

static void a_chunk_that_is_longer_is_registered_again(void **state)
{
    rig_t *rig = rig_open("pipeline");

    sends(rig, 0);
    announces(rig, 0, LENGTH);
    is_answered(rig, 0, LENGTH, REGX_PATH_pipeline, LENGTH);
    assert_int_equal(made, 3);
    assert_int_equal(serial, 3);
    assert_int_equal(rig->done, 2);
    rig_close(rig);
}

static void where_the_peer_did_not_grant_a_chunk_nothing_is_registered(void **state)
{
    rig_t *rig = rig_open("pipeline");

    announces(rig, 0, LENGTH); /* it has not answered yet */
    assert_int_equal(made, 0);
    sends(rig, 0);
    announces(rig, 1, LENGTH);
    assert_int_equal(live, 0);
    announces(rig, 0, LENGTH);
    assert_int_equal(live, 1);
    is_answered(rig, 0, LENGTH, REGX_PATH_bounce, 0);
    assert_int_equal(live, 0);
    announces(rig, 0, LENGTH);
    assert_int_equal(live, 0);
    regx_rndv_forget(rig->rndv, &rig->peers[0]);
    rig_close(rig);
    rig = rig_open("direct");
    sends(rig, 0);
    announces(rig, 0, LENGTH);
    assert_int_equal(live, 0);
    rig_close(rig);
}

static void what_was_registered_for_a_lost_peer_is_given_up(void **state)
{
    rig_t *rig = rig_open("pipeline");

    sends(rig, 0);
    announces(rig, 0, LENGTH);
    regx_rndv_forget(rig->rndv, &rig->peers[1]);
    assert_int_equal(live, 1);
    regx_rndv_forget(rig->rndv, &rig->peers[0]);
    assert_int_equal(live, 0);
    announces(rig, 0, LENGTH); /* given up with the engine */
    assert_int_equal(live, 1);
    rig_close(rig);
}

/* The pages may be others by then. */
static void what_was_registered_for_one_message_does_not_serve_another(void **state)
{
    regx_rndv_exposure_t exposure;
    rig_t *rig = rig_open("pipeline");

    sends(rig, 0);
    announces(rig, 0, CHUNK);
    assert_int_equal(made, 2);
    regx_rndv_expose(rig->rndv, &rig->peers[0], rig->buffer, CHUNK, &exposure);
    is_answered(rig, 0, CHUNK, REGX_PATH_pipeline, CHUNK); /* before progress */
    assert_int_equal(serial, 3);
    announces(rig, 0, CHUNK);
    regx_rndv_unexpect(rig->rndv, &rig->peers[0]); /* Open MPI sends fragments */
    assert_int_equal(live, 0);
    sends(rig, 0);
    assert_int_equal(serial, made);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_chunk_is_registered_while_the_cts_is_awaited),
        cmocka_unit_test(a_chunk_that_is_longer_is_registered_again),
        cmocka_unit_test(where_the_peer_did_not_grant_a_chunk_nothing_is_registered),
        cmocka_unit_test(what_was_registered_for_a_lost_peer_is_given_up),
        cmocka_unit_test(what_was_registered_for_one_message_does_not_serve_another),
    };

    return cmocka_run_group_tests_name("early", tests, NULL, NULL);
}
