/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/events.h"

#include <endian.h>
#include <stdio.h>

#include "transport/verbs/buffers.h"
#include "transport/verbs/cm_queue.h"
#include "transport/verbs/ep.h"

#define EVENTS 64 /* of one look */

static void queue_pair_failed(regx_verbs_t *verbs, const struct ibv_qp *qp, const char *why)
{
    regx_ep_t *ep = regx_ep_find_qpn(verbs, qp->qp_num);

    if (qp == verbs->cm.qp) {
        regx_cm_queue_failed(verbs, why);
    } else if (ep != NULL) {
        regx_ep_fail(ep, "queue pair", why);
    }
}

/* The queue pair is in error; its completions may show why. An endpoint that is at rest is not
 * found by number. */
static void last_taken(regx_verbs_t *verbs, const struct ibv_qp *qp)
{
    for (regx_link_t *at = verbs->eps.next; at != &verbs->eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (ep->qp == qp) {
            ep->last_taken = true;
            regx_list_set(&verbs->broken, &ep->broken_link, true);
            return;
        }
    }
}

static bool keeps_partition(const regx_verbs_t *verbs)
{
    __be16 pkey;

    return ibv_query_pkey(verbs->port.context, verbs->port.number, verbs->pkey_index, &pkey) != 0 ||
           be16toh(pkey) == verbs->address.pkey;
}

/* An entry of the port's tables did, perhaps not the one that peers know. */
static void address_changed(regx_verbs_t *verbs)
{
    const regx_transport_events_t *events = &verbs->config.events;
    char line[320];

    if (regx_port_keeps_address(&verbs->port) && keeps_partition(verbs)) {
        return;
    }
    regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                             "verbs: a port's address changed; new peers may not reach it");
    if (events->warn != NULL && !verbs->address_loss_reported) {
        verbs->address_loss_reported = true;
        snprintf(line, sizeof(line),
                 "port %s has lost the address that other processes know (GID, LID or partition "
                 "key): those that are not connected to it yet may not reach it; give the address "
                 "back, or start the job again",
                 verbs->port.name);
        events->warn(events->context, line);
    }
}

void regx_verbs_look(regx_verbs_t *verbs)
{
    struct ibv_async_event event;

    for (int i = 0; i < EVENTS && ibv_get_async_event(verbs->port.context, &event) == 0; i++) {
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
            queue_pair_failed(verbs, event.element.qp, ibv_event_type_str(event.event_type));
            break;
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            last_taken(verbs, event.element.qp);
            break;
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            regx_buffers_low(verbs);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            regx_eps_break(verbs, "device", ibv_event_type_str(event.event_type));
            break;
        case IBV_EVENT_GID_CHANGE:
        case IBV_EVENT_LID_CHANGE:
        case IBV_EVENT_PKEY_CHANGE:
            address_changed(verbs);
            break;
        default: /* such as a port that goes down: retries show whether it comes back in time */
            break;
        }
        ibv_ack_async_event(&event);
    }
}
