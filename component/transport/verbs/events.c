/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the device reports apart from completions: of queue pairs and queues, which break endpoints;
 * and of the port.
 *
 * A port that goes down, or whose GID goes, is away. Nothing is posted until it is back, for a minute
 * at most: so what was not under way is not lost, however long a device would try. (Soft-RoCE fails
 * at once.) What was under way the device sends again, for 7.5 to 30 s.
 *
 * The LID and the partition key are part of what peers know of this process. If they change, those
 * that are connected are not told, and the device shows whether they are lost. Who asks what broke
 * is told of the change, too. What a subnet manager keeps of its clients (multicast groups, events,
 * paths) is not used.
 */
#include <endian.h>
#include <errno.h>

#include "transport/verbs/ep.h"

#define EVENTS 64                  /* of one look */
#define ASK_NS INT64_C(1000000000) /* between two questions whether a port is back */

/* The device reports something of a queue pair. An endpoint that is at rest is not found by
 * number. */
static void queue_pair_failed(regx_verbs_t *verbs, const struct ibv_async_event *event)
{
    const struct ibv_qp *qp = event->element.qp;
    const char *why = ibv_event_type_str(event->event_type);

    if (qp == verbs->cm.qp) {
        regx_eps_break(verbs, REGX_EP_ACCEPTED, "connecting", why);
    }
    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_ep_t *ep = REGX_CONTAINER_OF(at, regx_ep_t, link);

        if (ep->qp != qp) {
            continue;
        }
        if (event->event_type == IBV_EVENT_QP_LAST_WQE_REACHED) {
            ep->rest.last_taken = true; /* it is in error; its completions may show why */
            regx_ep_set_ending(ep);
        } else {
            regx_ep_break(ep, "queue pair", why);
        }
    }
}

/* ---- the port ---- */

/* Reads anew what an event may have changed. */
static void read_port(regx_verbs_t *verbs)
{
    regx_verbs_port_t *port = &verbs->port;
    const bool has_gid = regx_verbs_port_refresh(port);
    const struct ibv_port_attr *attr = &port->attr;
    const char *away = has_gid ? NULL : "has lost its GID";
    __be16 pkey;

    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_cm_forget_route(REGX_CONTAINER_OF(at, regx_ep_t, link)); /* it may lead nowhere now */
    }
    if (verbs->address.link_layer == REGX_VERBS_INFINIBAND && attr->lid != verbs->address.lid) {
        snprintf(port->change, sizeof(port->change), "its LID has changed from %u to %u",
                 verbs->address.lid, attr->lid);
    } else if (ibv_query_pkey(port->context, port->number, verbs->pkey_index, &pkey) == 0 &&
               be16toh(pkey) != verbs->address.pkey) {
        snprintf(port->change, sizeof(port->change), "the partition key %#x has left its place",
                 verbs->address.pkey);
    } else {
        port->change[0] = '\0';
    }
    if (attr->state != IBV_PORT_ACTIVE && attr->state != IBV_PORT_ACTIVE_DEFER) {
        away = "is down";
    }
    if (port->away == NULL && away != NULL) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: a port was away for a while");
        port->since = regx_now_ns();
    } else if (port->away != NULL && away == NULL) {
        port->back = regx_now_ns();
        verbs->cm.next = 0;
    }
    port->away = away;
    regx_trace(verbs->config.trace, REGX_TRACE_CONNECTION, "verbs: port %s %s%s%s", port->name,
               port->away != NULL ? port->away : "is up", port->change[0] != '\0' ? "; " : "",
               port->change);
}

void regx_verbs_look(regx_verbs_t *verbs)
{
    regx_verbs_port_t *port = &verbs->port;
    const bool had_events = port->context->async_fd >= 0;
    struct ibv_async_event event;

    if (!regx_verbs_port_has_device(port)) {
        if (!port->failed) {
            port->failed = true;
            regx_eps_break(verbs, REGX_EP_BROKEN, "device", strerror(EBADF));
        }
        return;
    }
    if (had_events && !regx_verbs_port_has_events(port)) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: the program has closed the descriptor of events");
    }
    if (port->context->async_fd < 0) {
        return; /* it is noticed later what fails, and not that the port goes */
    }
    for (int i = 0; i < EVENTS && ibv_get_async_event(port->context, &event) == 0; i++) {
        switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            queue_pair_failed(verbs, &event);
            break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL:
            port->failed |= event.event_type == IBV_EVENT_DEVICE_FATAL;
            regx_eps_break(verbs, REGX_EP_BROKEN, "device", ibv_event_type_str(event.event_type));
            break;
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_LID_CHANGE:
        case IBV_EVENT_PKEY_CHANGE:
        case IBV_EVENT_GID_CHANGE:
        case IBV_EVENT_SM_CHANGE:
        case IBV_EVENT_CLIENT_REREGISTER:
            if (event.element.port_num == port->number) {
                read_port(verbs);
            }
            break;
        default:
            break;
        }
        ibv_ack_async_event(&event);
    }
    if (port->away == NULL) {
        return;
    }
    const int64_t now = regx_now_ns();
    if (now >= port->next) { /* events get lost where many come */
        port->next = now + ASK_NS;
        read_port(verbs);
    }
    if (port->away != NULL && now - port->since >= REGX_VERBS_AWAY_NS) {
        port->since = now; /* for those that begin after this */
        regx_eps_break(verbs, REGX_EP_BROKEN, "sending", "given up after a minute");
    }
}
