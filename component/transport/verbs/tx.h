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

    return ep->posted - ep->done + requests <= ep->depth &&
           verbs->outstanding + requests <= verbs->outstanding_max;
}
/* Posts requests with one ring of the doorbell. There is room. REGX_OK, also where the device
 * refuses and the queue pair is replaced (restart.h); REGX_UNREACHABLE: it refuses, which breaks
 * the endpoint. */
regx_status_t regx_tx_post(regx_ep_t *ep, struct ibv_send_wr *requests, const regx_work_t *works,
                           unsigned count);
/* A segment of a frame, as a request. */
struct ibv_send_wr regx_tx_segment(regx_segment_t kind, uint8_t tag, struct ibv_sge *data);
/* Where to make the data that the next request carries itself: kept until it is done, so that it
 * can be posted again, or else in `room`. */
static inline uint8_t *regx_tx_carried(const regx_ep_t *ep, uint8_t room[REGX_VERBS_INLINE])
{
    return ep->carried == NULL ? room : ep->carried + ep->posted % ep->depth * REGX_VERBS_INLINE;
}
/* Posts a frame of at most inline_max bytes, which the request carries itself. There is room. */
regx_status_t regx_tx_post_inline(regx_ep_t *ep, regx_segment_t kind, uint8_t tag, const void *data,
                                  size_t length);
/* A write of no bytes, which the peer's device answers. There is room. */
void regx_tx_post_empty(regx_ep_t *ep, const regx_work_t *work);
/* RDMA WRITE or READ, for a self-test on an endpoint that is connected and has nothing to do. */
void regx_tx_post_trial(regx_ep_t *ep, enum ibv_wr_opcode operation, struct ibv_sge *segment,
                        uint64_t address, uint32_t rkey);
/* Posts a goodbye, behind all that was accepted; if the endpoint retires, when all of it has
 * completed. REGX_OK, REGX_AGAIN. */
regx_status_t regx_tx_post_goodbye(regx_ep_t *ep);

/* A slot for the endpoint, or REGX_SLOT_NONE; given back when the request is done that holds it. */
uint32_t regx_tx_take_slot(regx_ep_t *ep);

/* Whether a put, get or zcopy of the endpoint is under way or in line. */
bool regx_tx_touches(const regx_ep_t *ep);
/* The work requests up to that number, itself included, are done. */
void regx_tx_done(regx_ep_t *ep, uint64_t number);
/* The peer has handled so many of the numbered requests: those and what was done before them end
 * with REGX_OK. No queue pair works on any of them. false: it cannot be so many, or the peer does
 * not answer as many READs at once as there are. */
bool regx_tx_settle(regx_ep_t *ep, uint64_t handled);
/* Whether none of the requests under way may not be done twice. With restarts. */
bool regx_tx_may_repeat(const regx_ep_t *ep);
/* Posts what is left again, in its order. */
void regx_tx_repeat(regx_ep_t *ep);
/* Ends all of the endpoint's work with REGX_FAILED. The queue pair is gone. */
void regx_tx_fail(regx_ep_t *ep);

/* Lines of puts and gets: what is behind one of them. */
enum { REGX_TX_NEXT };

#endif
