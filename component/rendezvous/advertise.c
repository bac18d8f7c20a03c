/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The send side of a get: registers chunks of the buffer and advertises them (RKEY), and gives each
 * up when the receiver has read it, or not (ATS). See get.c.
 */
#include "rendezvous/get.h"

#include <assert.h>
#include <stdlib.h>

#include "base/util.h"
#include "rendezvous/bounce.h"
#include "rendezvous/checksum.h"
#include "rendezvous/refusal.h"
#include "rendezvous/write.h"

/* A chunk that is, or is about to be, advertised. */
struct regx_rkey {
    struct regx_rkey *next;
    uint64_t offset;
    uint64_t length;
    uint64_t checksum; /* valid if the send is to verify */
    regx_region_t region;
    const regx_rndv_send_t *send;
    bool withdrawn; /* it was registered too late: no RKEY is sent, and it is to be given up */
    bool unread;    /* ATS: the receiver did not read it */
    bool failed;    /* ATS: the receiver tried to read it, and failed */
};

bool regx_get_send_open(const regx_rndv_t *rndv, regx_rndv_send_t *send, const regx_cts_t *cts)
{
    if (send->peer->conn->transport->ops->get == NULL) {
        return false;
    }
    send->get.state = REGX_ADVERTISING;
    send->get.max = regx_min(cts->rkey_max, rndv->config.chunk_size);
    send->get.depth = (unsigned)regx_min(cts->rkeys, rndv->config.chunk_depth);
    send->get.next = send->granted;
    send->granted = send->length;
    return true;
}

/* What is not yet advertised goes by slots. */
static void stop_advertising_locked(regx_rndv_send_t *send)
{
    if (send->get.state == REGX_ADVERTISING) {
        const uint64_t rest = send->length - send->get.next;

        send->granted -= rest;
        send->get.state = rest > 0 ? REGX_ADVERTISING_NACK_DUE : REGX_ADVERTISING_OVER;
    }
    send->fallback = true;
}

static regx_status_t send_rkey(const regx_rndv_send_t *send, const regx_rkey_t *rkey)
{
    const regx_mr_t *mr = rkey->region.mr;
    regx_control_t message = regx_send_message(send, REGX_CONTROL_RKEY);

    message.offset = rkey->offset;
    message.length = rkey->length;
    message.start = (uint64_t)(send->base + rkey->offset - (const char *)mr->base);
    message.key = mr->key;
    message.has_checksum = send->verify;
    message.checksum = rkey->checksum;
    /* Another core may read the bytes. Also what the program stored past the caches (movnt) must be
     * visible before the message. A fence by itself, which the thread sanitizer takes. */
    regx_fence_stores();
    return regx_channel_send(send->peer, &message);
}

regx_status_t regx_get_flush_locked(regx_rndv_send_t *send)
{
    regx_status_t status = REGX_OK;

    if (send->get.unsent != NULL) {
        status = send_rkey(send, send->get.unsent);
        if (status != REGX_OK) {
            return status;
        }
        send->get.unsent = NULL;
    }
    if (send->get.state == REGX_ADVERTISING_NACK_DUE) {
        regx_control_t nack = regx_send_message(send, REGX_CONTROL_NACK);

        nack.offset = send->get.next;
        nack.length = send->length - send->get.next;
        nack.failed = send->buffer_suspect;
        nack.permanent = send->get.never;
        status = regx_channel_send(send->peer, &nack);
        if (status == REGX_OK) {
            send->get.state = REGX_ADVERTISING_OVER;
        }
    }
    return status;
}

static regx_status_t act_register(regx_rndv_t *rndv, void *object)
{
    regx_rkey_t *rkey = object;
    const char *base = rkey->send->base + rkey->offset;

    if (rkey->send->verify) {
        rkey->checksum = regx_checksum(base, rkey->length);
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)base, rkey->length,
                            REGX_ACCESS_REMOTE_READ, &rkey->region);
    if (status != REGX_OK) {
        regx_refusal_tally(rndv, REGX_SENDER, status, &rkey->region, base, rkey->length);
    }
    return status;
}

static regx_status_t registered_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                       regx_status_t status)
{
    regx_rkey_t *rkey = object;

    if (status != REGX_OK) {
        free(rkey);
        send->buffer_suspect |= status == REGX_DENIED;
        send->get.never = status == REGX_INVALID;
        stop_advertising_locked(send);
        return REGX_OK;
    }
    rkey->next = send->get.rkeys;
    send->get.rkeys = rkey;
    send->get.count++;
    send->in_flight++;
    rkey->withdrawn = send->get.state != REGX_ADVERTISING; /* the receiver left another meanwhile */
    if (!rkey->withdrawn) {
        assert(send->get.unsent == NULL);
        send->get.unsent = rkey;
        send->get.next += rkey->length;
        regx_count_high(&rndv->counters->chunks_high, send->get.count);
    }
    return REGX_OK;
}

static const regx_work_ops_t register_ops = {.act = act_register,
                                             .acted_locked = registered_locked};

/* Gives a registration up. If reading it failed the buffer may have been unmapped, which is looked
 * for while it still counts as in use. */
static regx_status_t act_release(regx_rndv_t *rndv, void *object)
{
    regx_rkey_t *rkey = object;

    if (rkey->failed) {
        regx_registry_progress(rndv->registry);
    }
    regx_region_release(rndv->registry, &rkey->region);
    return REGX_OK;
}

static regx_status_t dropped_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                    regx_status_t status)
{
    (void)rndv;
    assert(send->get.count > 0 && send->in_flight > 0);
    send->get.count--;
    send->in_flight--;
    free(object);
    return status;
}

static regx_status_t acknowledged_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, void *object,
                                         regx_status_t status)
{
    const regx_rkey_t *rkey = object;

    if (rkey->unread) {
        send->granted -= rkey->length;
        send->buffer_suspect |= rkey->failed;
        stop_advertising_locked(send);
    } else {
        send->sent += rkey->length;
    }
    return dropped_locked(rndv, send, object, status);
}

static const regx_work_ops_t drop_ops = {.act = act_release, .acted_locked = dropped_locked};
static const regx_work_ops_t ats_ops = {.act = act_release, .acted_locked = acknowledged_locked};

/* Takes out the first chunk that no peer can read: it was withdrawn or not yet told, or the peer is
 * gone. NULL: there is none. */
static regx_rkey_t *take_unreadable_locked(regx_rndv_send_t *send)
{
    const bool gone = send->status == REGX_UNREACHABLE;
    const bool failed = send->status != REGX_OK;

    for (regx_rkey_t **at = &send->get.rkeys; *at != NULL; at = &(*at)->next) {
        regx_rkey_t *rkey = *at;

        if (gone || rkey->withdrawn || (failed && rkey == send->get.unsent)) {
            *at = rkey->next;
            send->get.unsent = rkey == send->get.unsent ? NULL : send->get.unsent;
            return rkey;
        }
    }
    return NULL;
}

static bool drop_unreadable_locked(regx_rndv_send_t *send, regx_send_work_t *work)
{
    regx_rkey_t *rkey = take_unreadable_locked(send);

    if (rkey != NULL) {
        *work = (regx_send_work_t){&drop_ops, rkey};
    }
    return rkey != NULL;
}

regx_status_t regx_get_next_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                   regx_send_work_t *work)
{
    const regx_status_t status = regx_write_next_locked(rndv, send, work);

    if (status != REGX_PENDING) {
        return status;
    }
    if (drop_unreadable_locked(send, work)) {
        return REGX_OK;
    }
    const uint64_t length = regx_min(send->length - send->get.next, send->get.max);
    if (send->get.state != REGX_ADVERTISING || length == 0 || send->get.count == send->get.depth) {
        return REGX_PENDING;
    }
    regx_rkey_t *rkey = malloc(sizeof(*rkey));
    if (rkey == NULL) {
        return REGX_AGAIN;
    }
    rkey->offset = send->get.next;
    rkey->length = length;
    rkey->send = send;
    rkey->unread = rkey->failed = false;
    work->ops = &register_ops;
    work->object = rkey;
    return REGX_OK;
}

bool regx_get_send_control_locked(regx_rndv_t *rndv, regx_rndv_send_t *send,
                                  const regx_control_t *control, regx_send_work_t *work)
{
    regx_rkey_t **at = &send->get.rkeys;

    if (control->type != REGX_CONTROL_ATS) {
        return regx_bounce_send_control_locked(rndv, send, control, work);
    }
    while (*at != NULL && ((*at)->offset != control->offset || (*at)->length != control->length)) {
        at = &(*at)->next;
    }
    regx_rkey_t *rkey = *at;
    if (rkey == NULL || rkey == send->get.unsent || rkey->withdrawn) {
        return false;
    }
    *at = rkey->next;
    rkey->unread = control->unread;
    rkey->failed = control->failed;
    *work = (regx_send_work_t){&ats_ops, rkey};
    return true;
}

bool regx_get_drop_locked(regx_rndv_t *rndv, regx_rndv_send_t *send, regx_send_work_t *work)
{
    send->get.state = REGX_ADVERTISING_OVER;
    return regx_write_drop_locked(rndv, send, work) || drop_unreadable_locked(send, work);
}
