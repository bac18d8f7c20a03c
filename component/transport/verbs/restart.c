/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/restart.h"

#include <stdio.h>
#include <string.h>

#include "transport/verbs/cleanup.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/data.h"
#include "transport/verbs/rx.h"
#include "transport/verbs/tx.h"

/* For the device to report that the queue pair takes no more. One that does not report keeps the
 * completions of a queue pair that is destroyed, one that drops them reports (cleanup.h). */
#define REST_NS INT64_C(1000000000)

/* Whether nothing is under way that may not be done twice. What has completed has been handled. */
static bool may_repeat(const regx_ep_t *ep)
{
    return regx_tx_may_repeat(ep) && !regx_put_is_in_part(ep);
}

/* Puts another queue pair in the place of one that has come to rest, and asks the peer. Completions
 * are read before it is destroyed, as some devices drop those of a queue pair that is gone, and
 * after it, as others report some then. */
static void replace(regx_ep_t *ep)
{
    regx_verbs_t *verbs = ep->verbs;
    regx_ep_t made;

    if (!regx_ep_make_another(ep, &made)) {
        return; /* no memory now; or it is broken */
    }
    const bool is_read = regx_verbs_drain(verbs);
    ibv_destroy_qp(ep->qp);
    if (!is_read || !regx_verbs_drain(verbs)) {
        regx_ep_break_wanted(ep, "completion queue", "it cannot be read");
    } else if (ep->remote != REGX_EP_REMOTE_OPEN) {
        regx_ep_break(ep, "queue pair", "the peer has left");
    } else if (!may_repeat(ep)) {
        regx_ep_break_wanted(ep, "one-sided operation", "nobody knows whether it was done");
    }
    const regx_ep_state_t state = ep->state;
    regx_ep_take_another(ep, &made);
    if (state == REGX_EP_RESTING) {
        regx_cm_ask(ep);
    } else {
        ep->state = state;
    }
}

static void give_up(regx_ep_t *ep)
{
    char what[sizeof(ep->what)], why[64];

    memcpy(what, ep->what, sizeof(what));
    snprintf(why, sizeof(why), "and not connected again within %u s",
             ep->verbs->settings.restart_limit);
    regx_ep_break_wanted(ep, what, why);
}

/* One step of an endpoint that is in no list of those that restart. */
static void step(regx_verbs_t *verbs, regx_ep_t *ep, bool empty)
{
    regx_list_append(&verbs->restarting, &ep->restart_link);
    if (regx_now_ns() >= ep->restart_until) {
        give_up(ep);
    } else if (ep->state == REGX_EP_RESTING &&
               (!regx_ep_rest(ep) || regx_ep_has_rested(ep, empty, REST_NS))) {
        replace(ep);
    }
}

void regx_restart_progress(regx_verbs_t *verbs, bool empty)
{
    regx_link_t now;

    regx_list_init(&now);
    regx_list_move(&now, &verbs->restarting);
    while (!regx_list_empty(&now)) {
        regx_ep_t *ep = REGX_CONTAINER_OF(now.next, regx_ep_t, restart_link);

        regx_list_remove(&ep->restart_link);
        step(verbs, ep, empty);
    }
}
