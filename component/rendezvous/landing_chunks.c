/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Granting registered chunks of the user's buffer (paths pipeline, direct and together). Chunks
 * are cut at multiples of the chunk size from the transfer's base; direct has one chunk, the whole;
 * together one, the first half: the other is got (landing_gets.c). One, the whole, has also
 * pipeline, by the strategy auto, where the buffer has been received into before and is no longer
 * than what could be in flight at once: there is no registration to overlap with the wire, and one
 * grant takes fewer messages. A sender to whom its buffer is new writes it in chunks all the same.
 *
 * A chunk may be served by a region that was registered for more. Should the buffer be unmapped
 * while it is granted, the region is dead: no later chunk gets it, but this one is drained like
 * any other, and the region ends with its last use.
 */
#include "rendezvous/landing.h"

#include "rendezvous/refusal.h"
#include "rendezvous/strategy.h"

#define PAGE 4096u

/* Half, in whole pages, so that no page is copied to by both. */
static uint64_t first_half(const regx_landing_t *landing)
{
    const uint64_t end = (uintptr_t)landing->base + landing->length / 2;
    const uint64_t length = (end + PAGE - 1) / PAGE * PAGE - (uintptr_t)landing->base;

    return length > 0 && length < landing->length ? length : landing->length;
}

static uint64_t chunk_length(const regx_rndv_t *rndv, const regx_landing_t *landing)
{
    const uint64_t left = landing->length - landing->granted;

    if (landing->path == REGX_PATH_together) {
        return first_half(landing);
    }
    if (landing->path == REGX_PATH_direct || left < rndv->config.chunk_size) {
        return left;
    }
    return rndv->config.chunk_size;
}

/* Not locked: giving up others' registrations for it may take long, too. */
bool regx_landing_register(regx_rndv_t *rndv, regx_landing_t *landing, regx_chunk_t *chunk,
                           unsigned access)
{
    const regx_status_t status = regx_region_acquire(rndv->registry, landing->base + chunk->offset,
                                                     chunk->length, access, &chunk->region);

    chunk->written = 0;
    if (status != REGX_OK) {
        regx_refusal_tally(rndv, REGX_RECEIVER, status, landing->base + chunk->offset,
                           chunk->length);
        landing->careful |= status == REGX_DENIED;
        if (status == REGX_INVALID && access == REGX_ACCESS_LOCAL_WRITE) {
            atomic_store(&landing->peer->never_read, true);
        }
    }
    return status == REGX_OK;
}

/* Where a chunk begins in its region. */
static uint64_t start_of(const regx_landing_t *landing, const regx_chunk_t *chunk)
{
    return (uint64_t)(landing->base + chunk->offset - (const char *)chunk->region.mr->base);
}

static void count_granted(regx_rndv_t *rndv, regx_landing_t *landing)
{
    landing->chunks_out++;
    regx_count(rndv->counters, &rndv->counters->grants, 1);
    regx_count_high(&rndv->counters->chunks_high, landing->chunks_out);
}

/* Makes the chunk the whole buffer, registered, if it is known; else the first chunk, which is not
 * registered yet. */
static bool take_known_whole(regx_rndv_t *rndv, regx_landing_t *landing, regx_chunk_t *chunk)
{
    const uint64_t first = chunk_length(rndv, landing), whole = landing->length;
    const unsigned access = REGX_ACCESS_REMOTE_WRITE;
    const bool known = rndv->config.strategy->grants_known_whole &&
                       landing->path == REGX_PATH_pipeline && first < whole &&
                       whole <= rndv->config.chunk_size * rndv->config.chunk_depth &&
                       regx_rndv_knows(rndv, landing->base, whole, access);
    const regx_status_t status =
        known ? regx_region_acquire(rndv->registry, landing->base, whole, access, &chunk->region)
              : REGX_AGAIN;

    if (status == REGX_NO_MEMORY) {
        atomic_store(&rndv->whole_refused, true);
    }
    chunk->length = status == REGX_OK ? whole : first;
    return status == REGX_OK;
}

void regx_landing_first_chunk(regx_rndv_t *rndv, regx_landing_t *landing, regx_cts_t *cts)
{
    const bool half = landing->path == REGX_PATH_together;
    regx_chunk_t *chunk = &landing->chunks[half ? rndv->config.chunk_depth : 0];

    cts->pieces = take_known_whole(rndv, landing, chunk);
    if (!cts->pieces && !regx_landing_register(rndv, landing, chunk, REGX_ACCESS_REMOTE_WRITE)) {
        landing->path = REGX_PATH_bounce;
        landing->fallback = true;
        return;
    }
    chunk->state = REGX_CHUNK_GRANTED;
    landing->granted = chunk->length;
    landing->pieces = cts->pieces;
    cts->chunk_length = chunk->length;
    cts->chunk_start = start_of(landing, chunk);
    cts->key = chunk->region.mr->key;
    count_granted(rndv, landing);
}

regx_chunk_t *regx_landing_free_chunk(const regx_rndv_t *rndv, regx_landing_t *landing)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        if (landing->chunks[i].state == REGX_CHUNK_FREE) {
            return &landing->chunks[i];
        }
    }
    return NULL;
}

void regx_landing_grant_chunks_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    regx_chunk_t *chunk;

    while (!landing->has_unsent && !landing->slots_only && landing->granted < landing->length &&
           landing->slots_out + landing->chunks_out < REGX_GRANTS_MAX &&
           (chunk = regx_landing_free_chunk(rndv, landing)) != NULL) {
        chunk->offset = landing->granted;
        chunk->length = chunk_length(rndv, landing);
        landing->granted += chunk->length;
        regx_unlock(&rndv->lock);
        const bool registered =
            regx_landing_register(rndv, landing, chunk, REGX_ACCESS_REMOTE_WRITE);
        regx_lock(&rndv->lock);
        if (!registered) {
            chunk->state = REGX_CHUNK_REDO;
            landing->slots_only = true;
            return;
        }
        const regx_control_t message = {.type = REGX_CONTROL_CHUNK,
                                        .to = landing->source,
                                        .offset = chunk->offset,
                                        .length = chunk->length,
                                        .start = start_of(landing, chunk),
                                        .key = chunk->region.mr->key};
        chunk->state = REGX_CHUNK_GRANTED;
        count_granted(rndv, landing);
        regx_landing_send_locked(landing, &message);
    }
}

/* The granted chunk of which that is the next to be written; NULL: none. */
static regx_chunk_t *find_granted(const regx_rndv_t *rndv, regx_landing_t *landing,
                                  const regx_control_t *control)
{
    for (unsigned i = 0; i < regx_landing_chunks(rndv); i++) {
        regx_chunk_t *chunk = &landing->chunks[i];
        const uint64_t left = chunk->length - chunk->written;
        const bool piece = landing->pieces && control->type == REGX_CONTROL_DONE;

        if (chunk->state == REGX_CHUNK_GRANTED &&
            control->offset == chunk->offset + chunk->written &&
            (control->length == left || (piece && control->length > 0 && control->length < left))) {
            return chunk;
        }
    }
    return NULL;
}

bool regx_landing_chunk_told_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                    const regx_control_t *control)
{
    regx_chunk_t *chunk = find_granted(rndv, landing, control);

    if (chunk == NULL) {
        return false;
    }
    const bool ends = control->length == chunk->length - chunk->written;
    landing->busy = true;
    regx_unlock(&rndv->lock);
    regx_landing_verify(rndv, landing, control);
    if (control->failed) { /* perhaps because the buffer has been unmapped: it still counts as in
                              use */
        regx_registry_progress(rndv->registry);
    }
    if (ends) {
        regx_region_release(rndv->registry, &chunk->region);
    }
    regx_lock(&rndv->lock);
    landing->busy = false;
    landing->chunks_out -= ends;
    if (control->type == REGX_CONTROL_DONE) {
        landing->landed += control->length;
        chunk->written += control->length;
        chunk->state = ends ? REGX_CHUNK_FREE : REGX_CHUNK_GRANTED;
        return true;
    }
    landing->slots_only |= !regx_path_reads(landing->path); /* else the rest is exposed */
    if (control->for_ever) {
        atomic_store(&landing->peer->never_writes, true);
    }
    landing->careful |= control->failed;
    chunk->state = REGX_CHUNK_REDO;
    chunk->offset = control->offset;
    chunk->length = control->length;
    return true;
}

void regx_landing_revoke_chunks(regx_rndv_t *rndv, regx_landing_t *landing)
{
    for (unsigned i = 0; i < regx_landing_chunks(rndv); i++) {
        if (landing->chunks[i].state == REGX_CHUNK_GRANTED) {
            regx_region_release(rndv->registry, &landing->chunks[i].region);
            landing->chunks[i].state = REGX_CHUNK_FREE;
        }
    }
}
