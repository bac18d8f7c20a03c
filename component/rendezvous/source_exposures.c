/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a source exposes for the landing to get (paths read and together).
 */
#include <stdlib.h>

#include "rendezvous/checksum.h"
#include "rendezvous/refusal.h"
#include "rendezvous/source.h"

struct regx_exposure {
    regx_exposure_t *next;
    uint64_t offset;
    uint64_t length;
    uint64_t checksum; /* if the source is to verify */
    regx_region_t region;
};

/* What is not yet exposed goes by slots. */
static void stop_locked(regx_source_t *source)
{
    if (source->expose_most > 0 && source->exposed < source->length) {
        source->granted -= source->length - source->exposed;
        source->rest_due = true;
    }
    source->expose_most = 0;
    source->fallback = true;
}

static regx_status_t tell_one(const regx_source_t *source, const regx_exposure_t *exposure)
{
    const regx_mr_t *mr = exposure->region.mr;
    regx_control_t message = regx_source_message(source, REGX_CONTROL_EXPOSED);

    message.offset = exposure->offset;
    message.length = exposure->length;
    message.start = (uint64_t)(source->base + exposure->offset - (const char *)mr->base);
    message.key = mr->key;
    message.has_checksum = source->verify;
    message.checksum = exposure->checksum;
    /* Another core may read them: also what the program stored past the caches (movnt) must be
     * there before the message. */
    __sync_synchronize(); /* a fence by itself, which the thread sanitizer takes */
    return regx_control_send(source->peer, &message);
}

regx_status_t regx_source_tell_exposed_locked(regx_source_t *source)
{
    if (source->untold != NULL) {
        const regx_status_t status = tell_one(source, source->untold);

        if (status != REGX_OK) {
            return status;
        }
        source->untold = NULL;
    }
    if (source->rest_due) {
        regx_control_t refusal = regx_source_message(source, REGX_CONTROL_REFUSED);

        refusal.offset = source->exposed;
        refusal.length = source->length - source->exposed;
        refusal.failed = source->careful;
        refusal.for_ever = source->never_exposes;
        const regx_status_t status = regx_control_send(source->peer, &refusal);
        if (status != REGX_OK) {
            return status;
        }
        source->rest_due = false;
    }
    return REGX_OK;
}

/* Registers the next chunk. Not locked. */
static regx_status_t prepare(regx_rndv_t *rndv, const regx_source_t *source,
                             regx_exposure_t *exposure)
{
    const char *base = source->base + exposure->offset;

    if (source->verify) {
        exposure->checksum = regx_checksum(base, exposure->length);
    }
    const regx_status_t status =
        regx_region_acquire(rndv->registry, (void *)(uintptr_t)base, exposure->length,
                            REGX_ACCESS_REMOTE_READ, &exposure->region);
    if (status != REGX_OK) {
        regx_refusal_tally(rndv, REGX_SENDER, status, base, exposure->length);
    }
    return status;
}

/* Takes an exposure out of the list and gives its registration up. Lets go of the lock meanwhile,
 * when the list may change. If reading it failed the buffer may have been unmapped, which is looked
 * for while it still counts as in use. */
static void end_locked(regx_rndv_t *rndv, regx_source_t *source, regx_exposure_t **at, bool failed)
{
    regx_exposure_t *exposure = *at;

    *at = exposure->next;
    regx_unlock(&rndv->lock);
    if (failed) {
        regx_registry_progress(rndv->registry);
    }
    regx_region_release(rndv->registry, &exposure->region);
    free(exposure);
    regx_lock(&rndv->lock);
    source->exposed_count--;
    source->in_flight--;
}

regx_status_t regx_source_expose_locked(regx_rndv_t *rndv, regx_source_t *source)
{
    const uint64_t left = source->length - source->exposed;
    const uint64_t length = left < source->expose_most ? left : source->expose_most;

    if (length == 0 || source->exposed_count == source->expose_depth) {
        return REGX_PENDING;
    }
    regx_exposure_t *exposure = malloc(sizeof(*exposure));
    if (exposure == NULL) {
        return REGX_AGAIN;
    }
    exposure->offset = source->exposed;
    exposure->length = length;
    regx_unlock(&rndv->lock);
    const regx_status_t status = prepare(rndv, source, exposure);
    regx_lock(&rndv->lock);
    if (status != REGX_OK) {
        free(exposure);
        source->careful |= status == REGX_DENIED;
        source->never_exposes = status == REGX_INVALID;
        stop_locked(source);
        return REGX_OK;
    }
    exposure->next = source->exposures;
    source->exposures = exposure;
    source->exposed_count++;
    source->in_flight++;
    if (source->expose_most == 0) { /* the landing has left another meanwhile */
        end_locked(rndv, source, &source->exposures, false);
        return REGX_OK;
    }
    source->untold = exposure;
    source->exposed += length;
    regx_count_high(&rndv->counters->chunks_high, source->exposed_count);
    return REGX_OK;
}

bool regx_source_got_locked(regx_rndv_t *rndv, regx_source_t *source, const regx_control_t *control)
{
    regx_exposure_t **at = &source->exposures;

    while (*at != NULL && ((*at)->offset != control->offset || (*at)->length != control->length)) {
        at = &(*at)->next;
    }
    if (*at == NULL || *at == source->untold) {
        return false;
    }
    end_locked(rndv, source, at, control->failed);
    if (control->unread) {
        source->granted -= control->length;
        source->careful |= control->failed;
        stop_locked(source);
    } else {
        source->sent += control->length;
    }
    return true;
}

void regx_source_hide_locked(regx_rndv_t *rndv, regx_source_t *source)
{
    regx_exposure_t **at = &source->exposures;

    source->expose_most = 0;
    source->rest_due = false;
    while (*at != NULL) {
        if (source->gone || *at == source->untold) {
            source->untold = *at == source->untold ? NULL : source->untold;
            end_locked(rndv, source, at, false);
            at = &source->exposures;
        } else {
            at = &(*at)->next;
        }
    }
}
