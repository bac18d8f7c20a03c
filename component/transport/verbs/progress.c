/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/progress.h"

#include "transport/verbs/cleanup.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/data.h"
#include "transport/verbs/events.h"
#include "transport/verbs/keepalive.h"
#include "transport/verbs/rx.h"

#define EVENT_INTERVAL 4096u /* calls of progress between two looks at what the device reports */
#define TURN_ENDPOINTS 16

/* Moves the lines of puts and gets on; bounded. */
static void take_turns(regx_verbs_t *verbs)
{
    for (int turns = 0; turns < TURN_ENDPOINTS && verbs->turns.first != NULL; turns++) {
        const bool last = verbs->turns.first == verbs->turns.last;
        regx_ep_t *ep = REGX_CONTAINER_OF(regx_turn_take(&verbs->turns), regx_ep_t, turn);

        if (ep->state == REGX_EP_READY) {
            regx_put_take_turn(ep);
            regx_get_take_turn(ep);
        }
        if ((ep->first != NULL || ep->first_get != NULL) && ep->state != REGX_EP_BROKEN) {
            regx_turn_await(&verbs->turns, &ep->turn);
        }
        if (last) {
            break; /* everybody had a turn */
        }
    }
}

int regx_verbs_progress(regx_transport_t *transport)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    bool empty;
    int events;

    if (!regx_enter(&verbs->entrance)) {
        return 0;
    }
    verbs->events = 0;
    regx_verbs_poll(verbs, &empty);
    if (verbs->turns.first != NULL) {
        take_turns(verbs);
    }
    if (!regx_list_empty(&verbs->cm.asking) || !regx_list_empty(&verbs->cm.due)) {
        regx_cm_queue_progress(verbs);
    }
    if (!regx_list_empty(&verbs->broken)) {
        regx_cleanup_progress(verbs, empty);
    }
    if (!regx_list_empty(&verbs->leaving)) {
        regx_cm_progress(verbs);
    }
    if (++verbs->calls % EVENT_INTERVAL == 0 || !regx_list_empty(&verbs->broken)) {
        regx_verbs_look(verbs);
        regx_keepalive_progress(verbs);
    }
    events = verbs->events;
    regx_leave(&verbs->entrance);
    return events;
}
