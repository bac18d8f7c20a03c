/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Work requests of endpoints, and their completion.
 *
 * Requests report their end only where somebody waits for it, and one in half of what fits. What
 * does not report is never more than half of all, and never holds more than a quarter of the first
 * slots, so that the rest always comes back. An endpoint that gets no slot asks what became of its
 * own.
 */
#ifndef REGX_VERBS_TX_H
#define REGX_VERBS_TX_H

#include "transport/verbs/ep.h"

/* Whether so many requests may be posted. */
static inline bool regx_tx_has_room(const regx_ep_t *ep, uint64_t requests)
{
    const regx_verbs_t *verbs = ep->verbs;

    return ep->sq.posted - ep->sq.done + requests <= ep->sq.depth &&
           verbs->requests.outstanding + requests <= verbs->requests.max;
}
/* Whether what is in line may be posted. */
static inline bool regx_tx_is_open(const regx_ep_t *ep)
{
    return ep->state == REGX_EP_READY || ep->state == REGX_EP_LEAVING;
}
/* Posts requests with one ring of the doorbell. There is room. REGX_OK; REGX_UNREACHABLE: the
 * device refuses, which breaks the endpoint. */
regx_status_t regx_tx_post(regx_ep_t *ep, struct ibv_send_wr *requests, const regx_work_t *works,
                           unsigned count);
/* A segment of a frame, as a request. */
struct ibv_send_wr regx_tx_segment(regx_segment_t kind, uint8_t tag, struct ibv_sge *data);
/* Posts a frame of at most inline_max bytes, which the request carries itself. There is room. */
regx_status_t regx_tx_post_inline(regx_ep_t *ep, regx_segment_t kind, uint8_t tag, const void *data,
                                  size_t length);
/* Posts a goodbye, behind all that was accepted. REGX_OK, REGX_AGAIN, REGX_UNREACHABLE. */
regx_status_t regx_tx_post_goodbye(regx_ep_t *ep);

/* A slot for the endpoint, or REGX_SLOT_NONE; given back when the request is done that holds it. */
uint32_t regx_tx_take_slot(regx_ep_t *ep);

/* Whether a put, get or zcopy of the endpoint is under way or in line. */
bool regx_tx_touches(const regx_ep_t *ep);
/* The work requests up to that number, itself included, are done. */
void regx_tx_done(regx_ep_t *ep, uint64_t number);
/* Ends all of the endpoint's work with REGX_FAILED. The queue pair is gone. */
void regx_tx_fail(regx_ep_t *ep);

/* What a put or a get that waits in line keeps in its scratch words. */
typedef struct __attribute__((may_alias)) regx_in_line {
    void *next;    /* the put or get behind it; or NULL */
    size_t posted; /* bytes of it */
} regx_in_line_t;
_Static_assert(sizeof(regx_in_line_t) <= sizeof(((regx_put_t *)0)->scratch) &&
                   sizeof(regx_in_line_t) <= sizeof(((regx_get_t *)0)->scratch),
               "a place in line fits");
static inline regx_in_line_t *regx_put_in_line(regx_put_t *put)
{
    return (regx_in_line_t *)(void *)put->scratch;
}
static inline regx_in_line_t *regx_get_in_line(regx_get_t *get)
{
    return (regx_in_line_t *)(void *)get->scratch;
}

/* Post what is in line, as far as there is room; of puts a bounded amount. */
void regx_put_take_turn(regx_ep_t *ep);
void regx_get_take_turn(regx_ep_t *ep);

#endif
