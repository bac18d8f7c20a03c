/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/progress.h"

#include "transport/verbs/cleanup.h"
#include "transport/verbs/cm.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/data.h"
#include "transport/verbs/events.h"
#include "transport/verbs/keepalive.h"
#include "transport/verbs/restart.h"
#include "transport/verbs/rx.h"

/* Between two looks at what the device reports, each of which is a system call. */
#define LOOK_NS INT64_C(10000000)
#define CLOCK_INTERVAL 4096u /* calls of progress between two looks at the clock; a power of two */
#define TURN_ENDPOINTS 16

/* Moves the lines of puts and gets on; bounded. */
static void take_turns(regx_verbs_t *verbs)
{
    for (int turns = 0; turns < TURN_ENDPOINTS && verbs->arbiter.first != NULL; turns++) {
        const bool last = verbs->arbiter.first == verbs->arbiter.last;
        regx_ep_t *ep = REGX_CONTAINER_OF(regx_arbiter_take(&verbs->arbiter), regx_ep_t, entry);

        if (ep->state == REGX_EP_READY) {
            regx_put_take_turn(ep);
            regx_get_take_turn(ep);
        }
        if ((ep->first != NULL || ep->first_get != NULL) && ep->state != REGX_EP_BROKEN) {
            regx_arbiter_add(&verbs->arbiter, &ep->entry);
        }
        if (last) {
            break; /* everybody had a turn */
        }
    }
}

static bool is_time_to_look(regx_verbs_t *verbs)
{
    const int64_t now = (++verbs->calls & verbs->clock_mask) == 0 ? regx_now_ns() : INT64_MIN;

    if (now < verbs->events_next) {
        return false;
    }
    verbs->events_next = now + LOOK_NS;
    return true;
}

/* Whether something is to happen in time, however seldom progress is called. */
static bool is_awaited(const regx_verbs_t *verbs)
{
    return !regx_list_empty(&verbs->restarting) || verbs->cm.rests;
}

int regx_verbs_progress(regx_transport_t *transport)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    bool empty;
    int events;

    if (!regx_try_lock_enter(&verbs->try_lock)) {
        return 0;
    }
    verbs->events = 0;
    regx_verbs_poll(verbs, &empty);
    if (verbs->arbiter.first != NULL) {
        take_turns(verbs);
    }
    if (!regx_list_empty(&verbs->cm.asking) || !regx_list_empty(&verbs->cm.due)) {
        regx_cm_queue_progress(verbs);
    }
    if (!regx_list_empty(&verbs->broken)) {
        regx_restart_progress(verbs, empty);
        regx_cleanup_progress(verbs, empty);
    }
    if (!regx_list_empty(&verbs->leaving) || verbs->cm.waiting_count > 0) {
        regx_cm_progress(verbs);
    }
    if (is_time_to_look(verbs) || !regx_list_empty(&verbs->broken)) {
        verbs->looks++;
        regx_verbs_look(verbs);
        regx_restart_progress(verbs, false);
        if (verbs->cm.rests) {
            regx_cm_queue_revive(verbs, empty);
        }
        regx_keepalive_progress(verbs);
        verbs->clock_mask = is_awaited(verbs) ? 0 : CLOCK_INTERVAL - 1;
    }
    events = verbs->events;
    regx_try_lock_leave(&verbs->try_lock);
    return events;
}
