/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Granting slots of the pool (path bounce), and copying them out.
 */
#include <string.h>

#include "rendezvous/careful.h"
#include "rendezvous/landing.h"

/* A lone message is cut finely, most so at both ends, and the copy in runs no further ahead than
 * LONE_WINDOW: the copy out begins early, finds its bytes in the cache, and ends soon after. In a
 * stream of messages others fill those gaps, and fewer notices are better. */
#define FINEST_PIECE (16u * 1024u)
#define FINE_PIECE (32u * 1024u)
#define LONE_PIECE (64u * 1024u)
#define LONG_PIECE (128u * 1024u) /* of what is longer than the window: fewer notices, again */
#define LONE_WINDOW (1024u * 1024u)
#define FINEST_MESSAGE (64u * 1024u)

/* What the peer may hold granted when more is granted to this one. It may also not hold more slots
 * than are left, so that several that stop in mid-transfer leave some to others (dynamic
 * thresholds: Choudhury and Hahne, 1998); of either a notice of its own lets it go on. */
static size_t window_of(const regx_rndv_t *rndv, const regx_landing_t *landing)
{
    return landing->alone && rndv->window > LONE_WINDOW ? LONE_WINDOW : rndv->window;
}

static uint32_t piece_length(const regx_rndv_t *rndv, const regx_landing_t *landing,
                             uint64_t offset, uint64_t left)
{
    const uint64_t slot = rndv->pool->slot_size;
    const uint64_t fine = landing->length <= FINEST_MESSAGE ? FINEST_PIECE : FINE_PIECE;
    uint64_t piece = slot;

    if (landing->alone) {
        const uint64_t most = landing->length > LONE_WINDOW ? LONG_PIECE : LONE_PIECE;
        const uint64_t near_end = offset < left / 2 ? offset : left / 2;

        piece = near_end > fine ? near_end & ~(uint64_t)(FINEST_PIECE - 1) : fine;
        piece = piece < most ? piece : most;
    }
    piece = piece < slot ? piece : slot;
    return (uint32_t)(left < piece ? left : piece);
}

/* The first range that is still to be granted as slots. Chunk -1: the tail of the message. */
static bool next_range(const regx_rndv_t *rndv, const regx_landing_t *landing, int *chunk,
                       uint64_t *offset, uint64_t *length)
{
    for (unsigned i = 0; i < regx_landing_chunks(rndv) && landing->path != REGX_PATH_bounce; i++) {
        if (landing->chunks[i].state == REGX_CHUNK_REDO) {
            *chunk = (int)i;
            *offset = landing->chunks[i].offset;
            *length = landing->chunks[i].length;
            return true;
        }
    }
    *chunk = -1;
    *offset = landing->granted;
    *length = landing->length - landing->granted;
    return landing->slots_only && *length > 0;
}

static void range_granted(regx_landing_t *landing, int index, uint64_t length)
{
    if (index < 0) {
        landing->granted += length;
        return;
    }
    regx_chunk_t *chunk = &landing->chunks[index];
    chunk->offset += length;
    chunk->length -= length;
    if (chunk->length == 0) {
        chunk->state = REGX_CHUNK_FREE;
    }
}

/* Not locked, but busy. */
static void copy_out(const regx_rndv_t *rndv, regx_landing_t *landing,
                     const regx_control_t *control, const char *slot)
{
    char *to = landing->base + control->offset;

    if (!landing->careful) {
        memcpy(to, slot, control->length);
    } else if (!regx_careful_write(to, slot, control->length)) {
        regx_tally(rndv->counters->fallbacks, "receiver: buffer unmapped in mid-transfer");
        return; /* there is nothing to verify */
    }
    regx_landing_verify(rndv, landing, control);
}

/* Grants consecutive pieces of the next range, up to `most`; returns how many. `reserve` slots of
 * the pool stay free. `dry` tells whether the pool was the limit. */
static unsigned grant(regx_rndv_t *rndv, regx_landing_t *landing, uint32_t reserve, unsigned most,
                      uint64_t *start, regx_slot_grant_t *grants, bool *dry)
{
    int chunk;
    uint64_t offset, left;
    unsigned count = 0;

    *dry = false;
    if (!next_range(rndv, landing, &chunk, &offset, &left)) {
        return 0;
    }
    if (landing->granted == 0) {
        landing->alone = landing->peer->granted == 0;
    }
    *start = offset;
    while (count < most && left > 0 && landing->slots_out + landing->chunks_out < REGX_GRANTS_MAX) {
        const uint32_t length = piece_length(rndv, landing, offset, left);
        const bool full = landing->peer->granted > 0 &&
                          (landing->peer->granted + length > window_of(rndv, landing) ||
                           landing->peer->slots >= regx_pool_unused(rndv->pool));

        if (full) {
            break;
        }
        const uint32_t slot =
            regx_pool_unused(rndv->pool) > reserve ? regx_pool_get(rndv->pool) : REGX_SLOT_NONE;
        if (slot == REGX_SLOT_NONE) {
            *dry = true;
            break;
        }
        rndv->slots[slot] =
            (regx_slot_use_t){.landing = landing, .offset = offset, .length = length};
        grants[count++] = (regx_slot_grant_t){(uint32_t)(slot * rndv->pool->slot_size), length};
        landing->peer->granted += length;
        landing->peer->slots++;
        landing->slots_out++;
        range_granted(landing, chunk, length);
        offset += length;
        left -= length;
    }
    return count;
}

static void release(regx_rndv_t *rndv, regx_landing_t *landing, uint32_t slot)
{
    landing->peer->granted -= rndv->slots[slot].length;
    landing->peer->slots--;
    landing->slots_out--;
    rndv->slots[slot].landing = NULL;
    regx_pool_put(rndv->pool, slot);
}

/* A peer that does not answer could hold what a CTS grants for long: half of the pool is kept for
 * transfers that have started, and those that wait go first. */
void regx_landing_first_slots_locked(regx_rndv_t *rndv, regx_landing_t *landing, regx_cts_t *cts)
{
    uint64_t start;
    bool dry;

    if (regx_list_empty(&rndv->hungry)) {
        cts->slot_count =
            grant(rndv, landing, rndv->pool->slots / 2, REGX_CTS_SLOTS, &start, cts->slots, &dry);
        regx_count(rndv->counters, &rndv->counters->grants, cts->slot_count);
    }
}

bool regx_landing_wants_slots_locked(const regx_rndv_t *rndv, const regx_landing_t *landing)
{
    int chunk;
    uint64_t offset, length;

    return next_range(rndv, landing, &chunk, &offset, &length);
}

void regx_landing_grant_slots_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    const size_t window = window_of(rndv, landing);

    if (landing->peer->granted > window - window / 8) {
        return; /* until an eighth can be granted at once, which spares messages */
    }
    while (!landing->has_unsent && regx_landing_wants_slots_locked(rndv, landing)) {
        regx_control_t message = {.type = REGX_CONTROL_SLOTS, .to = landing->source};

        bool dry;

        message.slot_count =
            grant(rndv, landing, 0, REGX_MESSAGE_SLOTS, &message.offset, message.slots, &dry);
        if (message.slot_count == 0) {
            if (dry) {
                regx_count(rndv->counters, &rndv->counters->grant_stalls, !landing->stalled);
                landing->stalled = true;
                atomic_store_explicit(&rndv->dry, true, memory_order_relaxed);
            }
            break;
        }
        landing->stalled = false;
        regx_count(rndv->counters, &rndv->counters->grants, message.slot_count);
        regx_landing_send_locked(landing, &message);
    }
}

bool regx_landing_written_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                 const regx_control_t *control)
{
    const regx_pool_t *pool = rndv->pool;
    const uint32_t slot = (uint32_t)(control->slot / pool->slot_size);

    if (control->slot % pool->slot_size != 0 || slot >= pool->slots ||
        rndv->slots[slot].landing != landing || rndv->slots[slot].offset != control->offset ||
        rndv->slots[slot].length != control->length) {
        return false;
    }
    landing->busy = true;
    regx_unlock(&rndv->lock);
    if (landing->slots_only && landing->granted < landing->length) {
        regx_peer_warm(landing->peer); /* the next grant follows the copy */
    }
    copy_out(rndv, landing, control, regx_pool_slot(pool, slot));
    regx_lock(&rndv->lock);
    landing->busy = false;
    landing->landed += control->length;
    landing->by_slots = true;
    regx_count(rndv->counters, &rndv->counters->copied_out_bytes, control->length);
    release(rndv, landing, slot);
    return true;
}

void regx_landing_revoke_slots_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    for (uint32_t slot = 0; landing->slots_out > 0 && slot < rndv->pool->slots; slot++) {
        if (rndv->slots[slot].landing == landing) {
            release(rndv, landing, slot);
        }
    }
}
