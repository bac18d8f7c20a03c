/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The RC queue pair to one peer. There is one per peer at each end, made by whoever first wants to
 * send or first hears of the other.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memlock.h"
#include "transport/verbs/internal.h"

#define RNR_TIMER 12 /* 0.64 ms between two tries at a receiver without a buffer */
#define HOP_LIMIT 64
#define INLINE_LEAST 64   /* a notice and every control message */
#define REST_NS 100000000 /* that a broken queue pair has to come to rest */

/* With a device that has no memory for a queue pair: how often it is asked, for how long, and after
 * what time without a question it is another matter. */
#define TRY_NS INT64_C(10000000)
#define PATIENCE_NS INT64_C(60000000000)
#define FORGET_NS INT64_C(5000000000)

_Static_assert(INLINE_LEAST >= REGX_NOTICE_MAX, "notices are sent inline");

static unsigned bucket(uint64_t key)
{
    return (unsigned)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % REGX_VERBS_BUCKETS;
}

regx_pair_t *regx_pair_find(const regx_verbs_t *verbs, uint64_t peer)
{
    regx_pair_t *pair = verbs->by_peer[bucket(peer)];

    while (pair != NULL && pair->peer != peer) {
        pair = pair->next_by_peer;
    }
    return pair;
}

regx_pair_t *regx_pair_find_qpn(const regx_verbs_t *verbs, uint32_t qpn)
{
    regx_pair_t *pair = verbs->by_qpn[bucket(qpn)];

    while (pair != NULL && pair->qp->qp_num != qpn) {
        pair = pair->next_by_qpn;
    }
    return pair;
}

/* The way to the process that published an address. */
static struct ibv_ah_attr route(const regx_verbs_t *verbs, const regx_verbs_address_t *address)
{
    struct ibv_ah_attr attr = {
        .dlid = address->lid, .sl = verbs->settings.service_level, .port_num = verbs->port.number};

    if (address->link_layer == REGX_VERBS_ETHERNET ||
        memcmp(address->gid, verbs->address.gid, sizeof(uint64_t)) != 0) { /* another subnet */
        attr.is_global = 1;
        memcpy(attr.grh.dgid.raw, address->gid, REGX_VERBS_GID_SIZE);
        attr.grh.sgid_index = (uint8_t)verbs->port.gid.gid_index;
        attr.grh.hop_limit = HOP_LIMIT;
        attr.grh.traffic_class = verbs->settings.traffic_class;
    }
    return attr;
}

/* How much a request can carry itself differs between devices, and only trying tells. */
static struct ibv_qp *make_qp(regx_verbs_t *verbs)
{
    const uint32_t inline_most = verbs->inline_most;
    struct ibv_qp *qp;

    while (true) {
        struct ibv_qp_init_attr attr = {.send_cq = verbs->cq,
                                        .recv_cq = verbs->cq,
                                        .srq = verbs->srq,
                                        .cap = {.max_send_wr = verbs->depth,
                                                .max_send_sge = 1,
                                                .max_inline_data = verbs->inline_most},
                                        .qp_type = IBV_QPT_RC};

        qp = ibv_create_qp(verbs->pd, &attr);
        if (qp != NULL) {
            return qp;
        }
        if (verbs->inline_most <= INLINE_LEAST) {
            verbs->inline_most = inline_most; /* it was not that */
            return NULL;
        }
        verbs->inline_most =
            verbs->inline_most / 2 > INLINE_LEAST ? verbs->inline_most / 2 : INLINE_LEAST;
    }
}

/* 0, or the error. So the next ones. */
static int to_init(const regx_pair_t *pair)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = pair->verbs->pkey_index,
                               .port_num = pair->verbs->port.number,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

    return ibv_modify_qp(pair->qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* Never 0: libraries have forgotten to say why. */
static int last_error(void)
{
    return errno != 0 ? errno : EIO;
}

/* What of a pair is the device's. */
static int make_objects(regx_pair_t *pair)
{
    regx_verbs_t *verbs = pair->verbs;
    struct ibv_ah_attr way = route(verbs, &pair->address);

    errno = 0;
    pair->ah = ibv_create_ah(verbs->pd, &way);
    if (pair->ah == NULL) {
        return last_error();
    }
    pair->qp = make_qp(verbs);
    if (pair->qp == NULL || getrandom(&pair->psn, sizeof(pair->psn), 0) != sizeof(pair->psn)) {
        return last_error();
    }
    pair->psn &= 0xffffff;
    return to_init(pair);
}

static void destroy_objects(regx_pair_t *pair)
{
    if (pair->qp != NULL) {
        ibv_destroy_qp(pair->qp);
        pair->qp = NULL;
        pair->last_taken = false;
    }
    if (pair->ah != NULL) {
        regx_buffer_way_drop(pair->verbs, pair->ah);
        pair->ah = NULL;
    }
}

static void note_missed(regx_pair_t *pair, const char *what, int error)
{
    pair->missed = true;
    regx_pair_break(pair, what, strerror(error));
}

/* What the device pins for a queue pair counts against the limit of locked memory, and registered
 * buffers may have used that up for now. */
static void note_refused(regx_pair_t *pair, int error)
{
    const uint64_t limit = error == ENOMEM ? regx_memlock_limit() : REGX_MEMLOCK_NONE;
    char why[128];

    if (error == E2BIG) {
        snprintf(why, sizeof(why), "more than %u peers", REGX_VERBS_PAIRS_MAX);
    } else if (limit == REGX_MEMLOCK_NONE) {
        snprintf(why, sizeof(why), "%s", strerror(error));
    } else {
        snprintf(why, sizeof(why), "%s; the limit of locked memory (ulimit -l) is %" PRIu64 " KiB",
                 strerror(error), limit / 1024);
    }
    pair->missed = true;
    regx_pair_break(pair, "making a queue pair", why);
}

/* Whether there may be memory later. */
static bool may_pass(regx_verbs_t *verbs, int error, int64_t now)
{
    if (error != ENOMEM && error != EAGAIN) {
        return false;
    }
    if (verbs->starved_since == 0 || now - verbs->starved_until > FORGET_NS) {
        verbs->starved_since = now;
        regx_tally(verbs->config.counters->fallbacks, "verbs: no memory for a peer for a while");
    }
    verbs->starved_until = now + TRY_NS;
    return now - verbs->starved_since < PATIENCE_NS;
}

regx_pair_t *regx_pair_new(regx_verbs_t *verbs, uint64_t peer, const regx_verbs_address_t *address)
{
    const int64_t now = regx_now_ns();
    regx_pair_t *pair = now < verbs->starved_until ? NULL : calloc(1, sizeof(*pair));
    int error = E2BIG;

    if (pair == NULL) {
        return NULL;
    }
    pair->verbs = verbs;
    pair->peer = peer;
    pair->address = *address;
    pair->depth = verbs->depth;
    if (verbs->pair_count < REGX_VERBS_PAIRS_MAX) {
        error = make_objects(pair);
    }
    if (may_pass(verbs, error, now)) {
        destroy_objects(pair);
        free(pair);
        return NULL;
    }
    if (error == 0) {
        verbs->starved_since = 0;
        pair->next_by_qpn = verbs->by_qpn[bucket(pair->qp->qp_num)];
        verbs->by_qpn[bucket(pair->qp->qp_num)] = pair;
    } else {
        destroy_objects(pair);
        note_refused(pair, error);
    }
    pair->next_by_peer = verbs->by_peer[bucket(peer)];
    verbs->by_peer[bucket(peer)] = pair;
    pair->next = verbs->pairs;
    verbs->pairs = pair;
    verbs->pair_count++;
    return pair;
}

static int to_ready_to_receive(const regx_pair_t *pair, const regx_verbs_hello_t *hello)
{
    const regx_verbs_t *verbs = pair->verbs;
    const uint8_t mtu =
        verbs->address.mtu < hello->address.mtu ? verbs->address.mtu : hello->address.mtu;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = (enum ibv_mtu)mtu,
                               .dest_qp_num = hello->qpn,
                               .rq_psn = hello->psn,
                               .max_dest_rd_atomic = pair->verbs->reads_answered,
                               .min_rnr_timer = RNR_TIMER,
                               .ah_attr = route(verbs, &hello->address)};

    return ibv_modify_qp(pair->qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_ready_to_send(const regx_pair_t *pair)
{
    const regx_verbs_settings_t *settings = &pair->verbs->settings;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .sq_psn = pair->psn,
                               .timeout = settings->timeout,
                               .retry_cnt = settings->retry_count,
                               .rnr_retry = settings->rnr_retry,
                               .max_rd_atomic = pair->reads_most};

    return ibv_modify_qp(pair->qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

bool regx_pair_link(regx_pair_t *pair, const regx_verbs_hello_t *hello)
{
    pair->peer_qpn = hello->qpn;
    pair->peer_psn = hello->psn;
    pair->peer_pool = hello->pool;
    pair->peer_pool_size = hello->pool_size;
    pair->peer_pool_key = hello->pool_key;
    pair->reads_most =
        hello->reads < pair->verbs->reads_made ? hello->reads : pair->verbs->reads_made;
    int error = to_ready_to_receive(pair, hello);
    if (error == 0) {
        error = to_ready_to_send(pair);
    }
    if (error != 0) {
        note_missed(pair, "connecting the queue pair", error);
        return false;
    }
    pair->state = REGX_PAIR_LINKED;
    return true;
}

void regx_pair_ready(regx_pair_t *pair)
{
    if (pair->state == REGX_PAIR_LINKED) {
        pair->state = REGX_PAIR_READY;
        regx_hello_stop(pair);
    }
}

void regx_pair_return(regx_pair_t *pair)
{
    pair->state = REGX_PAIR_RETURNING;
    pair->returns++;
}

void regx_pair_break(regx_pair_t *pair, const char *what, const char *why)
{
    if (pair->state != REGX_PAIR_BROKEN) {
        pair->state = REGX_PAIR_BROKEN;
        snprintf(pair->what, sizeof(pair->what), "%s: %s", what, why);
    }
    pair->verbs->broke = true;
}

void regx_pairs_break(regx_verbs_t *verbs, const char *what, const char *why)
{
    for (regx_pair_t *pair = verbs->pairs; pair != NULL; pair = pair->next) {
        pair->missed = true;
        regx_pair_break(pair, what, why);
    }
}

static void forget_qpn(regx_pair_t *pair)
{
    regx_pair_t **at = &pair->verbs->by_qpn[bucket(pair->qp->qp_num)];

    while (*at != NULL && *at != pair) {
        at = &(*at)->next_by_qpn;
    }
    if (*at != NULL) {
        *at = pair->next_by_qpn;
    }
}

void regx_pair_cut(regx_pair_t *pair)
{
    pair->state = REGX_PAIR_BROKEN;
    regx_hello_stop(pair);
    regx_turn_lose(&pair->verbs->turns, &pair->turn);
    if (pair->qp != NULL) {
        forget_qpn(pair);
    }
    destroy_objects(pair);
    free(pair->gathered);
    pair->gathered = NULL;
    regx_post_fail(pair);
}

void regx_pair_delete(regx_pair_t *pair)
{
    regx_verbs_t *verbs = pair->verbs;
    regx_pair_t **at = &verbs->by_peer[bucket(pair->peer)];

    regx_hello_forget(pair);
    regx_pair_cut(pair);
    while (*at != pair) {
        at = &(*at)->next_by_peer;
    }
    *at = pair->next_by_peer;
    at = &verbs->pairs;
    while (*at != pair) {
        at = &(*at)->next;
    }
    *at = pair->next;
    verbs->pair_count--;
    if (pair->conn != NULL) {
        pair->conn->pair = NULL;
    }
    free(pair);
}

static bool is_done(const regx_pair_t *pair)
{
    return pair->posted == pair->done || pair->state != REGX_PAIR_READY;
}

bool regx_pair_is_drained(const regx_pair_t *pair)
{
    return is_done(pair) || pair->parted;
}

/* A broken pair is told of, also where nothing was ever sent to that peer and something may be
 * awaited; unless we have left it, or the peer may simply have left: then it said goodbye, and
 * nobody here wants anything of it. */
static void tell(regx_pair_t *pair)
{
    regx_verbs_t *verbs = pair->verbs;
    const bool tells = !pair->told && !pair->leaving && (pair->missed || !pair->parted);

    pair->missed = false;
    pair->told = pair->told || tells;
    /* First of all: whoever hears of a failed put alone may try the same memory in another way. */
    if (tells) {
        verbs->events++;
        verbs->config.events.broken(verbs->config.events.context, pair->peer, pair->what);
    }
}

static bool is_mourned(const regx_pair_t *pair)
{
    return pair->state == REGX_PAIR_BROKEN && (pair->qp != NULL || (pair->missed && !pair->told));
}

/* Whether the queue pair of a broken pair may be destroyed. Where completions of receives are then
 * still in the completion queue, some devices (mlx5) drop them, and what they took of the shared
 * receive queue would never come back. So it is driven to error, which ends what it has taken, and
 * nobody hears any more what arrives; the device tells when it takes no more, and once the
 * completion queue was seen empty after that, nothing of it is left. Soft-RoCE drops nothing, and
 * in older kernels does not tell; hence the limit in time. */
static bool is_at_rest(regx_pair_t *pair, bool empty)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    if (pair->qp == NULL || pair->peer_qpn == 0 || pair->verbs->closing) {
        return true; /* nothing is left, or can have come, or matters */
    }
    if (pair->rests_at == 0) {
        pair->rests_at = regx_now_ns() + REST_NS;
        regx_hello_stop(pair);
        forget_qpn(pair);
        if (ibv_modify_qp(pair->qp, &attr, IBV_QP_STATE) != 0) {
            return true;
        }
    }
    return (pair->last_taken && empty) || regx_now_ns() >= pair->rests_at;
}

void regx_pairs_mourn(regx_verbs_t *verbs, bool empty)
{
    regx_pair_t *pair = verbs->pairs;

    verbs->broke = false;
    while (pair != NULL) {
        if (pair->last_taken && empty) { /* a completion would have told more */
            regx_pair_break(pair, "queue pair", ibv_event_type_str(IBV_EVENT_QP_LAST_WQE_REACHED));
        }
        const bool mourned = is_mourned(pair);
        if (mourned) {
            tell(pair); /* at once: who sends now hears that it cannot */
        }
        if (mourned && is_at_rest(pair, empty)) {
            regx_pair_cut(pair);
            if (pair->leaving) {
                regx_pair_delete(pair);
            }
            pair = verbs->pairs; /* others have come or broken */
        } else {
            pair = pair->next;
        }
    }
    for (pair = verbs->pairs; pair != NULL && !verbs->broke; pair = pair->next) {
        verbs->broke = is_mourned(pair) || pair->last_taken;
    }
}

/* A peer that has parted and closes does not acknowledge our goodbye; who closes too does not wait
 * for that. One that only disconnected must hear it, or it would take us for connected when we come
 * again by another queue pair. */
void regx_pairs_part(regx_verbs_t *verbs)
{
    regx_pair_t *pair = verbs->pairs, *next;
    bool more = false;

    for (; pair != NULL; pair = next) {
        next = pair->next;
        if (pair->state == REGX_PAIR_RETURNING && pair->parted) {
            regx_pair_delete(pair); /* in vain: the peer has left, too */
            continue;
        }
        if (!pair->leaving) {
            continue;
        }
        if (pair->state == REGX_PAIR_READY && !pair->parting && !(verbs->closing && pair->parted)) {
            pair->parting = regx_post_goodbye(pair) == REGX_OK;
            more = true;
        } else if (pair->state == REGX_PAIR_RETURNING && !pair->parted && !verbs->closing) {
            more = true; /* the peer may have heard that we are back */
        } else if (is_mourned(pair)) {
            verbs->broke = more = true; /* that ends it */
        } else if (!(verbs->closing ? regx_pair_is_drained(pair) : is_done(pair))) {
            more = true;
        } else if (verbs->closing || pair->parted || pair->state == REGX_PAIR_BROKEN) {
            regx_pair_delete(pair);
        } else {
            /* The peer may still send, and is heard until it parts or all is closed; where the
             * handshake is not over it may be the one that knows more. */
            regx_hello_stop(pair);
        }
    }
    verbs->leaving = more;
}
