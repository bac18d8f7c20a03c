/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between fake processes (fake.h): it delivers when the test says so, answers what
 * the test's rule says, and checks every put and get against what was registered and of what size
 * the pool is.
 */
#ifndef REGX_TEST_FAKE_WIRE_H
#define REGX_TEST_FAKE_WIRE_H

#include "../guarded.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "rendezvous/rendezvous.h"

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

/* Whether frames overtake those whose put is pending, as on a node. */
static bool fake_overtaking;

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

#endif
