/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One engine, whose peers are played by the test. On a node: who is granted slots in its CTS while
 * others wait for some; and what a receive whose peer is gone keeps. Over a device: what is registered
 * while a CTS is awaited, what that serves, and when it is given up.
 */
#include "../unit.h"

#include "rendezvous/rendezvous.h"

enum { PEERS = 4, RECEIVES = 32 };
enum { SLOT = 64 * 1024, SLOTS = 64, LONG = 4 * 1024 * 1024 };
enum { CHUNK = 8192, LENGTH = 3 * CHUNK };

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
    regx_rndv_recv_t *recvs[RECEIVES];
    unsigned count; /* of those */
    unsigned done;  /* sends */
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

/* Over a device, but for the strategy bounce. */
static rig_t *rig_open(const char *strategy)
{
    static const regx_transport_ops_t ops = {
        .send = send_frame, .put = put, .reg = reg, .dereg = dereg};
    const bool on_node = strcmp(strategy, "bounce") == 0;
    rig_t *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    made = live = 0;
    rig->memory = aligned_alloc(4096, SLOTS * SLOT);
    rig->buffer = malloc(LONG);
    assert_true(rig->memory != NULL && rig->buffer != NULL);
    rig->transport = (regx_transport_t){.ops = &ops,
                                        .registers = !on_node,
                                        .pool_memory = rig->memory,
                                        .pool_size = SLOTS * SLOT,
                                        .max_frame = 128};
    rig->counters.flows[0] = &rig->flow;
    for (unsigned i = 0; i < PEERS; i++) {
        rig->conns[i] =
            (regx_conn_t){.transport = &rig->transport, .peer = i, .shares_pool = on_node};
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
    while (rig->count > 0) {
        if (rig->recvs[--rig->count] != NULL) {
            regx_rndv_recv_close(rig->rndv, rig->recvs[rig->count]);
        }
    }
    assert_int_equal(regx_pool_unused(&rig->pool), SLOTS);
    regx_rndv_destroy(rig->rndv);
    assert_int_equal(live, 0);
    regx_registry_close(&rig->registry);
    regx_pool_fini(&rig->pool);
    free(rig->memory);
    free(rig->buffer);
    free(rig);
}

#define RIG_TEST(name, strategy)                                                                   \
    UNIT_TEST_WITH(name, NULL, rig_t *, rig, rig_open(strategy), rig_close(rig))

/* ---- it receives, on a node ---- */

static regx_cts_t cts_of(const regx_rndv_recv_t *recv)
{
    regx_cts_t cts;

    memcpy(&cts, recv, sizeof(cts)); /* it begins with that */
    return cts;
}

/* Opens a receive; returns how many slots its CTS grants. */
static unsigned opens(rig_t *rig, unsigned peer, size_t length)
{
    regx_rndv_recv_t *recv =
        regx_rndv_recv_open(rig->rndv, &rig->peers[peer], rig->buffer, length, false);

    assert_non_null(recv);
    assert_in_range(rig->count, 0, RECEIVES - 1);
    rig->recvs[rig->count++] = recv;
    return cts_of(recv).count;
}

/* The sender of the receive that was opened last shows itself. */
static void is_ready(rig_t *rig, unsigned peer)
{
    uint8_t bytes[REGX_CONTROL_MAX];
    const regx_control_t ready = {.type = REGX_CONTROL_READY,
                                  .version = REGX_CONTROL_VERSION,
                                  .to = cts_of(rig->recvs[rig->count - 1]).recv,
                                  .from = {.id = rig->count, .generation = 1}};

    regx_rndv_control(rig->rndv, peer, bytes, regx_control_pack(&ready, bytes));
    assert_int_equal(rig->counters.malformed, 0);
}

RIG_TEST(while_a_long_one_is_under_way_others_are_granted_at_once, "bounce")
{
    assert_in_range(opens(rig, 0, LONG), 1, LONG / SLOT - 1);
    is_ready(rig, 0); /* it waits until a slot is filled */
    assert_true(opens(rig, 1, 2 * SLOT) > 0);
    assert_int_equal(opens(rig, 0, 2 * SLOT), 2);
}

RIG_TEST(those_of_the_same_peer_that_wait_go_first, "bounce")
{
    unsigned granted = opens(rig, 0, SLOT);

    is_ready(rig, 0);
    for (unsigned more = 1; more > 0; granted += more) {
        more = opens(rig, 0, LONG);
        is_ready(rig, 0);
    }
    assert_in_range(granted, 2, SLOTS / 2);
    regx_rndv_recv_close(rig->rndv, rig->recvs[0]); /* one slot is there again */
    rig->recvs[0] = NULL;
    assert_int_equal(opens(rig, 0, SLOT), 0);
    assert_true(opens(rig, 1, SLOT) > 0);
}

RIG_TEST(once_the_pool_was_exhausted_all_that_wait_go_first, "bounce")
{
    while (regx_pool_get(&rig->pool) != REGX_SLOT_NONE) {
    }
    assert_int_equal(opens(rig, 0, LONG), 0);
    is_ready(rig, 0);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        regx_pool_put(&rig->pool, slot);
    }
    assert_int_equal(opens(rig, 1, SLOT), 0);
    regx_rndv_progress(rig->rndv);
    assert_true(opens(rig, 1, SLOT) > 0);
}

RIG_TEST(a_peer_that_does_not_answer_leaves_half_of_the_pool, "bounce")
{
    for (unsigned i = 0; i < 2 * PEERS; i++) {
        opens(rig, i % PEERS, LONG);
    }
    assert_true(regx_pool_unused(&rig->pool) >= SLOTS / 2);
}

static int no_progress;

static void nothing(void *context)
{
    *(int *)context += 1;
}

UNIT_TEST(memory_that_a_lost_peer_was_to_write_is_not_waited_for)
{
    rig_t *rig = rig_open("bounce");
    const regx_drain_config_t config = {.milliseconds = 1,
                                        .progress = nothing,
                                        .context = &no_progress,
                                        .counters = &rig->counters};
    const uintptr_t start = (uintptr_t)rig->buffer;
    regx_drain_t *drain = regx_drain_open(&config);

    assert_non_null(drain);
    rig->registry.drain = drain;
    opens(rig, 0, LONG);
    regx_drain_wait(drain, start, start + LONG);
    assert_int_equal(rig->counters.drain_waits, 1);
    regx_rndv_forget(rig->rndv, &rig->peers[0]);
    regx_drain_wait(drain, start, start + LONG);
    assert_int_equal(rig->counters.drain_waits, 1);
    opens(rig, 1, LONG);
    regx_rndv_recv_close(rig->rndv, rig->recvs[0]); /* gives back no hold but its own */
    rig->recvs[0] = NULL;
    regx_drain_wait(drain, start, start + LONG);
    assert_int_equal(rig->counters.drain_waits, 2);
    regx_drain_stop(drain);
    rig_close(rig);
    regx_drain_close(drain);
}

/* ---- it sends, over a device ---- */

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

RIG_TEST(the_first_chunk_is_registered_while_the_cts_is_awaited, "pipeline")
{
    sends(rig, 0);
    announces(rig, 0, LENGTH);
    assert_int_equal(live, 1);
    is_answered(rig, 0, LENGTH, REGX_PATH_pipeline, CHUNK);
    assert_int_equal(made, 2);
    assert_int_equal(serial, 2);
    assert_int_equal(live, 0);
    regx_rndv_forget(rig->rndv, &rig->peers[0]); /* the other chunks are never granted */
}

RIG_TEST(a_chunk_that_is_longer_is_registered_again, "pipeline")
{
    sends(rig, 0);
    announces(rig, 0, LENGTH);
    is_answered(rig, 0, LENGTH, REGX_PATH_pipeline, LENGTH);
    assert_int_equal(made, 3);
    assert_int_equal(serial, 3);
    assert_int_equal(rig->done, 2);
}

UNIT_TEST(where_the_peer_did_not_grant_a_chunk_nothing_is_registered)
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

RIG_TEST(what_was_registered_for_a_lost_peer_is_given_up, "pipeline")
{
    sends(rig, 0);
    announces(rig, 0, LENGTH);
    regx_rndv_forget(rig->rndv, &rig->peers[1]);
    assert_int_equal(live, 1);
    regx_rndv_forget(rig->rndv, &rig->peers[0]);
    assert_int_equal(live, 0);
    announces(rig, 0, LENGTH); /* given up with the engine */
    assert_int_equal(live, 1);
}

/* The pages may be others by then. */
RIG_TEST(what_was_registered_for_one_message_does_not_serve_another, "pipeline")
{
    regx_rndv_exposure_t exposure;

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
}
