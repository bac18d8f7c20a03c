/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/cleanup.h"

#include <stdlib.h>

#include "transport/verbs/backlog.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/events.h"
#include "transport/verbs/tx.h"

#define REST_NS INT64_C(100000000)

/* Ends the queue pair: from here on the device reads and writes nothing for it. What was under way
 * or in line is completed with REGX_FAILED. */
static void cut(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;

    ep->state = REGX_EP_BROKEN;
    regx_cm_stop(ep);
    regx_arbiter_remove(&verbs->arbiter, &ep->entry);
    if (ep->qp != NULL) {
        regx_ep_forget_qpn(ep);
        if (ep->rests_since != 0 && !verbs->closing) {
            regx_backlog_keep_all(verbs); /* without memory they stay where they are */
        }
        regx_backlog_drop(verbs, ep->qpn);
        ibv_destroy_qp(ep->qp);
        ep->qp = NULL;
        ep->last_taken = false;
        verbs->live--;
        verbs->retiring -= ep->retires;
    }
    if (ep->ah != NULL) {
        regx_cm_drop_route(verbs, ep->ah);
        ep->ah = NULL;
    }
    free(ep->gathered);
    ep->gathered = NULL;
    regx_tx_fail(ep);
}

void regx_ep_delete(regx_ep_t *ep)
{
    cut(ep);
    regx_ep_free(ep);
}

bool regx_ep_rest(regx_ep_t *ep)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (ep->rests_since != 0) {
        return true;
    }
    ep->rests_since = regx_now_ns();
    regx_cm_stop(ep);
    return ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE) == 0;
}

bool regx_ep_has_rested(const regx_ep_t *ep, bool empty, int64_t limit_ns)
{
    return (ep->last_taken && empty) || regx_now_ns() - ep->rests_since >= limit_ns;
}

/* Whether the queue pair of a broken endpoint may be destroyed. */
static bool is_at_rest(regx_ep_t *ep, bool empty)
{
    if (ep->qp == NULL || ep->peer_qpn == 0 || ep->verbs->closing) {
        return true; /* nothing is left, or can have come, or matters */
    }
    regx_ep_forget_qpn(ep);
    return !regx_ep_rest(ep) || regx_ep_has_rested(ep, empty, REST_NS);
}

void regx_ep_abort(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    bool empty = false;

    regx_ep_break(ep, "disconnected", "with work under way");
    while (!is_at_rest(ep, empty)) {
        regx_verbs_look(verbs);
        const bool last_taken = ep->last_taken;
        if (regx_backlog_keep(verbs, &empty) != REGX_OK) {
            break;
        }
        empty = empty && last_taken;
    }
    cut(ep);
}

/* Whether an endpoint was being closed for room, and not all that was accepted by it is known to
 * have arrived. */
static bool was_cut_short(const regx_ep_t *ep)
{
    return ep->retires && !ep->verbs->closing &&
           !(ep->local == REGX_EP_CLOSED && ep->remote != REGX_EP_REMOTE_OPEN);
}

/* A broken endpoint is reported, also where nothing was ever sent to that peer and something may be
 * awaited; unless we have left it, or the peer has left us and nobody here wants anything of it. */
static bool concerns_callers(const regx_ep_t *ep)
{
    const bool left = ep->remote == REGX_EP_REMOTE_CLOSED;

    return (ep->local == REGX_EP_OPEN || was_cut_short(ep)) &&
           !(left && ep->report != REGX_EP_REPORT_DUE);
}

static void report(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;

    if (ep->report == REGX_EP_REPORTED || !concerns_callers(ep)) {
        ep->report = ep->report == REGX_EP_REPORTED ? REGX_EP_REPORTED : REGX_EP_NOT_REPORTED;
        return;
    }
    ep->report = REGX_EP_REPORTED;
    verbs->events++;
    regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION, "verbs: connection on %s broke: %s",
               verbs->port.name, ep->what);
    verbs->config.events.broken(verbs->config.events.context, ep->peer, ep->what);
}

/* One step with one endpoint that is in no list. It may be gone then. */
static void clean_up(regx_verbs_t *verbs, regx_ep_t *ep, bool empty)
{
    if (ep->last_taken && empty) { /* a completion would have told more */
        regx_ep_fail(ep, "queue pair", ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED));
        regx_list_remove(&ep->broken_link);
    }
    if (ep->state != REGX_EP_BROKEN) {
        regx_list_set(&verbs->broken, &ep->broken_link,
                      ep->last_taken || ep->state == REGX_EP_RESTING);
        return;
    }
    /* First of all: whoever hears of a failed put alone may try the same memory in another way. */
    report(ep);
    if (!is_at_rest(ep, empty)) {
        regx_list_set(&verbs->broken, &ep->broken_link, true);
        return;
    }
    cut(ep);
    if (ep->retires && ep->report == REGX_EP_REPORTED && !verbs->closing) {
        ep->local = REGX_EP_OPEN; /* it stays, so that the caller does not ask a lost peer again */
    }
    if (ep->local != REGX_EP_OPEN) {
        regx_ep_free(ep);
    }
}

void regx_cleanup_progress(regx_verbs_t *verbs, bool empty)
{
    regx_link_t now;

    regx_list_init(&now);
    regx_list_move(&now, &verbs->broken);
    while (!regx_list_empty(&now)) {
        regx_ep_t *ep = REGX_CONTAINER_OF(now.next, regx_ep_t, broken_link);

        regx_list_remove(&ep->broken_link);
        clean_up(verbs, ep, empty);
    }
}
