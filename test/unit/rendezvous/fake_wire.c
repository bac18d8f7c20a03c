/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_wire.h"

bool fake_immediates;
_Atomic unsigned fake_immediate_count;

bool fake_overtaking;

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static regx_status_t fake_answer(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    fake->calls[call]++;
    return fake->rule == NULL ? REGX_OK : fake->rule(fake, call, put);
}

void fake_append(fake_conn_t *conn, uint8_t tag, const void *data, size_t length,
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

static regx_status_t fake_send(regx_conn_t *base, uint8_t tag, const void *header,
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

/* In the place of a window's number: what was exposed. Base and length follow. */
#define EXPOSED UINT32_MAX

static void fake_expose(const void *base, size_t length, regx_key_t *key)
{
    const uint32_t number = EXPOSED;

    memset(key, 0, sizeof(*key));
    memcpy(key->bytes, &number, sizeof(number));
    memcpy(key->bytes + 8, &base, sizeof(base));
    memcpy(key->bytes + 16, &length, sizeof(length));
}

/* In the place of the window's generation: what is staged. */
static const uint32_t staged = 1;

static bool fake_stage(regx_conn_t *base, const void *from, size_t length, regx_key_t *key)
{
    fake_t *fake = ((fake_conn_t *)base)->from;

    (void)from;
    if (!fake->stages || length > REGX_STAGE_SIZE) {
        return false;
    }
    memcpy(key->bytes + 4, &staged, sizeof(staged));
    fake->staged++;
    return true;
}

static void fake_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    if (memcmp(key->bytes + 4, &staged, sizeof(staged)) != 0) {
        abort();
    }
    ((fake_t *)transport)->unstaged++;
}

static char *fake_exposed(const regx_key_t *key, uint64_t offset, size_t length)
{
    size_t all;
    char *base;

    memcpy(&base, key->bytes + 8, sizeof(base));
    memcpy(&all, key->bytes + 16, sizeof(all));
    return offset <= all && length <= all - offset ? base + offset : NULL;
}

/* Memory of that process that the key names, or NULL if it has not published that. */
static char *fake_keyed(const fake_t *fake, const regx_key_t *key, unsigned access, uint64_t offset,
                        size_t length)
{
    uint32_t number;
    uint32_t generation;

    memcpy(&number, key->bytes, sizeof(number));
    memcpy(&generation, key->bytes + 4, sizeof(generation));
    if (number == EXPOSED && access == REGX_ACCESS_REMOTE_READ) {
        return fake_exposed(key, offset, length);
    }
    if (number >= FAKE_WINDOWS) {
        return NULL;
    }
    const fake_window_t *window = &fake->windows[number];
    return window->open && window->generation == generation && (window->access & access) != 0 &&
                   offset <= window->length && length <= window->length - offset
               ? window->base + offset
               : NULL;
}

char *fake_target(const fake_conn_t *conn, const regx_put_t *put)
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

void fake_write(const fake_conn_t *conn, const regx_put_t *put, char *to)
{
    const fake_window_t *window = put->region != NULL ? put->region->handle : NULL;

    if (window != NULL &&
        (!window->open || (window->access & REGX_ACCESS_LOCAL) == 0 ||
         (const char *)put->local < window->base ||
         (const char *)put->local + put->length > window->base + window->length)) {
        abort(); /* what is written from must be registered for it until then */
    }
    memcpy(to, put->local, put->length);
    if (conn->from->corrupt != NULL) {
        conn->from->corrupt(conn->from, put->local, put->length, to);
    }
}

bool fake_read(const fake_conn_t *conn, const regx_get_t *get)
{
    const char *from =
        fake_keyed(conn->to, &get->key, REGX_ACCESS_REMOTE_READ, get->offset, get->length);
    const fake_window_t *into = get->region != NULL ? get->region->handle : NULL;
    const unsigned needed =
        conn->from->gets_into_targets ? REGX_ACCESS_ANY_WRITE : REGX_ACCESS_LOCAL_WRITE;

    if (into == NULL && conn->conn.single_copy) {
        /* the kernel copies, and asks for no registration */
    } else if (into == NULL || !into->open || (into->access & needed) == 0 ||
               (char *)get->local < into->base ||
               (char *)get->local + get->length > into->base + into->length) {
        abort(); /* the caller's memory must be registered for it */
    }
    if (from == NULL) {
        return false;
    }
    memcpy(get->local, from, get->length);
    if (conn->from->corrupt != NULL) {
        conn->from->corrupt(conn->from, from, get->length, get->local);
    }
    return true;
}

static regx_status_t fake_get(regx_conn_t *base, regx_get_t *get)
{
    fake_conn_t *conn = (fake_conn_t *)base;
    regx_status_t status;

    pthread_mutex_lock(&fake_lock);
    status = fake_answer(conn->from, FAKE_GET, NULL);
    if ((status == REGX_OK || status == REGX_PENDING) &&
        fake_keyed(conn->to, &get->key, REGX_ACCESS_REMOTE_READ, get->offset, get->length) ==
            NULL) {
        status = REGX_INVALID;
    } else if ((status == REGX_OK || status == REGX_PENDING) && get->staged &&
               memcmp(get->key.bytes + 4, &staged, sizeof(staged)) != 0) {
        status = REGX_AGAIN;
    } else if (status == REGX_OK || status == REGX_PENDING) {
        status = REGX_PENDING;
        if (conn->get_count == FAKE_GETS) {
            abort();
        }
        conn->gets[conn->get_count++] = get;
        conn->from->assisted += get->assisted;
    }
    pthread_mutex_unlock(&fake_lock);
    return status;
}

static regx_status_t fake_put(regx_conn_t *base, regx_put_t *put)
{
    fake_conn_t *conn = (fake_conn_t *)base;
    regx_status_t status;

    pthread_mutex_lock(&fake_lock);
    assert_false(put->silent); /* the peer waits for the notice */
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

regx_status_t fake_reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                       regx_mr_t *mr)
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

void fake_dereg(regx_transport_t *transport, regx_mr_t *mr)
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

const regx_transport_ops_t fake_ops = {.abi = REGX_TRANSPORT_ABI,
                                       .name = "fake",
                                       .send = fake_send,
                                       .put = fake_put,
                                       .get = fake_get,
                                       .copies = true,
                                       .expose = fake_expose,
                                       .stage = fake_stage,
                                       .unstage = fake_unstage,
                                       .reg = fake_reg,
                                       .dereg = fake_dereg};
