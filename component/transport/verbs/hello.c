/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The handshake. Whoever wants to send says hello to the peer's UD queue pair, which its address
 * names, and says it again until an answer comes: datagrams get lost, and a peer that computes
 * answers only when it calls MPI again, which may be in an hour.
 *
 *   A: hello, my queue pair is a; I ask        B connects its b to a
 *   B: hello, mine is b, and I am connected to a
 *   A connects its a to b and knows that b listens: A is ready.
 *
 * B is ready once it hears a frame of A's, or, if it asks itself, A's answer. Both may ask at
 * once; neither order nor repetition changes the outcome, as there is one queue pair per peer.
 *
 * Coming back. Who leaves says goodbye, by the queue pair, and keeps it until the peer has parted
 * too: who has said goodbye and heard one destroys it. So who said goodbye and wants to send again
 * may find the peer gone, though it has not heard its goodbye yet (RETURNING): it asks again, with
 * a higher count of returns. A peer that is there and not leaving answers, and from then on takes
 * us for connected. One that is leaving does not: its goodbye is coming. Once that is heard the
 * queue pair is given up and another takes its place, which the peer accepts if it has left itself,
 * or has come back and asks. The count tells answers and questions from those of an earlier return.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "transport/verbs/internal.h"

#define FIRST_WAIT_NS 20000000 /* doubled up to 64 times */
#define DOUBLINGS 6u
#define ASKS_TOLD 500u /* some ten minutes */

static bool start(regx_verbs_t *verbs)
{
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                               .pkey_index = verbs->pkey_index,
                               .port_num = verbs->port.number,
                               .qkey = verbs->address.qkey};
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR};
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS};

    return ibv_modify_qp(verbs->ud, &init,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0 &&
           ibv_modify_qp(verbs->ud, &receive, IBV_QP_STATE) == 0 &&
           ibv_modify_qp(verbs->ud, &send, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
}

regx_status_t regx_hello_open(regx_verbs_t *verbs, char *error, size_t error_size)
{
    struct ibv_qp_init_attr attr = {.send_cq = verbs->cq,
                                    .recv_cq = verbs->cq,
                                    .cap = {.max_send_wr = REGX_VERBS_HELLOS,
                                            .max_recv_wr = REGX_VERBS_HELLOS,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_UD};
    uint32_t qkey;

    /* What knows not this number does not reach this queue pair. The highest bit is kept for
     * privileged ones. */
    if (getrandom(&qkey, sizeof(qkey), 0) != sizeof(qkey)) {
        qkey = 0;
    }
    verbs->address.qkey = (qkey & 0x7fffffff) | 1;
    verbs->ud = ibv_create_qp(verbs->pd, &attr);
    if (verbs->ud == NULL || !start(verbs)) {
        snprintf(error, error_size, "%s gives no UD queue pair: %s", verbs->port.name,
                 strerror(errno));
        return REGX_UNREACHABLE;
    }
    verbs->address.qpn = verbs->ud->qp_num;
    return REGX_OK;
}

void regx_hello_close(regx_verbs_t *verbs)
{
    if (verbs->ud != NULL) {
        ibv_destroy_qp(verbs->ud);
        verbs->ud = NULL;
        while (verbs->buffers.hellos_done != verbs->buffers.hellos_sent) {
            regx_buffer_hello_done(verbs);
        }
    }
}

void regx_hello_fail(regx_verbs_t *verbs, const char *why)
{
    for (regx_pair_t *pair = verbs->pairs; pair != NULL; pair = pair->next) {
        if (pair->state != REGX_PAIR_READY) {
            regx_pair_break(pair, "hello", why);
        }
    }
}

static void say(regx_pair_t *pair, uint8_t flags)
{
    regx_verbs_t *verbs = pair->verbs;
    const regx_verbs_hello_t hello = {.flags = flags,
                                      .reads = verbs->reads_answered,
                                      .returns = pair->returns,
                                      .heard = pair->peer_returns,
                                      .qpn = pair->qp->qp_num,
                                      .psn = pair->psn,
                                      .known = pair->state == REGX_PAIR_ALONE ? 0 : pair->peer_qpn,
                                      .from = verbs->config.self,
                                      .to = pair->peer,
                                      .pool = (uintptr_t)verbs->super.pool_memory,
                                      .pool_size = verbs->super.pool_size,
                                      .pool_key = verbs->pool_mr->rkey,
                                      .address = verbs->address};
    uint8_t bytes[REGX_VERBS_HELLO_SIZE];

    regx_verbs_hello_pack(&hello, bytes);
    const int error = regx_buffer_hello_send(verbs, pair, bytes);
    if (error != 0) {
        regx_pair_break(pair, "hello", strerror(error));
    }
}

void regx_hello_ask(regx_pair_t *pair)
{
    regx_verbs_t *verbs = pair->verbs;

    if (!pair->asking) {
        pair->asking = true;
        pair->asked = 0;
        pair->ask_next = regx_now_ns() + FIRST_WAIT_NS;
        pair->next_asking = verbs->asking;
        verbs->asking = pair;
        say(pair, REGX_VERBS_ASKS);
    }
}

void regx_hello_stop(regx_pair_t *pair)
{
    regx_pair_t **at = &pair->verbs->asking;

    if (pair->asking) {
        while (*at != pair) {
            at = &(*at)->next_asking;
        }
        *at = pair->next_asking;
        pair->asking = false;
    }
}

bool regx_hello_is_late(const regx_pair_t *pair)
{
    return pair->asking && pair->asked >= ASKS_TOLD;
}

void regx_hello_progress(regx_verbs_t *verbs)
{
    const int64_t now = regx_now_ns();

    for (regx_pair_t *pair = verbs->asking, *next; pair != NULL; pair = next) {
        next = pair->next_asking;
        if (now < pair->ask_next) {
            continue;
        }
        /* Nobody knows whether it is gone, or computes. */
        if (++pair->asked == ASKS_TOLD && verbs->config.events.silent != NULL) {
            verbs->config.events.silent(verbs->config.events.context, pair->peer);
        }
        pair->ask_next =
            now + ((int64_t)FIRST_WAIT_NS << (pair->asked < DOUBLINGS ? pair->asked : DOUBLINGS));
        say(pair, REGX_VERBS_ASKS);
    }
}

/* Datagrams may come late: what was said for a pair that has ended since must not connect its
 * successor to a queue pair that is no more. So the last ones that ended are remembered. */
void regx_hello_forget(const regx_pair_t *pair)
{
    regx_verbs_t *verbs = pair->verbs;

    if (pair->peer_qpn != 0) {
        verbs->ended[verbs->ended_count++ % REGX_VERBS_ENDED] =
            (regx_ended_t){pair->peer, pair->peer_qpn, pair->peer_psn};
    }
}

static bool has_ended(const regx_verbs_t *verbs, const regx_verbs_hello_t *hello)
{
    for (uint32_t i = 0; i < verbs->ended_count && i < REGX_VERBS_ENDED; i++) {
        const regx_ended_t *ended = &verbs->ended[i];

        if (ended->peer == hello->from && ended->qpn == hello->qpn && ended->psn == hello->psn) {
            return true;
        }
    }
    return false;
}

/* Whether the hello is of another queue pair than the one that ours is connected to. Numbers are
 * given anew. */
static bool is_another(const regx_pair_t *pair, const regx_verbs_hello_t *hello)
{
    return pair->peer_qpn != hello->qpn || pair->peer_psn != hello->psn;
}

/* Whether the peer may come with another queue pair than before: it has said goodbye, or could
 * after we did. */
static bool may_renew(const regx_pair_t *pair)
{
    return pair->parted || (pair->leaving && pair->parting) || pair->state == REGX_PAIR_RETURNING;
}

/* The peer has disconnected and now comes again, with another queue pair. */
static regx_pair_t *renew(regx_pair_t *pair, const regx_verbs_hello_t *hello)
{
    regx_verbs_t *verbs = pair->verbs;
    regx_verbs_conn_t *conn = pair->conn;

    regx_pair_delete(pair);
    pair = regx_pair_new(verbs, hello->from, &hello->address);
    if (pair != NULL && conn != NULL) {
        conn->pair = pair;
        pair->conn = conn;
    }
    return pair;
}

/* The pair that a hello is for; made if need be. NULL: none that can be connected, for a reason
 * that is counted or told. */
static regx_pair_t *addressee(regx_verbs_t *verbs, const regx_verbs_hello_t *hello)
{
    regx_pair_t *pair = regx_pair_find(verbs, hello->from);

    if (pair == NULL) {
        pair = regx_pair_new(verbs, hello->from, &hello->address);
    } else if (may_renew(pair) && is_another(pair, hello)) {
        pair = renew(pair, hello);
    } else if (pair->state != REGX_PAIR_ALONE && pair->state != REGX_PAIR_BROKEN &&
               is_another(pair, hello)) {
        regx_count(verbs->config.counters, &verbs->config.counters->malformed, 1);
        return NULL;
    }
    return pair == NULL || pair->state == REGX_PAIR_BROKEN ? NULL : pair;
}

/* The peer came back to a queue pair whose partner is gone. It hears our goodbye, but may have
 * heard a question of ours after it, and wait: what asks it from another queue pair tells. */
static void answer_returning(regx_verbs_t *verbs, const regx_verbs_hello_t *hello)
{
    if ((hello->flags & REGX_VERBS_ASKS) != 0 && hello->returns != 0 &&
        regx_pair_find(verbs, hello->from) == NULL) {
        regx_pair_t *pair = regx_pair_new(verbs, hello->from, &hello->address);

        if (pair != NULL && pair->state != REGX_PAIR_BROKEN) {
            regx_hello_ask(pair);
        }
    }
}

/* Of numbers that wrap around. */
static bool is_later(uint8_t count, uint8_t than)
{
    return count != than && (uint8_t)(count - than) <= INT8_MAX;
}

void regx_hello_receive(regx_verbs_t *verbs, const uint8_t *bytes, size_t length)
{
    regx_verbs_hello_t hello;

    if (regx_verbs_hello_unpack(bytes, length, &hello) != REGX_OK ||
        hello.to != verbs->config.self || hello.address.link_layer != verbs->address.link_layer) {
        regx_count(verbs->config.counters, &verbs->config.counters->malformed, 1);
        return;
    }
    if (has_ended(verbs, &hello)) {
        answer_returning(verbs, &hello);
        return;
    }
    regx_pair_t *pair = addressee(verbs, &hello);
    if (pair == NULL || (pair->state == REGX_PAIR_ALONE && !regx_pair_link(pair, &hello))) {
        return;
    }
    if (!pair->leaving && is_later(hello.returns, pair->peer_returns)) {
        pair->peer_returns = hello.returns;
        pair->parted = false;
    }
    if (hello.known == pair->qp->qp_num && hello.heard == pair->returns) {
        if (pair->state == REGX_PAIR_RETURNING) {
            pair->state = REGX_PAIR_LINKED;
        }
        regx_pair_ready(pair);
    }
    if ((hello.flags & REGX_VERBS_ASKS) != 0 && hello.returns == pair->peer_returns) {
        say(pair, 0);
    }
}
