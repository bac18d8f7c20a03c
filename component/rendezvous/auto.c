/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Auto: which of the other strategies carries a message; tuner.h says how the fastest is found. Where
 * the kernel copies between the two processes: staged, in which two cores copy at once in user space;
 * read, the kernel's single copy by the receiver; or together, where the sender copies a part.
 * Elsewhere on a node: bounce. Over a device: pipeline, where the wire writes the user's buffer in
 * chunks and spares the copy out (a buffer that is registered already goes as one chunk), or bounce,
 * which registers nothing.
 *
 * On a node the first trial begins with the first message. Its first messages go by staged, which
 * brings in the pages of its buffers so. `together` is the prior, the way that goes where no trial
 * is under way and nothing is known: it took a third to a half of staged's time if the program does
 * not touch the buffers, and 1.0 to 1.3 times as long if they are written before each message and
 * read after it (two cores of a Xeon, from 64 KiB to 1 MiB).
 *
 * Up to 32 KiB a node has one rendezvous, read, which needs no trial. There the sender tries whether
 * eager is faster (REGX_AUTO_SHORT).
 *
 * Over an RDMA device a short message into a buffer that is new goes by bounce if buffers have not
 * come back lately: to register a buffer at both ends pays only if it comes back. Such a message is
 * not counted in a trial: that is about registered buffers.
 */
#include "rendezvous/recv.h"

/* The tuner's candidates: the prior, its opener, others. */
static const regx_path_t paths[REGX_AUTO_WIRES][REGX_AUTO_CANDIDATES] = {
    [REGX_AUTO_NODE] = {REGX_PATH_together, REGX_PATH_staged, REGX_PATH_read},
    [REGX_AUTO_DEVICE] = {REGX_PATH_pipeline, REGX_PATH_bounce, REGX_PATH_COUNT}};

/* The number of a message's size. */
static unsigned number_of(uint64_t length)
{
    const unsigned size = 63 - (unsigned)__builtin_clzll(length / REGX_AUTO_SMALLEST | 1);

    return size < REGX_AUTO_SIZES ? size : REGX_AUTO_SIZES - 1;
}

regx_trial_t regx_auto_enter(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length)
{
    return regx_tune_enter(&tunes[number_of(length)]);
}

/* Guessed as processors guess branches: a buffer that is found registered gives credit, one that is
 * not takes some. Without credit one new buffer in so many is registered all the same, by which a
 * program is noticed that begins to use its buffers again. */
static bool comes_back_locked(regx_reuse_t *reuse, bool known)
{
    if (known) {
        reuse->credit = (unsigned)regx_min(reuse->credit + 2, REGX_AUTO_CREDIT_MAX);
    } else if (reuse->credit > 0) {
        reuse->credit--;
    } else {
        reuse->passed = (reuse->passed + 1) % REGX_AUTO_NEW_TRIED;
        return reuse->passed == 0;
    }
    return true;
}

/* Over a device: the buffer is registered, or is to be. */
static bool is_worth_registering(regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const regx_registry_t *registry = rndv->registry;

    if (recv->buffer.length > REGX_AUTO_NEW_MAX || !recv->peer->conn->transport->registers ||
        registry->cache == NULL || registry->on_demand) {
        return true;
    }
    /* The first chunk is enough: a buffer may be registered chunk by chunk. */
    const bool known = regx_region_seems_kept(
        rndv->registry, recv->buffer.base, regx_min(recv->buffer.length, rndv->config.chunk_size),
        REGX_ACCESS_REMOTE_WRITE);
    regx_lock(&rndv->lock);
    const bool expected = comes_back_locked(&rndv->tuner.reuse, known);
    regx_unlock(&rndv->lock);
    return expected;
}

static regx_path_t choose(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    const regx_conn_t *conn = recv->peer->conn;
    const regx_auto_wire_t wire = conn->shares_pool ? REGX_AUTO_NODE : REGX_AUTO_DEVICE;

    if (wire == REGX_AUTO_NODE &&
        (!conn->single_copy || recv->peer->no_puts || recv->peer->no_gets)) {
        recv->why = REGX_WHY_refused;
        return REGX_PATH_bounce;
    }
    if (wire == REGX_AUTO_NODE && recv->buffer.length <= REGX_AUTO_SHORT) {
        recv->why = REGX_WHY_brief;
        return REGX_PATH_read;
    }
    if (wire == REGX_AUTO_DEVICE && !is_worth_registering(rndv, recv)) {
        recv->why = REGX_WHY_new;
        return REGX_PATH_bounce;
    }
    regx_lock(&rndv->lock);
    recv->trial = regx_auto_enter(rndv->tuner.sizes[wire], recv->buffer.length);
    regx_unlock(&rndv->lock);
    recv->why = recv->trial.why;
    return paths[wire][recv->trial.candidate];
}

uint64_t regx_auto_speed(regx_rndv_t *rndv, regx_path_t path, uint64_t length)
{
    const unsigned size = number_of(length);
    const uint32_t program = regx_fpe_mask();
    float cost = 0;

    regx_lock(&rndv->lock);
    /* A transport has one kind of wire: of the other nothing was found. */
    for (unsigned i = 0; i < REGX_AUTO_WIRES * REGX_AUTO_CANDIDATES; i++) {
        const unsigned wire = i / REGX_AUTO_CANDIDATES, candidate = i % REGX_AUTO_CANDIDATES;

        if (paths[wire][candidate] == path) {
            cost += rndv->tuner.sizes[wire][size].found[candidate];
        }
    }
    regx_unlock(&rndv->lock);
    const uint64_t speed = cost > 0 ? (uint64_t)(1e9F / cost) : 0;
    regx_fpe_restore(program);
    return speed;
}

const regx_strategy_t regx_strategy_auto = {.choose = choose,
                                            .grants_known_whole = true,
                                            .exposes = true,
                                            .stages_from = REGX_AUTO_SHORT + 1};
