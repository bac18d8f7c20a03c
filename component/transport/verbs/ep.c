/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/ep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memlock.h"
#include "transport/verbs/backlog.h"
#include "transport/verbs/qp.h"

/* With a device that has no memory for a queue pair: how often it is asked, for how long, and after
 * what time without a question it is another matter. */
#define TRY_NS INT64_C(10000000)
#define PATIENCE_NS INT64_C(60000000000)
#define FORGET_NS INT64_C(5000000000)
#define SECOND_NS INT64_C(1000000000)
#define RENEWALS_MAX 16u

static const char making_qp[] = "making a queue pair";

regx_ep_t *regx_ep_find(const regx_verbs_t *verbs, uint64_t peer)
{
    regx_ep_t *ep = verbs->by_peer[regx_verbs_bucket(peer)];

    while (ep != NULL && ep->peer != peer) {
        ep = ep->next_by_peer;
    }
    return ep;
}

regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn)
{
    regx_ep_t *ep = verbs->last_found;

    if (ep == NULL || ep->qpn != qpn) {
        ep = verbs->by_qpn[regx_verbs_bucket(qpn)];
        while (ep != NULL && ep->qpn != qpn) {
            ep = ep->next_by_qpn;
        }
        verbs->last_found = ep;
    }
    return ep;
}

/* Makes a queue pair for an endpoint. 0, or the error. */
static int make_objects(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    struct ibv_qp_init_attr attr;

    ep->epoch = ++verbs->last_epoch;
    ep->qp = regx_qp_make(verbs, verbs->depth, verbs->inline_max, &attr);
    if (ep->qp == NULL || getrandom(&ep->psn, sizeof(ep->psn), 0) != sizeof(ep->psn)) {
        return regx_last_error();
    }
    ep->qpn = ep->qp->qp_num;
    ep->psn &= 0xffffff;
    ep->inline_max = (uint32_t)regx_min(attr.cap.max_inline_data, verbs->inline_max);
    return regx_qp_to_init(verbs, ep->qp);
}

static void destroy_objects(regx_ep_t *ep)
{
    if (ep->qp != NULL) {
        ibv_destroy_qp(ep->qp);
        ep->qp = NULL;
    }
    if (ep->ah != NULL) {
        ibv_destroy_ah(ep->ah);
        ep->ah = NULL;
    }
}

/* What the device pins for a queue pair counts against the limit of locked memory, and registered
 * buffers may have used that up for now. */
static void note_refused(regx_ep_t *ep, const char *what, int error)
{
    const uint64_t limit = error == ENOMEM ? regx_memlock_limit() : REGX_MEMLOCK_NONE;
    char why[128];

    if (error == E2BIG) {
        snprintf(why, sizeof(why), "more than %u peers", REGX_VERBS_EPS_MAX);
    } else if (limit == REGX_MEMLOCK_NONE) {
        snprintf(why, sizeof(why), "%s", strerror(error));
    } else {
        snprintf(why, sizeof(why), "%s; the limit of locked memory (ulimit -l) is %" PRIu64 " KiB",
                 strerror(error), limit / 1024);
    }
    regx_ep_break_wanted(ep, what, why);
}

/* Whether there may be memory later. */
static bool may_pass(regx_verbs_t *verbs, int error, int64_t now)
{
    if (!regx_is_scarce(error)) {
        return false;
    }
    if (verbs->starved_since == 0 || now - verbs->starved_until > FORGET_NS) {
        verbs->starved_since = now;
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: no memory for a peer for a while");
    }
    verbs->starved_until = now + TRY_NS;
    return now - verbs->starved_since < PATIENCE_NS;
}

static void free_memory(regx_ep_t *ep)
{
    free(ep->works);
    free(ep->requests);
    free(ep->carried);
    free(ep);
}

static regx_ep_t *allocate(regx_verbs_t *verbs)
{
    regx_ep_t *ep = calloc(1, sizeof(*ep));

    if (ep == NULL) {
        return NULL;
    }
    ep->works = calloc(verbs->depth, sizeof(ep->works[0]));
    if (verbs->settings.restart_limit != 0) {
        ep->requests = calloc(verbs->depth, sizeof(ep->requests[0]));
        ep->carried = calloc(verbs->depth, REGX_VERBS_INLINE);
    }
    if (ep->works == NULL ||
        (verbs->settings.restart_limit != 0 && (ep->requests == NULL || ep->carried == NULL))) {
        free_memory(ep);
        return NULL;
    }
    regx_list_init(&ep->link);
    regx_list_init(&ep->broken_link);
    regx_list_init(&ep->leaving_link);
    regx_list_init(&ep->asking_link);
    regx_list_init(&ep->due_link);
    regx_list_init(&ep->restart_link);
    return ep;
}

static void enter_qpn(regx_ep_t *ep)
{
    regx_ep_t **bucket = &ep->verbs->by_qpn[regx_verbs_bucket(ep->qpn)];

    ep->next_by_qpn = *bucket;
    *bucket = ep;
}

regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address,
                       struct ibv_ah *route, int route_error)
{
    const int64_t now = regx_now_ns();
    regx_ep_t *ep = now < verbs->starved_until ? NULL : allocate(verbs);
    int error = route_error;

    if (ep == NULL) {
        if (route != NULL) {
            ibv_destroy_ah(route);
        }
        return NULL;
    }
    ep->verbs = verbs;
    ep->peer = peer;
    ep->address = *address;
    ep->ah = route;
    ep->depth = verbs->depth;
    if (error == 0) {
        error = verbs->ep_count < REGX_VERBS_EPS_MAX ? make_objects(ep) : E2BIG;
    }
    if (may_pass(verbs, error, now)) {
        destroy_objects(ep);
        free_memory(ep);
        return NULL;
    }
    if (error == 0) {
        verbs->starved_since = 0;
        ep->born = ep->epoch;
        enter_qpn(ep);
        verbs->live++;
        regx_count_high(&verbs->config.counters->transport[REGX_COUNTER_connections_high],
                        verbs->live);
    } else {
        destroy_objects(ep);
        note_refused(ep, route_error != 0 ? "making a route" : making_qp, error);
    }
    ep->next_by_peer = verbs->by_peer[regx_verbs_bucket(peer)];
    verbs->by_peer[regx_verbs_bucket(peer)] = ep;
    regx_list_append(&verbs->eps, &ep->link);
    verbs->ep_count++;
    return ep;
}

bool regx_ep_make_another(regx_ep_t *ep, regx_ep_t *made)
{
    regx_verbs_t *verbs = ep->verbs;
    const int64_t now = regx_now_ns();

    *made = *ep;
    if (now < verbs->starved_until) {
        return false;
    }
    const int error = make_objects(made);
    if (error != 0) {
        if (made->qp != NULL) {
            ibv_destroy_qp(made->qp);
        }
        if (!may_pass(verbs, error, now)) {
            note_refused(ep, making_qp, error);
        }
        return false;
    }
    verbs->starved_since = 0;
    return true;
}

void regx_ep_take_another(regx_ep_t *ep, const regx_ep_t *made)
{
    regx_ep_forget_qpn(ep);
    ep->qp = made->qp;
    ep->qpn = made->qpn;
    ep->epoch = made->epoch;
    ep->psn = made->psn;
    ep->inline_max = made->inline_max;
    ep->last_taken = false;
    ep->rests_since = 0;
    ep->peer_qpn = 0;
    ep->handled_before = ep->handled;
    ep->state = REGX_EP_CONNECTING;
    enter_qpn(ep);
}

bool regx_ep_begin_anew(regx_ep_t *ep)
{
    regx_ep_t made;

    if (!regx_ep_make_another(ep, &made)) {
        return false;
    }
    regx_backlog_keep_all(ep->verbs); /* what its queue pair has left: see cleanup.h */
    regx_backlog_drop(ep->verbs, ep->qpn);
    ibv_destroy_qp(ep->qp);
    regx_ep_take_another(ep, &made);
    ep->born = ep->epoch;
    ep->peer_born = 0;
    return true;
}

bool regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message)
{
    ep->peer_qpn = message->qpn;
    ep->peer_pool = message->pool;
    ep->peer_pool_size = message->pool_size;
    ep->peer_pool_key = message->pool_key;
    ep->reads_max = (uint8_t)regx_min(message->reads, ep->verbs->reads_made);
    int error = regx_qp_to_ready_to_receive(ep->verbs, ep->qp, message);
    if (error == 0) {
        error = regx_qp_to_ready_to_send(ep->verbs, ep->qp, ep->psn, ep->reads_max);
    }
    if (error != 0) {
        regx_ep_fail(ep, "connecting the queue pair", strerror(error));
        return false;
    }
    ep->peer_epoch = message->epoch;
    ep->peer_born = message->born;
    ep->state = REGX_EP_CONNECTED;
    return true;
}

void regx_ep_break(regx_ep_t *ep, const char *what, const char *why)
{
    if (ep->state != REGX_EP_BROKEN) {
        ep->state = REGX_EP_BROKEN;
        ep->restarts = false;
        regx_list_remove(&ep->restart_link);
        snprintf(ep->what, sizeof(ep->what), "%s: %s", what, why);
    }
    regx_list_set(&ep->verbs->broken, &ep->broken_link, true);
}

/* Whether the connection was made, as far as is known here, and neither end wants to end it. The
 * peer may have been ready before it was heard of. */
static bool can_restart(const regx_ep_t *ep)
{
    return ep->requests != NULL && ep->peer_born != 0 && ep->state != REGX_EP_BROKEN &&
           ep->local == REGX_EP_OPEN && !ep->retires && ep->remote == REGX_EP_REMOTE_OPEN &&
           !ep->verbs->closing;
}

/* Whether the limit begins anew with this failure: something was completed since the one before, or
 * it was ready for so long that this is another outage. But a request that fails again and again,
 * however slowly, is not repeated without end. */
static bool is_another_failure(regx_ep_t *ep, int64_t now, int64_t limit)
{
    if (ep->done != ep->restart_done || ep->done == ep->restart_posted) {
        ep->renewals = 0;
        return true;
    }
    return now - ep->ready_at >= limit && ep->renewals++ < RENEWALS_MAX;
}

void regx_ep_fail(regx_ep_t *ep, const char *what, const char *why)
{
    const regx_verbs_t *verbs = ep->verbs;

    if (ep->state == REGX_EP_RESTING) {
        return;
    }
    if (!can_restart(ep)) {
        regx_ep_break(ep, what, why);
        return;
    }
    ep->state = REGX_EP_RESTING;
    if (!ep->restarts) {
        const int64_t now = regx_now_ns(), limit = verbs->settings.restart_limit * SECOND_NS;

        if (is_another_failure(ep, now, limit)) {
            ep->restart_until = now + limit;
        }
        ep->restarts = true;
        snprintf(ep->what, sizeof(ep->what), "%s: %s", what, why);
    }
    regx_list_set(&ep->verbs->restarting, &ep->restart_link, true);
    regx_list_set(&ep->verbs->broken, &ep->broken_link, true);
    regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
               "verbs: queue pair %u on %s failed and is replaced: %s: %s", ep->qpn,
               verbs->port.name, what, why);
}

void regx_ep_want_report(regx_ep_t *ep)
{
    if (ep->report == REGX_EP_NOT_REPORTED) {
        ep->report = REGX_EP_REPORT_DUE;
        regx_list_set(&ep->verbs->broken, &ep->broken_link, true);
    }
}

void regx_ep_break_wanted(regx_ep_t *ep, const char *what, const char *why)
{
    regx_ep_break(ep, what, why);
    regx_ep_want_report(ep);
}

void regx_eps_break(regx_verbs_t *verbs, const char *what, const char *why)
{
    for (regx_link_t *at = verbs->eps.next; at != &verbs->eps; at = at->next) {
        regx_ep_break_wanted(REGX_CONTAINER_OF(at, regx_ep_t, link), what, why);
    }
}

void regx_eps_break_unready(regx_verbs_t *verbs, const char *why)
{
    for (regx_link_t *at = verbs->eps.next; at != &verbs->eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (ep->state != REGX_EP_READY) {
            regx_ep_break(ep, "connecting", why);
        }
    }
}

void regx_ep_forget_qpn(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    regx_ep_t **at = &verbs->by_qpn[regx_verbs_bucket(ep->qpn)];

    while (*at != NULL && *at != ep) {
        at = &(*at)->next_by_qpn;
    }
    if (*at != NULL) {
        *at = ep->next_by_qpn;
    }
    if (verbs->last_found == ep) {
        verbs->last_found = NULL;
    }
}

void regx_ep_free(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    regx_ep_t **at = &verbs->by_peer[regx_verbs_bucket(ep->peer)];

    while (*at != ep) {
        at = &(*at)->next_by_peer;
    }
    *at = ep->next_by_peer;
    regx_list_remove(&ep->link);
    regx_list_remove(&ep->broken_link);
    regx_list_remove(&ep->leaving_link);
    regx_list_remove(&ep->restart_link);
    verbs->ep_count--;
    if (ep->conn != NULL) {
        ep->conn->ep = NULL;
    }
    free_memory(ep);
}
