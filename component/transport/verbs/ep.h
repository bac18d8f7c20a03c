/* SPDX-License-Identifier: BSD-3-Clause
 *
 * An endpoint: the reliable queue pair to one peer. There is one per peer at each end. A queue pair
 * is used for one connection only: a peer that disconnects and comes back gets another. cm.h draws
 * how an endpoint begins and ends.
 */
#ifndef REGX_VERBS_EP_H
#define REGX_VERBS_EP_H

#include "transport/verbs/verbs.h"

/* What a work request stands for when it is done. */
typedef struct regx_work {
    enum {
        REGX_WORK_PLAIN, /* nobody waits for it */
        REGX_WORK_SLOT,
        REGX_WORK_PUT,
        REGX_WORK_ZCOPY,
        REGX_WORK_GET, /* of the segments of one, the last has the object */
        REGX_WORK_FETCH,
        REGX_WORK_PROBE /* nobody waits for it, but its end is always reported */
    } kind;
    uint32_t slot; /* SLOT, PUT, GET, FETCH; of PUT and GET REGX_SLOT_NONE if they have none */
    void *object;  /* the put, zcopy, get or fetch */
    const char *what;
} regx_work_t;

typedef enum regx_ep_state { /* see cm.h */
                             REGX_EP_ASKING,
                             REGX_EP_ACCEPTED,
                             REGX_EP_READY,
                             REGX_EP_LEAVING,
                             REGX_EP_LEFT,
                             REGX_EP_BROKEN
} regx_ep_state_t;

/* Work requests under way, in order: those numbered [done, posted). */
typedef struct regx_sq {
    uint32_t depth;
    regx_work_t *works; /* a ring of `depth` */
    uint64_t posted, done;
    uint32_t unsignaled;       /* requests since the last one that reports its end */
    uint32_t unsignaled_slots; /* slots that those requests hold */
    uint32_t slots;            /* slots that all requests under way hold */
} regx_sq_t;

struct regx_ep {
    regx_verbs_t *verbs;
    uint64_t peer;
    regx_verbs_conn_t *conn; /* NULL: nobody here has asked for this peer */
    regx_ep_state_t state;
    bool leaves;    /* we leave: as soon as it is READY, or has ended */
    bool peer_left; /* the peer sent goodbye */
    bool reported;  /* callers were notified that it broke */
    char what[160]; /* what broke it */
    struct ibv_qp *qp;
    uint32_t qpn; /* the queue pair's number */
    uint32_t psn;
    uint32_t inline_max;
    uint64_t epoch; /* greater than that of any before it in this process */
    regx_verbs_address_t address;
    struct { /* of the peer, from ACCEPTED on */
        uint64_t epoch, pool, pool_size;
        uint32_t qpn, pool_key;
    } theirs;
    struct { /* datagrams: see cm.c */
        unsigned asked;
        int64_t ask_next; /* when to ask again, in nanoseconds */
        regx_link_t asking, due;
    } cm;
    regx_sq_t sq;
    /* Puts in line, oldest first; the first may have been posted in part. */
    regx_put_t *first, *last;
    /* Gets, likewise. The device would hold up all that comes behind a READ beyond `max`, so no
     * more are posted. */
    struct {
        regx_get_t *first, *last;
        uint8_t max, posted;
    } gets;
    regx_arbiter_entry_t entry; /* to post what is in line */
    struct {                    /* a frame that arrives in segments */
        uint8_t *memory;        /* REGX_VERBS_ZCOPY_MAX bytes, or NULL */
        size_t length;
        bool discards; /* segments of a frame were lost: what follows here is no frame */
    } gathered;
    struct {             /* of a queue pair that is driven to error */
        bool last_taken; /* the device takes no more from the shared receive queue for it */
        int64_t since;   /* when it was; 0: it was not */
    } rest;
    regx_link_t link, ending;
    regx_ep_t *next_by_peer, *next_by_qpn;
};

/* Finds out what queue pairs the device makes: can.inline_max and can.depth. REGX_OK;
 * REGX_UNREACHABLE: none, or none that holds the longest frame; `error` holds one line. If the
 * device has no memory at the moment, nothing is found out and it is REGX_OK: requests carry no
 * data inline then. */
regx_status_t regx_qp_probe(regx_verbs_t *verbs, char *error, size_t error_size);
/* The route to the process that published an address. Owned by the caller; NULL: see errno, which
 * is not 0. On RoCE the kernel asks the network for the peer's hardware address, unless it knows
 * it, and waits for the answer up to a second (measured with Linux 7.2: 1.0 s for a host that is
 * not there). Nothing in verbs goes on without. So the thread that first sends to a peer, or the
 * one in progress that accepts its request, may wait so long, once for each peer. */
struct ibv_ah *regx_qp_route(const regx_verbs_t *verbs, const regx_verbs_address_t *address);

/* Whether an error is a lack of memory, which may pass. */
bool regx_is_scarce(int error);
/* A new endpoint, ASKING. It is BROKEN if the device refuses, or if there are too many peers. NULL:
 * no memory now, here or for the device; a device that has had none for a minute refuses. */
regx_ep_t *regx_ep_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address);
/* Connects the queue pair to the peer's; the kernel may wait as for a route. 0, or the error. */
int regx_ep_connect(regx_ep_t *ep, const regx_cm_message_t *message);
regx_ep_t *regx_ep_find(const regx_verbs_t *verbs, uint64_t peer);
regx_ep_t *regx_ep_find_qpn(regx_verbs_t *verbs, uint32_t qpn);

/* The endpoint can take a step towards its end. */
static inline void regx_ep_set_ending(regx_ep_t *ep)
{
    regx_list_set(&ep->verbs->ending, &ep->ending, true);
}
/* Breaks an endpoint, with what it was doing and why ("RDMA WRITE", "transport retry counter
 * exceeded"); cm.c does the rest. The first reason stays. */
void regx_ep_break(regx_ep_t *ep, const char *what, const char *why);
/* Likewise, all of them. */
void regx_eps_break(regx_verbs_t *verbs, const char *what, const char *why);

/* Takes it out of the table by queue pair number: completions of it are not heeded. */
void regx_ep_forget_qpn(regx_ep_t *ep);
/* Frees an endpoint whose queue pair is destroyed and which is in no list of others. */
void regx_ep_free(regx_ep_t *ep);

#endif
