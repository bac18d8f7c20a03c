/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end whose memory is put to and got from. A process that asks is known by its id and its file;
 * what it asks for is done in order. Nothing that it says is trusted: a frame that no initiator
 * sends is counted as malformed and dropped, and each piece is checked by what is registered now.
 */
#include "transport/pinned/pinned.h"

#include <stdlib.h>
#include <string.h>

#define PEERS_MAX REGX_SHM_NEIGHBOURS_MAX

struct regx_pinned_peer {
    uint64_t process;
    regx_pinned_cells_t cells;
    uint32_t taken, answered; /* pieces */
    regx_pinned_ask_t asks[REGX_PINNED_CELLS];
    bool failed; /* a piece of that operation, of which nothing more is done */
    uint32_t failed_op;
};

/* ---- peers ---- */

/* Where in the list who asks by that file is; behind its end: nowhere. */
static size_t find(const regx_pinned_t *pinned, uint64_t process, const regx_shm_file_t *file)
{
    size_t i = 0;

    while (i < pinned->peer_count && (pinned->peers[i]->process != process ||
                                      pinned->peers[i]->cells.name.inode != file->inode ||
                                      pinned->peers[i]->cells.name.device != file->device)) {
        i++;
    }
    return i;
}

static bool make_room(regx_pinned_t *pinned)
{
    const size_t room = pinned->peer_room == 0 ? 8 : 2 * pinned->peer_room;

    if (pinned->peer_count < pinned->peer_room) {
        return true;
    }
    regx_pinned_peer_t **more = pinned->peer_count < PEERS_MAX
                                    ? realloc(pinned->peers, room * sizeof(regx_pinned_peer_t *))
                                    : NULL;
    if (more != NULL) {
        pinned->peers = more;
        pinned->peer_room = room;
    }
    return more != NULL;
}

/* One that asks for the first time, by this file. That it cannot be opened is told when it is its
 * turn. NULL: no memory. */
static regx_pinned_peer_t *add(regx_pinned_t *pinned, uint64_t process,
                               const regx_pinned_ask_t *ask)
{
    regx_pinned_peer_t *peer = make_room(pinned) ? calloc(1, sizeof(*peer)) : NULL;

    if (peer != NULL) {
        peer->process = process;
        regx_pinned_cells_open(&peer->cells, ask);
        pinned->peers[pinned->peer_count++] = peer;
    }
    return peer;
}

static void drop(regx_pinned_t *pinned, size_t at)
{
    regx_pinned_peer_t *peer = pinned->peers[at];

    pinned->awaited -= peer->taken - peer->answered;
    regx_pinned_cells_close(&peer->cells);
    free(peer);
    pinned->peers[at] = pinned->peers[--pinned->peer_count];
}

void regx_pinned_drop_peers(regx_pinned_t *pinned)
{
    while (pinned->peer_count > 0) {
        drop(pinned, pinned->peer_count - 1);
    }
    free(pinned->peers);
}

/* ---- frames ---- */

void regx_pinned_take(regx_pinned_t *pinned, uint64_t sender, const void *data, size_t length)
{
    regx_pinned_ask_t ask;

    if (length != sizeof(ask)) {
        regx_count_malformed(pinned->config.counters);
        return;
    }
    memcpy(&ask, data, sizeof(ask));
    if (ask.kind == REGX_PINNED_DENIED) {
        regx_pinned_denied(pinned, sender, &ask.file);
        return;
    }
    const size_t at = find(pinned, sender, &ask.file);
    regx_pinned_peer_t *peer = at < pinned->peer_count ? pinned->peers[at] : NULL;
    if (ask.kind == REGX_PINNED_LEFT) {
        if (peer != NULL) {
            drop(pinned, at);
        }
        return;
    }
    if (peer == NULL && (peer = add(pinned, sender, &ask)) == NULL) {
        const regx_transport_events_t *events = &pinned->config.events;

        events->broken(events->context, sender, "no memory for what it puts and gets");
        return;
    }
    if (ask.kind > REGX_PINNED_GET || ask.number != peer->taken ||
        peer->taken - peer->answered == REGX_PINNED_CELLS || ask.length > REGX_PINNED_PIECE_MAX ||
        ask.notice_length > REGX_NOTICE_MAX) {
        regx_count_malformed(pinned->config.counters);
        return;
    }
    peer->asks[peer->taken++ % REGX_PINNED_CELLS] = ask;
    pinned->awaited++;
}

/* ---- pieces ---- */

static void deliver(regx_pinned_t *pinned, uint64_t process, const regx_pinned_ask_t *ask)
{
    const regx_transport_events_t *events = &pinned->config.events;

    pinned->delivering = true;
    events->deliver(events->context, process, ask->tag, ask->notice, ask->notice_length);
    pinned->delivering = false;
}

/* The oldest piece is done, or is not. */
static void answer(regx_pinned_t *pinned, regx_pinned_peer_t *peer, bool done)
{
    const regx_pinned_ask_t ask = peer->asks[peer->answered % REGX_PINNED_CELLS];
    const uint64_t how = done ? REGX_PINNED_DONE : REGX_PINNED_REFUSED;
    const uint64_t process = peer->process;

    if (!done) {
        peer->failed = true;
        peer->failed_op = ask.op;
    }
    peer->answered++;
    pinned->awaited--;
    /* After this the initiator may use its cell, or get from it. */
    atomic_store_explicit(&peer->cells.head->answers[ask.number % REGX_PINNED_CELLS],
                          (uint64_t)(uint32_t)(ask.number + 1) << 32 | how, memory_order_release);
    if (done && ask.kind == REGX_PINNED_PUT && ask.last) {
        deliver(pinned, process, &ask);
    }
}

/* All that it has asked is dropped by both. false: it cannot be told now. */
static bool deny(regx_pinned_t *pinned, regx_pinned_peer_t *peer)
{
    if (regx_pinned_deny(pinned, peer->process, &peer->cells.name) == REGX_AGAIN) {
        return false;
    }
    pinned->awaited -= peer->taken - peer->answered;
    peer->answered = peer->taken;
    return true;
}

static bool step(regx_pinned_t *pinned, regx_pinned_peer_t *peer)
{
    const regx_pinned_ask_t *ask = &peer->asks[peer->answered % REGX_PINNED_CELLS];
    const bool put = ask->kind == REGX_PINNED_PUT;
    const regx_pinned_key_t key = {.slot = ask->slot, .generation = ask->generation};
    regx_status_t status = REGX_DENIED;

    if (peer->taken == peer->answered) {
        return false;
    }
    if (peer->cells.head == NULL) {
        return deny(pinned, peer);
    }
    if (!peer->failed || peer->failed_op != ask->op) {
        status = regx_pinned_copy(pinned, !put, &key, ask->offset, ask->length,
                                  put ? REGX_ACCESS_REMOTE_WRITE : REGX_ACCESS_REMOTE_READ,
                                  &peer->cells, ask->number);
        if (status == REGX_DENIED) {
            regx_count(pinned->config.counters, &pinned->config.counters->pinned_refused, 1);
        }
    }
    if (status == REGX_AGAIN) {
        return false;
    }
    answer(pinned, peer, status == REGX_OK);
    return true;
}

int regx_pinned_serve(regx_pinned_t *pinned)
{
    size_t idle = 0; /* peers in a row for which nothing could be done */
    int events = 0;

    pinned->copied = 0;
    while (pinned->awaited > 0 && idle < pinned->peer_count && pinned->copied < REGX_PINNED_ROUND) {
        pinned->peer_next = (pinned->peer_next + 1) % pinned->peer_count;
        const bool done = step(pinned, pinned->peers[pinned->peer_next]);

        idle = done ? 0 : idle + 1;
        events += done;
    }
    return events;
}
