/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a source was granted and has not used yet: a queue, in the order in which it came.
 */
#include "rendezvous/source.h"

static void queue_grant(regx_source_t *source, const regx_grant_t *grant)
{
    source->queue[(source->first + source->count++) % REGX_GRANTS_MAX] = *grant;
    source->granted += grant->length;
}

static void drop_grant(regx_source_t *source)
{
    source->first = (source->first + 1) % REGX_GRANTS_MAX;
    source->count--;
}

regx_grant_t regx_source_next_piece(regx_source_t *source)
{
    regx_grant_t *next = &source->queue[source->first];
    const bool whole = !next->chunk || next->length <= source->piece_most;

    next->piece |= !whole;
    regx_grant_t piece = *next;
    if (whole) {
        drop_grant(source);
        return piece;
    }
    piece.length = source->piece_most;
    next->offset += piece.length;
    next->place += piece.length;
    next->length -= piece.length;
    return piece;
}

/* Whether grants of `length` bytes together fit this transfer: inside it, not more than there is,
 * room in the queue. */
static bool acceptable(const regx_source_t *source, uint64_t offset, uint64_t length,
                       unsigned count)
{
    return length > 0 && offset <= source->length && length <= source->length - offset &&
           length <= source->length - source->granted && source->count + count <= REGX_GRANTS_MAX;
}

uint64_t regx_source_take_rest(regx_source_t *source, uint64_t offset)
{
    const regx_grant_t *next = &source->queue[source->first];
    const bool more = source->count > 0 && next->piece && next->offset == offset;

    if (more) {
        drop_grant(source);
    }
    return more ? next->length : 0;
}

bool regx_source_take_slots(regx_source_t *source, uint64_t offset, const regx_slot_grant_t *slots,
                            unsigned count)
{
    uint64_t length = 0;

    for (unsigned i = 0; i < count; i++) {
        if (slots[i].length == 0) {
            return false;
        }
        length += slots[i].length;
    }
    if (!acceptable(source, offset, length, count)) {
        return false;
    }
    if (source->path != REGX_PATH_bounce) {
        source->fallback = true; /* the receiver could not register these bytes */
    }
    for (unsigned i = 0; i < count; i++) {
        const regx_grant_t grant = {
            .offset = offset, .length = slots[i].length, .place = slots[i].slot};

        queue_grant(source, &grant);
        offset += grant.length;
    }
    return true;
}

/* Where in the region it begins is for the transport to check, which knows what a key is worth. */
bool regx_source_take_chunk(regx_source_t *source, uint64_t offset, uint64_t length, uint64_t start,
                            const regx_key_t *key)
{
    const regx_grant_t grant = {
        .offset = offset, .length = length, .chunk = true, .place = start, .key = *key};

    if (source->path == REGX_PATH_read || !acceptable(source, offset, length, 1)) {
        return false;
    }
    queue_grant(source, &grant);
    return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The landing is to read what is behind a granted chunk, and both ends' limits hold. false: from
 * here it cannot. */
static bool take_read(const regx_rndv_t *rndv, regx_source_t *source, const regx_cts_t *cts)
{
    if (source->peer->conn->transport->ops->get == NULL) {
        return false;
    }
    source->expose_most = least(cts->exposed_most, rndv->config.chunk_size);
    source->expose_depth = (unsigned)least(cts->exposures, rndv->config.chunk_depth);
    source->exposed = source->granted;
    source->granted = source->length;
    return true;
}

bool regx_source_take_first_grants(const regx_rndv_t *rndv, regx_source_t *source,
                                   const regx_cts_t *cts)
{
    if ((cts->slot_count > 0 && !regx_source_take_slots(source, 0, cts->slots, cts->slot_count)) ||
        (cts->chunk_length > 0 &&
         !regx_source_take_chunk(source, 0, cts->chunk_length, cts->chunk_start, &cts->key))) {
        return false;
    }
    if (regx_path_reads(cts->path)) {
        return take_read(rndv, source, cts);
    }
    source->introduced = source->granted == source->length;
    source->start_due =
        source->count == 0 || (cts->chunk_length > 0 && cts->chunk_length < source->length);
    return true;
}

/* The landing needs to hear of pieces in their order. Where puts are the kernel's copies within the
 * node, they end later than what is sent behind them: no pieces there (the receiver's way back may
 * be another wire, so it may have offered them). */
uint64_t regx_source_piece_most(const regx_rndv_t *rndv, const regx_peer_t *peer, const void *base,
                                const regx_cts_t *cts)
{
    const uint64_t chunk = rndv->config.chunk_size;
    const bool cut = cts->pieces && cts->chunk_length > chunk && !peer->conn->shares_pool &&
                     !regx_rndv_knows(rndv, base, cts->chunk_length, REGX_ACCESS_LOCAL);

    return cut ? chunk : UINT64_MAX;
}
