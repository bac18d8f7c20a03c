/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake.h"

#include "registration/monitor/monitor.h"

bool fake_complete(fake_t *fake, unsigned to, unsigned which, regx_status_t status)
{
    fake_conn_t *conn = &fake->conns[to];
    fake_frame_t **at = &conn->head;
    regx_put_t *put = NULL;

    pthread_mutex_lock(&fake_lock);
    while (*at != NULL && ((*at)->pending == NULL || which-- > 0)) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        put = (*at)->pending;
        char *target = status == REGX_OK ? fake_target(conn, put) : NULL;

        if (target != NULL) {
            fake_write(conn, put, target);
            (*at)->pending = NULL;
        } else { /* it never happened: there is no notice of it */
            fake_frame_t *frame = *at;

            status = status == REGX_OK ? REGX_INVALID : status;
            *at = frame->next;
            if (conn->tail == &frame->next) {
                conn->tail = at;
            }
            free(frame);
        }
    }
    pthread_mutex_unlock(&fake_lock);
    if (put != NULL) {
        put->done(put, status);
    }
    return put != NULL;
}

bool fake_got(fake_t *fake, unsigned to, unsigned which, regx_status_t status)
{
    fake_conn_t *conn = &fake->conns[to];
    regx_get_t *get = NULL;

    pthread_mutex_lock(&fake_lock);
    if (which < conn->get_count) {
        get = conn->gets[which];
        conn->get_count--;
        memmove(conn->gets + which, conn->gets + which + 1,
                (conn->get_count - which) * sizeof(conn->gets[0]));
        if (status == REGX_OK && !fake_read(conn, get)) {
            status = REGX_FAILED;
        }
    }
    pthread_mutex_unlock(&fake_lock);
    if (get != NULL) {
        get->done(get, status);
    }
    return get != NULL;
}

bool fake_receive(fake_t *fake, fake_t *from)
{
    fake_conn_t *conn = &from->conns[fake->id];
    fake_frame_t **at = &conn->head, *frame;

    pthread_mutex_lock(&fake_lock);
    while (fake_overtaking && *at != NULL && (*at)->pending != NULL) {
        at = &(*at)->next;
    }
    frame = *at;
    if (frame != NULL && frame->pending == NULL) {
        *at = frame->next;
        if (*at == NULL) {
            conn->tail = at;
        }
    } else {
        frame = NULL;
    }
    pthread_mutex_unlock(&fake_lock);
    if (frame == NULL) {
        return false;
    }
    if (fake->rndv != NULL && frame->immediate != 0) {
        fake_immediate_count++;
        regx_rndv_immediate(fake->rndv, from->id, frame->immediate);
    } else if (fake->rndv != NULL && frame->tag == REGX_TAG_CONTROL) {
        regx_rndv_control(fake->rndv, from->id, frame->data, frame->length);
    } else {
        fake->deliver(fake, from->id, frame->tag, frame->data, frame->length);
    }
    free(frame);
    return true;
}

void fake_arrive(fake_t *fake, uint64_t from, const void *bytes, size_t length)
{
    uint8_t *copy = malloc(length); /* so that reading past the end is found */

    assert_non_null(copy);
    memcpy(copy, bytes, length);
    regx_rndv_control(fake->rndv, from, copy, length);
    free(copy);
}

static void fake_open_registry(fake_t *fake, const fake_config_t *config)
{
    const regx_cache_config_t cache = {
        .bytes = config->cache_bytes, .count = REGX_UNLIMITED, .inuse = REGX_INUSE_IGNORE};

    if (config->cache_bytes > 0 && fake_monitor.log == NULL) {
        fake_monitor.log = regx_inval_log_open();
        assert_non_null(fake_monitor.log);
    }
    assert_int_equal(regx_registry_open(&fake->registry, &regx_backend_none,
                                        config->cache_bytes > 0 ? &fake_monitor : NULL, &cache,
                                        &fake->transport, &fake->counters),
                     REGX_OK);
}

void fake_settle(fake_t *fake)
{
    for (unsigned i = 0; i < 100; i++) {
        regx_registry_progress(&fake->registry);
    }
    regx_registry_count(&fake->registry);
}

static void fake_mismatch(void *context, const regx_peer_t *peer, const char *what)
{
    fake_t *fake = context;

    fake->mismatches++;
    fake->mismatch_peer = peer->id;
    snprintf(fake->mismatch, sizeof(fake->mismatch), "%s", what);
}

fake_t *fake_open(uint64_t id, const fake_config_t *config)
{
    fake_t *fake = calloc(1, sizeof(*fake));
    const size_t size = config->slots * config->slot_size;

    assert_non_null(fake);
    fake->id = id;
    fake->counters.threads = config->threads;
    fake->outer = config->outer;
    fake->transport.ops = &fake_ops;
    fake->pool_memory = guarded_new(size);
    fake->transport.pool_memory = fake->pool_memory.base;
    fake->transport.pool_size = size;
    fake->transport.max_frame = FAKE_FRAME;
    fake->transport.registers = true;
    assert_int_equal(regx_pool_init(&fake->pool, fake->transport.pool_memory, size,
                                    config->slot_size, config->threads, &fake->counters),
                     REGX_OK);
    fake_open_registry(fake, config);
    if (config->strategy != NULL) {
        const regx_rndv_config_t rndv = {.strategy = regx_strategy_find(config->strategy),
                                         .chunk_size = config->chunk_size,
                                         .chunk_depth = config->chunk_depth,
                                         .threads = config->threads,
                                         .may_expose = !config->exposes_nothing,
                                         .verify = config->verify,
                                         .revocable = config->revocable,
                                         .optimistic = config->optimistic,
                                         .mismatch = fake_mismatch,
                                         .context = fake};

        assert_non_null(rndv.strategy);
        fake->rndv = regx_rndv_create(&rndv, &fake->pool, &fake->registry, &fake->counters);
        assert_non_null(fake->rndv);
    }
    return fake;
}

void fake_connect(fake_t *from, fake_t *to, bool shares_pool)
{
    fake_conn_t *conn = &from->conns[to->id];

    conn->conn = (regx_conn_t){.transport = &from->transport,
                               .peer = to->id,
                               .wire = "fake",
                               .shares_pool = shares_pool,
                               .single_copy = shares_pool};
    conn->from = from;
    conn->to = to;
    conn->tail = &conn->head;
    from->peers[to->id] = (regx_peer_t){.id = to->id, .conn = &conn->conn};
}

void fake_assert_idle(const fake_t *fake)
{
    for (unsigned i = 0; i < REGX_AUTOTUNE_SIZES && fake->rndv != NULL; i++) {
        for (unsigned wire = 0; wire < REGX_AUTO_WIRES; wire++) {
            assert_int_equal(fake->rndv->autotune[wire][i].open, 0);
        }
    }
    assert_int_equal(fake->pool.unused, fake->pool.slots);
    assert_int_equal(fake->open_windows, 0);
    assert_int_equal(fake->counters.registrations, fake->counters.deregistrations);
    /* With outer regions what is registered is not what was asked for. */
    assert_true(fake->counters.registered_bytes == 0 || fake->outer > 0);
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        assert_null(fake->conns[i].head);
        assert_int_equal(fake->conns[i].get_count, 0);
        assert_int_equal(fake->peers[i].granted, 0);
        assert_int_equal(fake->peers[i].writing, 0);
        assert_int_equal(fake->peers[i].writes, 0);
        assert_int_equal(fake->peers[i].waiting, 0);
    }
}

void fake_close(fake_t *fake)
{
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        while (fake->conns[i].head != NULL) {
            fake_frame_t *frame = fake->conns[i].head;

            fake->conns[i].head = frame->next;
            free(frame);
        }
    }
    if (fake->rndv != NULL) {
        regx_rndv_destroy(fake->rndv);
    }
    regx_registry_close(&fake->registry);
    regx_pool_fini(&fake->pool);
    guarded_free(&fake->pool_memory);
    free(fake);
}
