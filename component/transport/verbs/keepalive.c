/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/keepalive.h"

#include "transport/verbs/tx.h"

#define IDLE_NS INT64_C(10000000000) /* ten seconds */
#define LOOKS 8                      /* so often in that time all endpoints are looked at */
#define PROBES_MIN 32u               /* that one look may make */

void regx_keepalive_open(regx_verbs_t *verbs)
{
    verbs->idle_ns = IDLE_NS;
}

/* Whether the peer should be asked and can be: nothing is known of it, and it has not sent goodbye.
 * Without room, what fills the endpoint tells, or it is asked at a later look. One that we have
 * left is asked where we wait for its goodbye: to come back, or for its place (bound.h). */
static bool is_due(regx_ep_t *ep, int64_t now)
{
    if (ep->posted != ep->seen) {
        ep->seen = ep->posted;
        ep->seen_at = now;
    }
    return ep->state == REGX_EP_READY && ep->remote == REGX_EP_REMOTE_OPEN &&
           (ep->local == REGX_EP_OPEN || ep->retires || regx_list_has(&ep->asking_link)) &&
           now - ep->seen_at >= ep->verbs->idle_ns && regx_tx_has_room(ep, 1);
}

void regx_keepalive_progress(regx_verbs_t *verbs)
{
    static const regx_work_t probe = {.kind = REGX_WORK_PROBE, .what = "keepalive"};
    const int64_t now = regx_now_ns();
    /* So many that the looks of one idle time reach everybody. */
    uint64_t left = regx_max(verbs->ep_count / LOOKS + 1, PROBES_MIN);

    if (now < verbs->look_next) {
        return;
    }
    verbs->look_next = now + verbs->idle_ns / LOOKS;
    for (regx_link_t *at = verbs->eps.next; at != &verbs->eps && left > 0; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (is_due(ep, now)) {
            regx_tx_post_empty(ep, &probe);
            ep->seen_at = now;
            left--;
        }
    }
}
