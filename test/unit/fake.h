/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes and a transport in memory, for the tests of rendezvous/. Each fake is one process: a
 * pool, a registry and an engine over a transport that delivers when the test says so, answers
 * what the test's rule says, and checks every put and get against what was registered and of what
 * size the pool is. A test may also leave the engine out and play the process itself.
 */
#ifndef REGX_TEST_FAKE_H
#define REGX_TEST_FAKE_H

#include "unit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "registration/backend.h"
#include "registration/cache.h"
#include "rendezvous/rendezvous.h"

/* ---- who tells the caches, if there are any ---- */

/* All processes of a test live in one address space, so they share it. */
static regx_watch_t fake_watch = {.name = "fake"};

static inline void fake_changed(const void *start, size_t length)
{
    if (fake_watch.changes != NULL) {
        regx_changes_log(fake_watch.changes, (uintptr_t)start, (uintptr_t)start + length);
    }
}

/* ---- guarded memory: what is outside may not be touched, or stays as it is ---- */

typedef struct guarded {
    uint8_t *base; /* ends where a page starts that cannot be touched */
    size_t length;
    uint8_t *mapped;
    size_t before;
} guarded_t;

static inline guarded_t guarded_new(size_t length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t before = page + (page - length % page) % page;
    guarded_t memory = {.length = length, .before = before};

    memory.mapped = mmap(NULL, before + length + page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory.mapped, MAP_FAILED);
    assert_int_equal(mprotect(memory.mapped + before + length, page, PROT_NONE), 0);
    memory.base = memory.mapped + before;
    memset(memory.mapped, 0xee, before);
    return memory;
}

static inline void guarded_free(guarded_t *memory)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < memory->before; i++) {
        if (memory->mapped[i] != 0xee) {
            fail_msg("written %zu bytes before the buffer", memory->before - i);
        }
    }
    fake_changed(memory->mapped, memory->before + memory->length + page);
    munmap(memory->mapped, memory->before + memory->length + page);
    memory->base = NULL;
}

static inline void guarded_fill(const guarded_t *memory, uint64_t stream)
{
    for (size_t i = 0; i < memory->length; i++) {
        memory->base[i] = unit_stamp(stream, i);
    }
}

/* ---- what there is ---- */

enum { FAKE_PROCESSES = 4, FAKE_WINDOWS = 2048, FAKE_FRAME = 256, FAKE_GETS = 256 };

typedef enum fake_call { FAKE_SEND, FAKE_PUT, FAKE_GET, FAKE_REG, FAKE_CALLS } fake_call_t;

typedef struct fake fake_t;

/* A frame under way, or a put whose notice is that frame and which is not yet done. */
typedef struct fake_frame {
    struct fake_frame *next;
    regx_put_t *pending; /* NULL: can be delivered */
    uint8_t tag;
    uint32_t immediate; /* not 0: it is that alone */
    size_t length;
    uint8_t data[FAKE_FRAME];
} fake_frame_t;

/* Whether the wire tells of puts by immediate data, and how often it did. */
static bool fake_immediates;
static _Atomic unsigned fake_immediate_count;

typedef struct fake_conn {
    regx_conn_t conn; /* first */
    fake_t *from, *to;
    fake_frame_t *head, **tail;
    regx_get_t *gets[FAKE_GETS]; /* pending, oldest first */
    unsigned get_count;
} fake_conn_t;

typedef struct fake_window { /* registered memory; its number and generation are its key */
    char *base;
    size_t length;
    unsigned access;
    uint32_t generation;
    bool open;
} fake_window_t;

struct fake {
    regx_transport_t transport; /* first */
    guarded_t pool_memory;
    uint64_t id;
    regx_counters_t counters;
    regx_pool_t pool;
    regx_registry_t registry;
    regx_rndv_t *rndv; /* NULL: the test plays this process */
    regx_peer_t peers[FAKE_PROCESSES];
    fake_conn_t conns[FAKE_PROCESSES]; /* to the process of that number */
    fake_window_t windows[FAKE_WINDOWS];
    unsigned open_windows;
    size_t outer;   /* bytes by which regions are larger than asked for, before and behind */
    size_t longest; /* no more can be registered at once; 0: any length */
    unsigned calls[FAKE_CALLS];
    /* What a call is answered: REGX_OK to do it, REGX_PENDING (put; any get) to do it later. */
    regx_status_t (*rule)(fake_t *fake, fake_call_t call, const regx_put_t *put);
    /* Frames that are not the engine's, or all of them where there is no engine. */
    void (*deliver)(fake_t *fake, uint64_t sender, uint8_t tag, const void *data, size_t length);
    /* A wire that does not keep what it carries: called on what a put or get of this process wrote:
     * `length` bytes from `from` on. */
    void (*spoil)(fake_t *fake, const void *from, size_t length, char *written);
    void *context;       /* the test's, for all of these */
    unsigned mismatches; /* that the engine told, … */
    uint64_t mismatch_peer;
    char mismatch[256]; /* … and the last of them */
};

/* One lock for all: tests may use threads. Nothing is called while it is held, but the rule. */
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static regx_status_t fake_answer(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    fake->calls[call]++;
    return fake->rule == NULL ? REGX_OK : fake->rule(fake, call, put);
}

/* ---- the transport ---- */

static inline void fake_append(fake_conn_t *conn, uint8_t tag, const void *data, size_t length,
                               uint32_t immediate, regx_put_t *pending)
{
    fake_frame_t *frame = calloc(1, sizeof(*frame));

    if (frame == NULL || length > FAKE_FRAME) {
        abort();
    }
    frame->tag = tag;
    frame->length = length;
    frame->pending = pending;
    frame->immediate = immediate;
    memcpy(frame->data, data, length);
    *conn->tail = frame;
    conn->tail = &frame->next;
}

static inline regx_status_t fake_send(regx_conn_t *base, uint8_t tag, const void *header,
                                      size_t header_length, regx_pack_t pack, void *context,
                                      size_t payload_length)
{
    fake_conn_t *conn = (fake_conn_t *)base;
    regx_status_t status;

    (void)context;
    if (pack != NULL || payload_length != 0) {
        abort(); /* control messages have no payload */
    }
    pthread_mutex_lock(&fake_lock);
    status = fake_answer(conn->from, FAKE_SEND, NULL);
    if (status == REGX_OK) {
        fake_append(conn, tag, header, header_length, 0, NULL);
    }
    pthread_mutex_unlock(&fake_lock);
    return status;
}

/* Memory of that process that the key names, or NULL if it has not published that. */
static inline char *fake_keyed(const fake_t *fake, const regx_key_t *key, unsigned access,
                               uint64_t offset, size_t length)
{
    uint32_t number;
    uint32_t generation;

    memcpy(&number, key->bytes, sizeof(number));
    memcpy(&generation, key->bytes + 4, sizeof(generation));
    if (number >= FAKE_WINDOWS) {
        return NULL;
    }
    const fake_window_t *window = &fake->windows[number];
    return window->open && window->generation == generation && (window->access & access) != 0 &&
                   offset <= window->length && length <= window->length - offset
               ? window->base + offset
               : NULL;
}

/* Where the put writes, or NULL if the peer has not published that. */
static inline char *fake_target(const fake_conn_t *conn, const regx_put_t *put)
{
    fake_t *to = conn->to;

    if (put->target == REGX_TARGET_POOL) {
        return put->offset <= to->transport.pool_size &&
                       put->length <= to->transport.pool_size - put->offset
                   ? (char *)to->transport.pool_memory + put->offset
                   : NULL;
    }
    return fake_keyed(to, &put->key, REGX_ACCESS_REMOTE_WRITE, put->offset, put->length);
}

static inline void fake_write(const fake_conn_t *conn, const regx_put_t *put, char *to)
{
    const fake_window_t *window = put->region != NULL ? put->region->handle : NULL;

    if (window != NULL &&
        (!window->open || (window->access & REGX_ACCESS_LOCAL) == 0 ||
         (const char *)put->local < window->base ||
         (const char *)put->local + put->length > window->base + window->length)) {
        abort(); /* what is written from must be registered for it until then */
    }
    memcpy(to, put->local, put->length);
    if (conn->from->spoil != NULL) {
        conn->from->spoil(conn->from, put->local, put->length, to);
    }
}

/* Does a get. false: the peer has not published that. */
static inline bool fake_read(const fake_conn_t *conn, const regx_get_t *get)
{
    const char *from =
        fake_keyed(conn->to, &get->key, REGX_ACCESS_REMOTE_READ, get->offset, get->length);
    const fake_window_t *into = get->region->handle;

    if (!into->open || (into->access & REGX_ACCESS_LOCAL_WRITE) == 0 ||
        (char *)get->local < into->base ||
        (char *)get->local + get->length > into->base + into->length) {
        abort(); /* the caller's memory must be registered for it */
    }
    if (from == NULL) {
        return false;
    }
    memcpy(get->local, from, get->length);
    if (conn->from->spoil != NULL) {
        conn->from->spoil(conn->from, from, get->length, get->local);
    }
    return true;
}

static inline regx_status_t fake_get(regx_conn_t *base, regx_get_t *get)
{
    fake_conn_t *conn = (fake_conn_t *)base;
    regx_status_t status;

    pthread_mutex_lock(&fake_lock);
    status = fake_answer(conn->from, FAKE_GET, NULL);
    if ((status == REGX_OK || status == REGX_PENDING) &&
        fake_keyed(conn->to, &get->key, REGX_ACCESS_REMOTE_READ, get->offset, get->length) ==
            NULL) {
        status = REGX_INVALID;
    } else if (status == REGX_OK || status == REGX_PENDING) {
        status = REGX_PENDING;
        if (conn->get_count == FAKE_GETS) {
            abort();
        }
        conn->gets[conn->get_count++] = get;
    }
    pthread_mutex_unlock(&fake_lock);
    return status;
}

static inline regx_status_t fake_put(regx_conn_t *base, regx_put_t *put)
{
    fake_conn_t *conn = (fake_conn_t *)base;
    regx_status_t status;

    pthread_mutex_lock(&fake_lock);
    status = fake_answer(conn->from, FAKE_PUT, put);
    if (status == REGX_OK || status == REGX_PENDING) {
        char *to = fake_target(conn, put);

        if (put->notice_length > REGX_NOTICE_MAX) {
            abort();
        }
        if (to == NULL) {
            status = REGX_INVALID;
        } else {
            if (status == REGX_OK) {
                fake_write(conn, put, to);
            }
            fake_append(conn, put->tag, put->notice, put->notice_length,
                        fake_immediates ? put->immediate : 0, status == REGX_PENDING ? put : NULL);
        }
    }
    pthread_mutex_unlock(&fake_lock);
    return status;
}

static inline regx_status_t fake_reg(regx_transport_t *transport, void *base, size_t length,
                                     unsigned access, regx_mr_t *mr)
{
    fake_t *fake = (fake_t *)transport;
    regx_status_t status;

    pthread_mutex_lock(&fake_lock);
    status = fake_answer(fake, FAKE_REG, NULL);
    if (fake->longest > 0 && length > fake->longest) {
        status = REGX_NO_MEMORY;
    }
    if (status == REGX_OK) {
        uint32_t number = 0;

        while (fake->windows[number].open) {
            number++; /* beyond the last only if a test holds too many: found by the sanitizer */
        }
        fake_window_t *window = &fake->windows[number];
        window->base = (char *)base - fake->outer;
        window->length = length + 2 * fake->outer;
        window->access = access;
        window->generation++;
        window->open = true;
        fake->open_windows++;
        *mr = (regx_mr_t){
            .base = window->base, .length = window->length, .access = access, .handle = window};
        memcpy(mr->key.bytes, &number, sizeof(number));
        memcpy(mr->key.bytes + 4, &window->generation, sizeof(window->generation));
    }
    pthread_mutex_unlock(&fake_lock);
    return status;
}

static inline void fake_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    fake_t *fake = (fake_t *)transport;
    fake_window_t *window = mr->handle;

    pthread_mutex_lock(&fake_lock);
    if (!window->open) {
        abort(); /* deregistered twice */
    }
    window->open = false;
    fake->open_windows--;
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
    pthread_mutex_unlock(&fake_lock);
}

static const regx_transport_ops_t fake_ops = {.abi = REGX_TRANSPORT_ABI,
                                              .name = "fake",
                                              .send = fake_send,
                                              .put = fake_put,
                                              .get = fake_get,
                                              .reg = fake_reg,
                                              .dereg = fake_dereg};

/* ---- what the test lets happen ---- */

/* Ends the `which`-th put that is pending towards `to`: does it, or fails with `status`. false:
 * there is none. */
static inline bool fake_complete(fake_t *fake, unsigned to, unsigned which, regx_status_t status)
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

/* Ends the `which`-th get that is pending from `to`, likewise. */
static inline bool fake_got(fake_t *fake, unsigned to, unsigned which, regx_status_t status)
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

/* Delivers the next frame from that process. false: none is there, or its put is pending. */
static inline bool fake_receive(fake_t *fake, fake_t *from)
{
    fake_conn_t *conn = &from->conns[fake->id];
    fake_frame_t *frame;

    pthread_mutex_lock(&fake_lock);
    frame = conn->head;
    if (frame != NULL && frame->pending == NULL) {
        conn->head = frame->next;
        if (conn->head == NULL) {
            conn->tail = &conn->head;
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

/* Hands the bytes to the process's engine as if they had arrived from that process. */
static inline void fake_arrive(fake_t *fake, uint64_t from, const void *bytes, size_t length)
{
    uint8_t *copy = malloc(length); /* so that reading past the end is found */

    assert_non_null(copy);
    memcpy(copy, bytes, length);
    regx_rndv_control(fake->rndv, from, copy, length);
    free(copy);
}

/* ---- processes ---- */

typedef struct fake_config {
    uint32_t slots;
    size_t slot_size;
    const char *strategy; /* NULL: no engine */
    size_t chunk_size;
    unsigned chunk_depth;
    bool threads;
    bool verify;
    size_t outer;         /* see fake_t */
    uint64_t cache_bytes; /* that are kept; 0: registered per use */
} fake_config_t;

static inline void fake_open_registry(fake_t *fake, const fake_config_t *config)
{
    const regx_cache_config_t cache = {
        .bytes = config->cache_bytes, .count = REGX_UNLIMITED, .inuse = REGX_INUSE_IGNORE};

    if (config->cache_bytes > 0 && fake_watch.changes == NULL) {
        fake_watch.changes = regx_changes_open();
        assert_non_null(fake_watch.changes);
    }
    assert_int_equal(regx_registry_open(&fake->registry, &regx_backend_none,
                                        config->cache_bytes > 0 ? &fake_watch : NULL, &cache,
                                        &fake->transport, &fake->counters),
                     REGX_OK);
}

/* Lets a cache act on changes; how much it does at once is its own choice. */
static inline void fake_settle(fake_t *fake)
{
    for (unsigned i = 0; i < 100; i++) {
        regx_registry_progress(&fake->registry);
    }
    regx_registry_count(&fake->registry);
}

static inline void fake_mismatch(void *context, const regx_peer_t *peer, const char *what)
{
    fake_t *fake = context;

    fake->mismatches++;
    fake->mismatch_peer = peer->id;
    snprintf(fake->mismatch, sizeof(fake->mismatch), "%s", what);
}

static inline fake_t *fake_open(uint64_t id, const fake_config_t *config)
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
                                         .verify = config->verify,
                                         .mismatch = fake_mismatch,
                                         .context = fake};

        assert_non_null(rndv.strategy);
        fake->rndv = regx_rndv_create(&rndv, &fake->pool, &fake->registry, &fake->counters);
        assert_non_null(fake->rndv);
    }
    return fake;
}

static inline void fake_connect(fake_t *from, fake_t *to, bool shares_pool)
{
    fake_conn_t *conn = &from->conns[to->id];

    conn->conn = (regx_conn_t){
        .transport = &from->transport, .peer = to->id, .wire = "fake", .shares_pool = shares_pool};
    conn->from = from;
    conn->to = to;
    conn->tail = &conn->head;
    from->peers[to->id] = (regx_peer_t){.id = to->id, .conn = &conn->conn};
}

/* Asserts that nothing is left: no slot, no registration, no frame, no bytes granted. */
static inline void fake_assert_idle(const fake_t *fake)
{
    assert_int_equal(fake->pool.unused, fake->pool.slots);
    assert_int_equal(fake->open_windows, 0);
    assert_int_equal(fake->counters.registrations, fake->counters.deregistrations);
    /* With outer regions what is registered is not what was asked for. */
    assert_true(fake->counters.registered_bytes == 0 || fake->outer > 0);
    for (int i = 0; i < FAKE_PROCESSES; i++) {
        assert_null(fake->conns[i].head);
        assert_int_equal(fake->conns[i].get_count, 0);
        assert_int_equal(fake->peers[i].granted, 0);
    }
}

static inline void fake_close(fake_t *fake)
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

#endif
