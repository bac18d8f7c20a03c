/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Getting chunks that the source exposes (paths read and together). They come one after the other,
 * none longer than the CTS allows and no more at once; each is registered here, got, and the source
 * told, which may then use its memory again. What cannot be registered or got is told of as left:
 * the source then exposes nothing more, and all that was not got goes by slots.
 *
 * The MPI closes a landing only after its source has ended, that is, when no get is under way. A
 * peer that breaks this rule keeps the record, and the registrations, until its gets have ended.
 */
#include <stdlib.h>

#include "rendezvous/landing.h"

_Static_assert(REGX_CHUNK_DEPTH_MAX <= REGX_CTS_EXPOSURES, "the CTS can say chunk_depth");

typedef struct regx_get_op {
    regx_get_t get;
    regx_rndv_t *rndv;
    regx_landing_t *landing;
    regx_chunk_t *chunk;
    regx_control_t exposed; /* as it was told; for verify */
} regx_get_op_t;

static void get_done(regx_get_t *get, regx_status_t status);

/* Registers the chunk, and fills its get. Not locked, but busy. false: no memory. */
static bool prepare(regx_rndv_t *rndv, regx_landing_t *landing, regx_chunk_t *chunk,
                    const regx_control_t *control)
{
    regx_get_op_t *op = malloc(sizeof(*op));

    if (op == NULL || !regx_landing_register(rndv, landing, chunk, REGX_ACCESS_LOCAL_WRITE)) {
        free(op);
        return false;
    }
    *op = (regx_get_op_t){.get = {.local = landing->base + chunk->offset,
                                  .length = chunk->length,
                                  .region = chunk->region.mr,
                                  .offset = control->start,
                                  .key = control->key,
                                  .done = get_done,
                                  .context = op},
                          .rndv = rndv,
                          .landing = landing,
                          .chunk = chunk,
                          .exposed = *control};
    chunk->get = op;
    return true;
}

bool regx_landing_exposed_locked(regx_rndv_t *rndv, regx_landing_t *landing,
                                 const regx_control_t *control)
{
    regx_chunk_t *chunk = regx_landing_free_chunk(rndv, landing);

    if (chunk == NULL || landing->slots_only || control->offset != landing->granted ||
        control->length == 0 || control->length > rndv->config.chunk_size ||
        control->length > landing->length - landing->granted) {
        return false;
    }
    *chunk =
        (regx_chunk_t){.state = chunk->state, .offset = control->offset, .length = control->length};
    landing->granted += chunk->length;
    landing->chunks_out++;
    regx_count_high(&rndv->counters->chunks_high, landing->chunks_out);
    landing->busy = true;
    regx_unlock(&rndv->lock);
    const bool prepared = prepare(rndv, landing, chunk, control);
    regx_lock(&rndv->lock);
    landing->busy = false;
    landing->due++;
    landing->chunks_out -= prepared ? 0 : 1;
    chunk->state = prepared ? REGX_CHUNK_DUE : REGX_CHUNK_LEFT;
    return true;
}

bool regx_landing_unexposed_locked(regx_landing_t *landing, const regx_control_t *control)
{
    if (landing->slots_only || control->length == 0 ||
        control->length != landing->length - landing->granted) {
        return false;
    }
    landing->slots_only = true;
    landing->careful |= control->failed;
    if (control->for_ever) {
        atomic_store(&landing->peer->never_read, true);
    }
    return true;
}

/* A get has ended, which the source is to be told. Lets go of the lock meanwhile. */
static void ended_locked(regx_rndv_t *rndv, regx_chunk_t *chunk, regx_status_t status)
{
    regx_get_op_t *op = chunk->get;
    regx_landing_t *landing = op->landing;
    const bool got = status == REGX_OK;

    landing->busy = true;
    regx_unlock(&rndv->lock);
    if (got && !landing->closed) {
        regx_landing_verify(rndv, landing, &op->exposed);
    } else if (status == REGX_FAILED) { /* perhaps because the buffer has been unmapped: it still
                                           counts as in use */
        regx_registry_progress(rndv->registry);
    }
    if (status == REGX_DENIED) {
        regx_tally(rndv->counters->fallbacks, "receiver: reading from this peer refused");
        atomic_store(&landing->peer->never_read, true);
    }
    regx_region_release(rndv->registry, &chunk->region);
    free(op);
    regx_lock(&rndv->lock);
    landing->busy = false;
    landing->chunks_out--;
    landing->landed += got ? chunk->length : 0;
    regx_count(rndv->counters, &rndv->counters->gets, got);
    regx_count(rndv->counters, &rndv->counters->chunks_receiver,
               got && landing->path == REGX_PATH_together);
    landing->careful |= status == REGX_FAILED;
    chunk->failed = status == REGX_FAILED;
    chunk->get = NULL;
    chunk->state = got ? REGX_CHUNK_GOT : REGX_CHUNK_LEFT;
    landing->due++;
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    const regx_get_op_t *op = get->context;
    regx_rndv_t *rndv = op->rndv;
    regx_landing_t *landing = op->landing;
    const regx_control_t exposed = op->exposed;

    regx_lock(&rndv->lock);
    const bool told = landing->spoiled;
    ended_locked(rndv, op->chunk, status);
    /* Only now: while the lock was let go of, a close must not have freed the record. */
    landing->getting--;
    if (landing->closed) {
        regx_landing_free_locked(rndv, landing);
        regx_unlock(&rndv->lock);
        return;
    }
    regx_landing_go_on(rndv, landing, told, &exposed);
}

/* Asks the wire for a chunk. */
static void get_locked(regx_rndv_t *rndv, regx_landing_t *landing, regx_chunk_t *chunk)
{
    regx_conn_t *conn = landing->peer->conn;

    chunk->state = REGX_CHUNK_GETTING;
    landing->due--;
    landing->getting++;
    regx_unlock(&rndv->lock);
    const regx_status_t status = conn->transport->ops->get(conn, &chunk->get->get);
    regx_lock(&rndv->lock);
    if (status == REGX_PENDING) {
        return;
    }
    landing->getting--;
    if (status == REGX_AGAIN) {
        chunk->state = REGX_CHUNK_DUE;
        landing->due++;
        return;
    }
    if (status == REGX_INVALID) {
        regx_malformed(rndv); /* the exposure leads outside of what its key names */
    }
    ended_locked(rndv, chunk, status);
    landing->busy = true; /* still */
}

static void tell_locked(regx_landing_t *landing, regx_chunk_t *chunk)
{
    const bool left = chunk->state == REGX_CHUNK_LEFT;
    const regx_control_t message = {.type = REGX_CONTROL_GOT,
                                    .to = landing->source,
                                    .offset = chunk->offset,
                                    .length = chunk->length,
                                    .unread = left,
                                    .failed = left && chunk->failed};

    if (regx_control_send(landing->peer, &message) == REGX_OK) {
        landing->due--;
        chunk->state = left ? REGX_CHUNK_REDO : REGX_CHUNK_FREE;
    }
}

void regx_landing_get_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &landing->chunks[i];

        if (chunk->state == REGX_CHUNK_DUE) {
            get_locked(rndv, landing, chunk);
        }
        if (!landing->has_unsent &&
            (chunk->state == REGX_CHUNK_GOT || chunk->state == REGX_CHUNK_LEFT)) {
            tell_locked(landing, chunk);
        }
    }
}

void regx_landing_revoke_gets(regx_rndv_t *rndv, regx_landing_t *landing)
{
    for (unsigned i = 0; i < rndv->config.chunk_depth; i++) {
        regx_chunk_t *chunk = &landing->chunks[i];

        if (chunk->state == REGX_CHUNK_DUE) {
            regx_region_release(rndv->registry, &chunk->region);
            free(chunk->get);
            chunk->state = REGX_CHUNK_FREE;
        }
    }
}
