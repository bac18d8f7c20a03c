/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake.h"

#include <stdlib.h>

/* All processes live in one address space, so they share what reports its changes. */
static regx_monitor_t monitor = {.name = "fake"};

/* One lock for the wire. Nothing is called while it is held, but the rule. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* cmocka's assertions are for the thread of the test alone. */
static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

void fake_changed(const void *start, size_t length)
{
    if (monitor.log != NULL) {
        regx_inval_log_write(monitor.log, (uintptr_t)start, (uintptr_t)start + length);
    }
}

/* ---- the transport ---- */

static void append(fake_conn_t *conn, uint8_t tag, const void *data, size_t length,
                   uint32_t immediate, regx_put_t *pending)
{
    fake_frame_t *frame = calloc(1, sizeof(*frame));

    require(frame != NULL && length <= FAKE_FRAME);
    frame->tag = tag;
    frame->immediate = immediate;
    frame->length = length;
    frame->pending = pending;
    memcpy(frame->data, data, length);
    *conn->tail = frame;
    conn->tail = &frame->next;
}

void fake_send(fake_t *from, fake_t *to, uint8_t tag, const void *data, size_t length)
{
    pthread_mutex_lock(&lock);
    append(&from->conns[to->id], tag, data, length, 0, NULL);
    pthread_mutex_unlock(&lock);
}

static regx_status_t wire_send(regx_conn_t *base, uint8_t tag, const void *header,
                               size_t header_length, regx_pack_t pack, void *context, size_t length)
{
    fake_conn_t *conn = (fake_conn_t *)base;

    (void)context;
    require(pack == NULL && length == 0);
    pthread_mutex_lock(&lock);
    const regx_status_t status = conn->from->rule(conn->from, FAKE_SEND);
    if (status == REGX_OK) {
        append(conn, tag, header, header_length, 0, NULL);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* A part of registered memory, which must be registered for that. */
static char *place(const fake_window_t *window, uint64_t offset, size_t length, unsigned access)
{
    require(window != NULL && window->open && (window->access & access) != 0 &&
            offset <= window->length && length <= window->length - offset);
    return window->base + offset;
}

static char *keyed(const regx_key_t *key, uint64_t offset, size_t length, unsigned access)
{
    const fake_window_t *window;

    memcpy(&window, key->bytes, sizeof(window));
    return place(window, offset, length, access);
}

static void check_local(const regx_mr_t *region, const void *local, size_t length, unsigned access)
{
    require(region != NULL);
    place(region->handle, (uint64_t)((const char *)local - (const char *)region->base), length,
          access);
}

static void write_bytes(const fake_conn_t *conn, const regx_put_t *put)
{
    char *to = (char *)conn->to->transport.pool_memory + put->offset;
    const bool pool = put->target == REGX_TARGET_POOL;

    if (pool) {
        require(put->offset + put->length <= conn->to->transport.pool_size);
    } else {
        to = keyed(&put->key, put->offset, put->length, REGX_ACCESS_REMOTE_WRITE);
    }
    if (!pool || put->region != NULL) {
        check_local(put->region, put->local, put->length, REGX_ACCESS_LOCAL);
    }
    memcpy(to, put->local, put->length);
}

static regx_status_t wire_put(regx_conn_t *base, regx_put_t *put)
{
    fake_conn_t *conn = (fake_conn_t *)base;

    pthread_mutex_lock(&lock);
    const regx_status_t status = conn->from->rule(conn->from, FAKE_PUT);
    if (status == REGX_OK) {
        write_bytes(conn, put);
    }
    if (status == REGX_OK || status == REGX_PENDING) {
        append(conn, put->tag, put->notice, put->notice_length, put->immediate,
               status == REGX_PENDING ? put : NULL);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static regx_status_t wire_get(regx_conn_t *base, regx_get_t *get)
{
    fake_conn_t *conn = (fake_conn_t *)base;

    pthread_mutex_lock(&lock);
    regx_status_t status = conn->from->rule(conn->from, FAKE_GET);
    if (status == REGX_OK) {
        require(conn->get_count < FAKE_GETS);
        conn->gets[conn->get_count++] = get;
        status = REGX_PENDING;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static regx_status_t wire_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    fake_t *fake = (fake_t *)transport;
    fake_window_t *window = calloc(1, sizeof(*window));

    require(window != NULL);
    pthread_mutex_lock(&lock);
    const regx_status_t status = fake->rule(fake, FAKE_REG);
    if (status == REGX_OK) {
        *window = (fake_window_t){fake->windows, base, length, access, true};
        fake->windows = window;
        fake->open_windows++;
        *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = window};
        memcpy(mr->key.bytes, &window, sizeof(window));
    }
    pthread_mutex_unlock(&lock);
    if (status != REGX_OK) {
        free(window);
    }
    return status;
}

static void wire_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    fake_window_t *window = mr->handle;

    pthread_mutex_lock(&lock);
    require(window->open);
    window->open = false;
    ((fake_t *)transport)->open_windows--;
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
    pthread_mutex_unlock(&lock);
}

static const regx_transport_ops_t ops = {.abi = REGX_TRANSPORT_ABI,
                                         .name = "fake",
                                         .send = wire_send,
                                         .put = wire_put,
                                         .get = wire_get,
                                         .reg = wire_reg,
                                         .dereg = wire_dereg};

/* ---- what the test lets happen ---- */

bool fake_complete(fake_t *fake, unsigned to, unsigned which)
{
    fake_frame_t *frame;
    regx_put_t *put = NULL;

    pthread_mutex_lock(&lock);
    frame = fake->conns[to].head;
    while (frame != NULL && (frame->pending == NULL || which-- > 0)) {
        frame = frame->next;
    }
    if (frame != NULL) {
        put = frame->pending;
        write_bytes(&fake->conns[to], put);
        frame->pending = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (put != NULL) {
        put->done(put, REGX_OK);
    }
    return put != NULL;
}

bool fake_got(fake_t *fake, unsigned to, unsigned which, regx_status_t status)
{
    fake_conn_t *conn = &fake->conns[to];
    regx_get_t *get = NULL;

    pthread_mutex_lock(&lock);
    if (which < conn->get_count) {
        get = conn->gets[which];
        conn->get_count--;
        memmove(conn->gets + which, conn->gets + which + 1,
                (conn->get_count - which) * sizeof(conn->gets[0]));
        const char *from = keyed(&get->key, get->offset, get->length, REGX_ACCESS_REMOTE_READ);
        check_local(get->region, get->local, get->length, REGX_ACCESS_LOCAL_WRITE);
        if (status == REGX_OK) {
            memcpy(get->local, from, get->length);
        }
    }
    pthread_mutex_unlock(&lock);
    if (get != NULL) {
        get->done(get, status);
    }
    return get != NULL;
}

bool fake_receive(fake_t *fake, fake_t *from)
{
    fake_conn_t *conn = &from->conns[fake->id];

    pthread_mutex_lock(&lock);
    fake_frame_t *frame = conn->head != NULL && conn->head->pending == NULL ? conn->head : NULL;
    if (frame != NULL) {
        conn->head = frame->next;
        conn->tail = conn->head == NULL ? &conn->head : conn->tail;
    }
    pthread_mutex_unlock(&lock);
    if (frame == NULL) {
        return false;
    }
    if (frame->immediate != 0) {
        regx_rndv_immediate(fake->rndv, from->id, frame->immediate);
    } else if (frame->tag == REGX_TAG_CONTROL) {
        regx_rndv_control(fake->rndv, from->id, frame->data, frame->length);
    } else {
        fake->deliver(fake, from->id, frame->tag, frame->data, frame->length);
    }
    free(frame);
    return true;
}

/* ---- processes ---- */

static void mismatch(void *context, const regx_peer_t *peer, const char *what)
{
    (void)context, (void)peer;
    fail_msg("%s", what);
}

fake_t *fake_open(uint64_t id, uint32_t slots, const regx_rndv_config_t *config,
                  uint64_t cache_bytes)
{
    enum { SLOT = 1024 };
    const regx_cache_config_t cache = {
        .bytes = cache_bytes, .count = REGX_UNLIMITED, .inuse = REGX_INUSE_IGNORE};
    regx_rndv_config_t engine = *config;
    fake_t *fake = calloc(1, sizeof(*fake));

    assert_non_null(fake);
    fake->id = id;
    fake->counters.threads = true;
    fake->transport = (regx_transport_t){.ops = &ops,
                                         .pool_memory = calloc(slots, SLOT),
                                         .pool_size = (size_t)slots * SLOT,
                                         .max_frame = FAKE_FRAME,
                                         .registers = true};
    assert_non_null(fake->transport.pool_memory);
    assert_int_equal(regx_pool_init(&fake->pool, fake->transport.pool_memory,
                                    fake->transport.pool_size, SLOT, true, &fake->counters),
                     REGX_OK);
    if (cache_bytes > 0 && monitor.log == NULL) {
        monitor.log = regx_inval_log_open();
        assert_non_null(monitor.log);
    }
    assert_int_equal(regx_registry_open(&fake->registry, &regx_backend_none,
                                        cache_bytes > 0 ? &monitor : NULL, &cache, &fake->transport,
                                        &fake->counters),
                     REGX_OK);
    engine.threads = true;
    engine.mismatch = mismatch;
    fake->rndv = regx_rndv_create(&engine, &fake->pool, &fake->registry, &fake->counters);
    assert_non_null(fake->rndv);
    return fake;
}

void fake_connect(fake_t *from, fake_t *to)
{
    fake_conn_t *conn = &from->conns[to->id];

    conn->conn = (regx_conn_t){.transport = &from->transport, .peer = to->id, .wire = "fake"};
    conn->from = from;
    conn->to = to;
    conn->tail = &conn->head;
    from->peers[to->id] = (regx_peer_t){.id = to->id, .conn = &conn->conn};
}

void fake_close(fake_t *fake)
{
    for (unsigned i = 0; i < 100; i++) {
        regx_registry_progress(&fake->registry);
    }
    regx_registry_count(&fake->registry);
    assert_int_equal(fake->pool.unused, fake->pool.slots);
    assert_int_equal(fake->open_windows, 0);
    assert_int_equal(fake->counters.registrations, fake->counters.deregistrations);
    assert_int_equal(fake->counters.registered_bytes, 0);
    assert_int_equal(fake->counters.malformed, 0);
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        assert_null(fake->conns[i].head);
        assert_int_equal(fake->conns[i].get_count, 0);
        assert_int_equal(fake->peers[i].granted, 0);
        assert_int_equal(fake->peers[i].writes, 0);
    }
    regx_rndv_destroy(fake->rndv);
    regx_registry_close(&fake->registry);
    regx_pool_fini(&fake->pool);
    for (fake_window_t *window = fake->windows, *next; window != NULL; window = next) {
        next = window->next;
        free(window);
    }
    free(fake->transport.pool_memory);
    free(fake);
}
