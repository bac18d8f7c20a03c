/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/landing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/checksum.h"
#include "rendezvous/immediate.h"
#include "rendezvous/strategy.h"

static regx_landing_t *of_link(regx_link_t *link)
{
    return (regx_landing_t *)((char *)link - offsetof(regx_landing_t, link));
}

static regx_landing_t *landing_new(regx_rndv_t *rndv)
{
    regx_landing_t *landing = NULL;
    const size_t chunks = regx_landing_chunks(rndv) * sizeof(regx_chunk_t);

    regx_lock(&rndv->lock);
    if (!regx_list_empty(&rndv->unused)) {
        landing = of_link(rndv->unused.next);
        regx_list_remove(&landing->link);
    }
    regx_unlock(&rndv->lock);
    if (landing == NULL) {
        landing = malloc(sizeof(*landing) + chunks);
        if (landing == NULL) {
            return NULL;
        }
    }
    memset(landing, 0, sizeof(*landing) + chunks);
    regx_list_init(&landing->link);
    return landing;
}

/* Whether the sender writes registered chunks, or one. */
static bool is_written(regx_path_t path)
{
    return path == REGX_PATH_pipeline || path == REGX_PATH_direct || path == REGX_PATH_together;
}

/* Why a path is impossible; NULL: it is not. */
static const char *obstacle(const regx_peer_t *peer, regx_path_t path)
{
    if (path == REGX_PATH_together && !peer->conn->single_copy) {
        return "together: the kernel does not copy to this peer";
    }
    if (is_written(path) && peer->never_writes) {
        return "chunk: refused by this peer before";
    }
    if (regx_path_reads(path) && peer->never_read) {
        return "read: impossible with this peer before";
    }
    return NULL;
}

static regx_path_t choose_path(regx_rndv_t *rndv, regx_landing_t *landing)
{
    const regx_path_t path = rndv->config.strategy->choose(rndv, landing);
    const char *reason = obstacle(landing->peer, path);

    if (reason == NULL) {
        return path;
    }
    landing->fallback = true;
    regx_tally(rndv->counters->fallbacks, reason);
    return REGX_PATH_bounce;
}

static void leave_contest_locked(regx_rndv_t *rndv, const regx_landing_t *landing)
{
    const bool whole = landing->landed == landing->length && !landing->fallback;

    regx_contest_leave(rndv->contests, landing->length, &landing->entry,
                       whole && landing->by_slots == (landing->path == REGX_PATH_bounce));
}

regx_landing_t *regx_landing_open(regx_rndv_t *rndv, regx_peer_t *peer, void *base, size_t length)
{
    regx_landing_t *landing = landing_new(rndv);
    regx_cts_t cts = {.length = length};

    if (landing == NULL) {
        return NULL;
    }
    regx_peer_warm(peer); /* the CTS */
    landing->peer = peer;
    landing->base = base;
    landing->length = length;
    landing->path = choose_path(rndv, landing);
    if (is_written(landing->path)) {
        regx_landing_first_chunk(rndv, landing, &cts);
    }
    if (regx_path_reads(landing->path)) {
        cts.exposures = rndv->config.chunk_depth;
        cts.exposed_most = rndv->config.chunk_size;
    }
    landing->slots_only = landing->path == REGX_PATH_bounce;
    regx_lock(&rndv->lock);
    if (!regx_handle_table_add(&rndv->landings, landing, &landing->name)) {
        leave_contest_locked(rndv, landing);
        regx_unlock(&rndv->lock);
        regx_landing_revoke_chunks(rndv, landing);
        free(landing);
        return NULL;
    }
    if (landing->path == REGX_PATH_bounce) {
        regx_landing_first_slots_locked(rndv, landing, &cts);
    }
    regx_unlock(&rndv->lock);
    cts.path = landing->path;
    cts.fallback = landing->fallback;
    cts.verify = rndv->config.verify;
    cts.landing = landing->name;
    regx_cts_pack(&cts, landing->cts);
    return landing;
}

const uint8_t *regx_landing_cts(const regx_landing_t *landing)
{
    return landing->cts;
}

void regx_landing_close(regx_rndv_t *rndv, regx_landing_t *landing)
{
    regx_lock(&rndv->lock);
    regx_wait_idle_locked(rndv, &landing->busy);
    leave_contest_locked(rndv, landing);
    regx_handle_table_remove(&rndv->landings, landing->name);
    regx_list_set(&rndv->hungry, &landing->link, false);
    regx_landing_revoke_slots_locked(rndv, landing);
    if (!regx_list_empty(&rndv->hungry)) { /* what comes free here is told by no notice */
        atomic_store_explicit(&rndv->retry_landings, true, memory_order_relaxed);
    }
    landing->closed = true; /* a get that ends meanwhile goes on with nothing, … */
    landing->getting++;     /* … and leaves the record to us */
    regx_unlock(&rndv->lock);
    regx_landing_revoke_chunks(rndv, landing);
    regx_landing_revoke_gets(rndv, landing);
    regx_lock(&rndv->lock);
    landing->getting--;
    regx_landing_free_locked(rndv, landing);
    regx_unlock(&rndv->lock);
}

void regx_landing_free_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    if (landing->closed && landing->getting == 0) {
        regx_list_append(&rndv->unused, &landing->link);
    }
}

void regx_landing_send_locked(regx_landing_t *landing, const regx_control_t *grant)
{
    landing->has_unsent = regx_control_send(landing->peer, grant) != REGX_OK;
    if (landing->has_unsent) {
        landing->unsent = *grant;
    }
}

/* Grants what can be granted now; what cannot keeps the landing in the list. */
static void advance_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    if (!landing->started) {
        return;
    }
    landing->busy = true;
    if (landing->has_unsent) {
        regx_landing_send_locked(landing, &landing->unsent);
    }
    if (landing->due > 0) {
        regx_landing_get_locked(rndv, landing);
    } else if (!regx_path_reads(landing->path)) {
        regx_landing_grant_chunks_locked(rndv, landing);
    }
    regx_landing_grant_slots_locked(rndv, landing);
    landing->busy = false;
    if (landing->has_unsent || landing->due > 0) {
        atomic_store_explicit(&rndv->retry_landings, true, memory_order_relaxed);
    }
    regx_list_set(&rndv->hungry, &landing->link,
                  landing->has_unsent || landing->due > 0 ||
                      regx_landing_wants_slots_locked(rndv, landing));
}

/* A peer has used up a grant: its landings go on in their order, until the window is full again.
 * Looks no further than the first that cannot, since a window of messages may wait behind it. */
static void advance_peer_locked(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_link_t *at = rndv->hungry.next;

    while (at != &rndv->hungry) {
        regx_landing_t *landing = of_link(at);

        if (landing->peer != peer) {
            at = at->next;
            continue;
        }
        advance_locked(rndv, landing);
        if (!regx_list_empty(&landing->link)) {
            return;
        }
        at = rndv->hungry.next;
    }
}

/* All that wait get their turn, oldest first; where none has anything to send, as long as there
 * are slots. */
static int advance_all_locked(regx_rndv_t *rndv)
{
    const bool all = atomic_exchange(&rndv->retry_landings, false);
    int advanced = 0;

    atomic_store_explicit(&rndv->dry, false, memory_order_relaxed);
    /* Advancing lets go of the lock at times, and landings come and go meanwhile. */
    regx_list_move(&rndv->round, &rndv->hungry);
    while (!regx_list_empty(&rndv->round) &&
           (all || !atomic_load_explicit(&rndv->dry, memory_order_relaxed))) {
        regx_landing_t *landing = of_link(rndv->round.next);

        regx_list_remove(&landing->link);
        advance_locked(rndv, landing);
        advanced += regx_list_empty(&landing->link);
    }
    /* Those that had their turn come after those that wait for it. */
    regx_list_move(&rndv->round, &rndv->hungry);
    regx_list_move(&rndv->hungry, &rndv->round);
    return advanced;
}

int regx_landings_advance(regx_rndv_t *rndv)
{
    regx_lock(&rndv->lock);
    const int advanced = advance_all_locked(rndv);
    regx_unlock(&rndv->lock);
    return advanced;
}

/* After news from a source: grants what that made room for. While the pool was enough for all, the
 * landing itself comes first, its slot being warm; when some had to do without, who wants slots
 * gets them in turn. */
static void go_on_locked(regx_rndv_t *rndv, regx_landing_t *landing)
{
    const bool dry = atomic_load_explicit(&rndv->dry, memory_order_relaxed);

    if (dry && landing->due == 0 && regx_landing_wants_slots_locked(rndv, landing)) {
        regx_list_set(&rndv->hungry, &landing->link, true);
    } else if (landing->landed < landing->length || landing->due > 0) {
        advance_locked(rndv, landing);
    }
    if (dry) {
        advance_all_locked(rndv);
    } else if (regx_list_empty(&landing->link)) {
        advance_peer_locked(rndv, landing->peer);
    }
}

void regx_landing_verify(const regx_rndv_t *rndv, regx_landing_t *landing,
                         const regx_control_t *control)
{
    if (!control->has_checksum) {
        return;
    }
    regx_count(rndv->counters, &rndv->counters->verified, 1);
    if (regx_checksum(landing->base + control->offset, control->length) != control->checksum) {
        regx_count(rndv->counters, &rndv->counters->mismatches, 1);
        landing->spoiled = true;
    }
}

static void describe(char *what, size_t size, const regx_landing_t *landing,
                     const regx_control_t *control)
{
    const bool slot = control->type == REGX_CONTROL_WRITTEN;

    snprintf(what, size,
             "bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
             " at %p by %s arrived as something else than was sent (verify)",
             control->offset, control->offset + control->length - 1, landing->length,
             (const void *)landing->base, slot ? "bounce" : regx_path_name(landing->path));
}

/* Whether a source may say that now: its notices carry a checksum if they are to. */
static bool acceptable(const regx_rndv_t *rndv, const regx_landing_t *landing,
                       const regx_control_t *control)
{
    const bool notice = control->type == REGX_CONTROL_WRITTEN ||
                        control->type == REGX_CONTROL_DONE || control->type == REGX_CONTROL_EXPOSED;
    const bool known = !landing->started || control->anonymous ||
                       (landing->source.id == control->from.id &&
                        landing->source.generation == control->from.generation);

    return known && (!notice || control->has_checksum || !rndv->config.verify);
}

void regx_landing_go_on(regx_rndv_t *rndv, regx_landing_t *landing, bool told,
                        const regx_control_t *control)
{
    char what[192] = ""; /* what is to be told of a spoiled transfer */
    const regx_peer_t *peer = landing->peer;

    if (landing->spoiled && !told) {
        describe(what, sizeof(what), landing, control);
    }
    go_on_locked(rndv, landing);
    regx_unlock(&rndv->lock);
    if (what[0] != '\0') {
        rndv->config.mismatch(rndv->config.context, peer, what);
    }
}

/* Whether that is of what was to be exposed, not of a chunk that was granted. */
static bool is_of_rest(const regx_landing_t *landing, const regx_control_t *control)
{
    return regx_path_reads(landing->path) && control->type == REGX_CONTROL_REFUSED &&
           control->offset == landing->granted;
}

void regx_landing_control(regx_rndv_t *rndv, uint64_t sender, const regx_control_t *control)
{
    bool sound = true;

    regx_lock(&rndv->lock);
    regx_landing_t *landing = regx_handle_table_find(&rndv->landings, control->to);
    if (landing == NULL || landing->peer->id != sender || !acceptable(rndv, landing, control)) {
        regx_unlock(&rndv->lock);
        regx_malformed(rndv);
        return;
    }
    const bool told = landing->spoiled;
    switch (control->type) {
    case REGX_CONTROL_WRITTEN:
        sound = regx_landing_written_locked(rndv, landing, control);
        break;
    case REGX_CONTROL_DONE:
    case REGX_CONTROL_REFUSED:
        sound = is_of_rest(landing, control)
                    ? regx_landing_unexposed_locked(landing, control)
                    : regx_landing_chunk_told_locked(rndv, landing, control);
        break;
    case REGX_CONTROL_EXPOSED:
        sound =
            regx_path_reads(landing->path) && regx_landing_exposed_locked(rndv, landing, control);
        break;
    default:
        break;
    }
    if (sound && !control->anonymous) {
        landing->source = control->from;
        landing->started = true;
    }
    regx_landing_go_on(rndv, landing, told, control);
    if (!sound) {
        regx_malformed(rndv);
    }
}

void regx_rndv_immediate(regx_rndv_t *rndv, uint64_t sender, uint32_t immediate)
{
    regx_control_t control;

    regx_lock(&rndv->lock);
    const bool known = regx_immediate_unpack_locked(rndv, immediate, &control);
    regx_unlock(&rndv->lock);
    if (known) {
        regx_landing_control(rndv, sender, &control);
    } else {
        regx_malformed(rndv);
    }
}

void regx_landings_forget(regx_rndv_t *rndv, const regx_peer_t *peer)
{
    regx_lock(&rndv->lock);
    for (uint32_t i = 0; i < rndv->landings.count; i++) {
        regx_landing_t *landing = rndv->landings.entries[i].object;

        if (landing != NULL && landing->peer == peer) {
            regx_list_set(&rndv->hungry, &landing->link, false);
            regx_landing_revoke_slots_locked(rndv, landing);
            landing->peer = &rndv->nobody;
            landing->started = false;
        }
    }
    regx_unlock(&rndv->lock);
}

void regx_landings_free(regx_rndv_t *rndv)
{
    while (!regx_list_empty(&rndv->unused)) {
        regx_landing_t *landing = of_link(rndv->unused.next);

        regx_list_remove(&landing->link);
        free(landing);
    }
}
