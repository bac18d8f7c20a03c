/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/bound.h"

#include "transport/verbs/tx.h"

/* Whether it can be closed, and was used since it was made: who has just been answered has not said
 * yet what it asked for. */
static bool can_be_closed(const regx_ep_t *ep)
{
    return ep->state == REGX_EP_READY && ep->local == REGX_EP_OPEN && ep->used != 0 &&
           !regx_tx_touches(ep);
}

static regx_ep_t *least_recently_used(const regx_verbs_t *verbs)
{
    regx_ep_t *found = NULL;

    for (regx_link_t *at = verbs->eps.next; at != &verbs->eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (can_be_closed(ep) && (found == NULL || ep->used < found->used)) {
            found = ep;
        }
    }
    return found;
}

bool regx_bound_has_room(const regx_verbs_t *verbs)
{
    return verbs->settings.connections == 0 || verbs->live < verbs->settings.connections;
}

bool regx_bound_admits(regx_verbs_t *verbs, bool asks, regx_ep_t **close)
{
    const uint32_t max = verbs->settings.connections;
    const bool has_room = regx_bound_has_room(verbs);
    const bool is_last = max != 0 && verbs->live + 1 == max;

    *close = NULL;
    if (has_room && !(asks && is_last && !regx_list_empty(&verbs->cm.asking))) {
        verbs->full_since = 0;
        return true;
    }
    const int64_t now = regx_now_ns();
    if (verbs->full_since == 0) {
        verbs->full_since = now;
    }
    if (!has_room && verbs->live - verbs->retiring >= max) {
        *close = least_recently_used(verbs);
    }
    if (now - verbs->full_since < verbs->patience_ns) {
        return false;
    }
    verbs->full_since = 0; /* the next one has not waited yet */
    if (!has_room) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: more connections than verbs_connections");
    }
    return true;
}

void regx_bound_retire(regx_ep_t *ep, bool ours)
{
    regx_verbs_t *verbs = ep->verbs;

    if (ep->retires || ep->qp == NULL) {
        return;
    }
    ep->retires = true;
    verbs->retiring++;
    regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION,
               "verbs: connection on %s to queue pair %u is closed, as %s", verbs->port.name,
               ep->peer_qpn, ours ? "there is no room for another" : "the peer asks for it");
    if (ours) {
        regx_count_transport(verbs->config.counters, REGX_COUNTER_connections_closed, 1);
    }
}

void regx_bound_forget(regx_ep_t *ep)
{
    if (ep->retires && ep->qp != NULL) {
        ep->verbs->retiring--;
    }
    ep->retires = false;
}
