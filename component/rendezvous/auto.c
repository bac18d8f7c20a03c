/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Auto. Where both processes map the pool: bounce, in which two cores copy at once in user space;
 * read, the kernel's single copy by the receiver; or together, where the sender copies a part.
 * Elsewhere: pipeline, where the wire writes the user's buffer in chunks and spares the copy out (a
 * buffer that is registered already goes as one chunk), or bounce, which registers nothing. Which
 * of them is found out on the job's own messages.
 *
 * The prior goes first: on a node together, which took a third to a half of bounce's time if the
 * program does not touch the buffers, and 1.0 to 1.3 times as long if they are written before each
 * message and read after it (two cores of a Xeon, from 64 KiB to 1 MiB). The first messages find
 * caches and page tables cold, so they are not compared.
 *
 * A trial is ROUNDS rounds, in each of which every candidate has one turn: RUN messages that come
 * alone, a burst, or STREAM messages where some are always open. A turn's cost is the time from its
 * first message to the next turn's, per byte. So what the program does with the data counts. The
 * first messages of a turn pay for where the one before left the data, and are not counted. Of a
 * burst only PROBE messages go by a candidate, and the others by the winner: what they took
 * together tells the candidate's share. The least cost of several turns counts, since others may
 * have been interrupted. What is clearly worse, or messages could not go by, has no further turn.
 *
 * Then all go by the winner, for REST times as many messages as the trial took, and for twice as
 * many each time that the outcome is the same. So trials cost the same each time, and become rare.
 * What that loses, compared with the best single candidate, stands in test_regret.c.
 *
 * The receiver of a message decides alone, so the two ends of a pair cannot disagree. Peers are not
 * told apart. While there is no trial no clock is read.
 *
 * Over an RDMA device a short message into a buffer that is new goes by bounce if buffers have not
 * come back lately: to register a buffer at both ends pays only if it comes back. It has no part in
 * what is found out, which is about registered ones.
 */
#include "rendezvous/proto.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"

#define ROUNDS 3u
#define WARM 2u    /* messages that come alone: the first ones of a turn */
#define RUN 6u     /* and those that are counted, at least */
#define BURST 4u   /* messages open at once: they do not come alone */
#define PROBE 16u  /* messages of a burst that go by a candidate */
#define STREAM 64u /* messages */
#define WORSE 1.25F
#define SAVES (31.0F / 32) /* another candidate has to save as much to win */
#define REST 64u
#define REPEATED_MAX 5u
#define REST_MAX (1u << 20)

/* On this kind of wire. The prior is the first. */
static const struct {
    uint8_t candidates;
    regx_path_t path[REGX_AUTO_CANDIDATES];
    uint32_t patience; /* messages before the first trial */
} wires[REGX_AUTO_WIRES] = {
    [REGX_AUTO_NODE] = {3, {REGX_PATH_together, REGX_PATH_bounce, REGX_PATH_read}, 16},
    [REGX_AUTO_APART] = {2, {REGX_PATH_pipeline, REGX_PATH_bounce}, 512}};

static const char *const reasons[REGX_DECISIONS] = {[REGX_DECISION_REFUSED] =
                                                        "the kernel does not copy to this peer",
                                                    [REGX_DECISION_NEW] = "the buffer is new",
                                                    [REGX_DECISION_PRIOR] = "not tried yet",
                                                    [REGX_DECISION_TRIAL] = "on trial",
                                                    [REGX_DECISION_WINNER] = "fastest when tried"};

void regx_auto_init(regx_autotune_t tunes[REGX_AUTO_SIZES], regx_auto_wire_t wire)
{
    for (unsigned size = 0; size < REGX_AUTO_SIZES; size++) {
        tunes[size] =
            (regx_autotune_t){.candidates = wires[wire].candidates, .rest = wires[wire].patience};
    }
}

/* The number of a message's size. */
static unsigned number_of(uint64_t length)
{
    const unsigned size = 63 - (unsigned)__builtin_clzll(length / REGX_AUTO_SMALLEST | 1);

    return size < REGX_AUTO_SIZES ? size : REGX_AUTO_SIZES - 1;
}

/* ---- a trial ---- */

static bool is_alive(const regx_autotune_t *tune, unsigned candidate)
{
    return (tune->alive & 1u << candidate) != 0;
}

static void begin_turn(regx_autotune_t *tune)
{
    const bool alone = tune->open_max < BURST;

    /* Of those that are open a sender has got ahead with as many. */
    tune->before = tune->open > 0 ? 2 * tune->open : alone ? WARM : 0;
    tune->probe = tune->before + PROBE;
    tune->entered = tune->closed = 0;
    tune->bytes = tune->own = 0;
    tune->began = 0;
    tune->failed = false;
    tune->open_max = tune->open;
    tune->number++;
}

static void begin_trial(regx_autotune_t *tune)
{
    tune->trying = true;
    tune->alive = (uint8_t)((1u << tune->candidates) - 1);
    tune->turn = 0;
    tune->messages = 0;
    tune->candidate = tune->winner;
    memset(tune->cost, 0, sizeof(tune->cost));
    begin_turn(tune);
}

static void end_trial(regx_autotune_t *tune)
{
    const uint8_t before = tune->winner;
    float limit = is_alive(tune, before) ? tune->cost[before] * SAVES : 0;

    for (uint8_t i = 0; i < tune->candidates; i++) {
        if (i != before && is_alive(tune, i) && tune->cost[i] > 0 &&
            (limit == 0 || tune->cost[i] < limit)) {
            tune->winner = i;
            limit = tune->cost[i];
        }
    }
    const bool again = tune->known && tune->winner == before;

    tune->repeated = again ? (uint8_t)regx_min(tune->repeated + 1, REPEATED_MAX) : 0;
    tune->known = true;
    tune->trying = false;
    tune->rest = (uint32_t)regx_min((uint64_t)tune->messages * REST << tune->repeated, REST_MAX);
}

/* The turn is over: what it tells of its candidate. */
static void judge(regx_autotune_t *tune, int64_t now)
{
    float cost = (float)(now - tune->began) * 1000 / (float)tune->bytes, best;
    const float rest = tune->cost[tune->winner];

    if (tune->failed || tune->own == 0) {
        tune->alive &= (uint8_t) ~(1u << tune->candidate);
        return;
    }
    if (tune->own < tune->bytes) {
        cost = rest + (cost - rest) * (float)tune->bytes / (float)tune->own;
        cost = cost > rest / 4 ? cost : rest / 4;
    }
    if (tune->cost[tune->candidate] == 0 || cost < tune->cost[tune->candidate]) {
        tune->cost[tune->candidate] = cost;
    }
    best = tune->cost[tune->candidate];
    for (unsigned i = 0; i < tune->candidates; i++) {
        best =
            is_alive(tune, i) && tune->cost[i] > 0 && tune->cost[i] < best ? tune->cost[i] : best;
    }
    for (unsigned i = 0; i < tune->candidates; i++) {
        if (tune->cost[i] > best * WORSE) {
            tune->alive &= (uint8_t) ~(1u << i);
        }
    }
}

static void next_turn(regx_autotune_t *tune)
{
    judge(tune, regx_now_ns());
    do {
        tune->turn++;
        tune->candidate = (uint8_t)((tune->candidate + 1) % tune->candidates);
    } while (tune->turn < ROUNDS * tune->candidates && !is_alive(tune, tune->candidate));
    if (tune->turn >= ROUNDS * tune->candidates || (tune->alive & (tune->alive - 1)) == 0) {
        end_trial(tune);
    } else {
        begin_turn(tune);
    }
}

/* A turn ends where no message is open; or, where some always are, once those have closed. */
static bool is_over(const regx_autotune_t *tune)
{
    return tune->began > 0 &&
           (tune->open == 0 ? tune->closed >= RUN
                            : tune->closed >= STREAM && tune->closed >= tune->open_max);
}

/* A message comes, and no trial is going on. One begins as a turn ends. */
static void wait_for_trial(regx_autotune_t *tune)
{
    tune->entered = tune->open == 0 ? 0 : tune->entered + 1; /* since none was open */
    tune->rest -= tune->rest > 0;
    if (tune->rest == 0 && (tune->open == 0 || tune->entered >= 4 * STREAM)) {
        begin_trial(tune);
    } else if (tune->open == 0) {
        tune->open_max = 0;
    }
}

regx_trial_t regx_auto_enter(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length)
{
    regx_autotune_t *tune = &tunes[number_of(length)];

    if (!tune->trying) {
        wait_for_trial(tune);
    } else if (is_over(tune)) {
        next_turn(tune);
    }
    if (tune->trying && tune->before == 0 && tune->began == 0) {
        tune->began = regx_now_ns();
    }
    const bool probed = tune->entered >= tune->probe && tune->cost[tune->winner] > 0;

    tune->open++;
    tune->open_max = (uint32_t)regx_max(tune->open, tune->open_max);
    tune->messages++;
    tune->entered++;
    return (regx_trial_t){.of = tune,
                          .trial = tune->trying,
                          .known = tune->known,
                          .candidate = tune->trying && !probed ? tune->candidate : tune->winner,
                          .number = tune->number};
}

void regx_auto_leave(const regx_trial_t *trial, uint64_t length, bool went)
{
    regx_autotune_t *tune = trial->of;

    if (tune == NULL) {
        return;
    }
    tune->open--;
    if (!tune->trying) {
        return;
    }
    if (tune->before > 0) {
        if (--tune->before == 0 && tune->open > 0) {
            tune->began = regx_now_ns();
        }
        return;
    }
    const bool own = trial->candidate == tune->candidate;

    tune->closed++;
    tune->bytes += length;
    tune->own += own ? length : 0;
    tune->failed |= own && !went && trial->number == tune->number;
}

/* ---- a message's path ---- */

/* Bytes of a message that may go by bounce because its buffer is new. Measured on Soft-RoCE, one
 * way, a new buffer for each: bounce takes 0.65 of pipeline's time at 32 KiB, 0.88 at 64 KiB, and
 * 1.4 times as long at 128 KiB. */
#define NEW_MAX (64u * 1024u)
#define CREDIT_MAX 32u
#define SAMPLE 16u

/* Guessed as processors guess branches: a buffer that is found registered gives credit, one that is
 * not takes some. Without credit one new buffer in SAMPLE is registered all the same, by which a
 * program is noticed that begins to use its buffers again. */
static bool comes_back_locked(regx_reuse_t *reuse, bool known)
{
    if (known) {
        reuse->credit = (unsigned)regx_min(reuse->credit + 2, CREDIT_MAX);
        return true;
    }
    if (reuse->credit > 0) {
        reuse->credit--;
        return true;
    }
    reuse->passed = (reuse->passed + 1) % SAMPLE;
    return reuse->passed == 0;
}

/* Over a device: the buffer is registered, or is to be. */
static bool is_worth_registering(regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const regx_registry_t *registry = rndv->registry;

    if (recv->length > NEW_MAX || !recv->peer->conn->transport->registers ||
        registry->cache == NULL || registry->on_demand) {
        return true;
    }
    /* The first chunk is enough: a buffer may be registered chunk by chunk. */
    const bool known = regx_region_seems_kept(rndv->registry, recv->base,
                                              regx_min(recv->length, rndv->config.chunk_size),
                                              REGX_ACCESS_REMOTE_WRITE);
    regx_lock(&rndv->lock);
    const bool expected = comes_back_locked(&rndv->tuner.reuse, known);
    regx_unlock(&rndv->lock);
    return expected;
}

static regx_decision_t decide(regx_rndv_t *rndv, regx_rndv_recv_t *recv, regx_path_t *path)
{
    const regx_conn_t *conn = recv->peer->conn;
    const regx_auto_wire_t wire = conn->shares_pool ? REGX_AUTO_NODE : REGX_AUTO_APART;

    if (wire == REGX_AUTO_NODE &&
        (!conn->single_copy || recv->peer->no_puts || recv->peer->no_gets)) {
        *path = REGX_PATH_bounce;
        return REGX_DECISION_REFUSED;
    }
    if (wire == REGX_AUTO_APART && !is_worth_registering(rndv, recv)) {
        *path = REGX_PATH_bounce;
        return REGX_DECISION_NEW;
    }
    regx_lock(&rndv->lock);
    recv->trial = regx_auto_enter(rndv->tuner.sizes[wire], recv->length);
    regx_unlock(&rndv->lock);
    *path = wires[wire].path[recv->trial.candidate];
    return recv->trial.trial   ? REGX_DECISION_TRIAL
           : recv->trial.known ? REGX_DECISION_WINNER
                               : REGX_DECISION_PRIOR;
}

static regx_path_t choose(regx_rndv_t *rndv, regx_rndv_recv_t *recv)
{
    regx_path_t path;
    const regx_decision_t decision = decide(rndv, recv, &path);
    regx_tally_t *_Atomic *tally = &rndv->tuner.tally[decision][path];
    char text[REGX_REASON_LENGTH];

    if (*tally == NULL) {
        snprintf(text, sizeof(text), "%s: %s", regx_path_name(path), reasons[decision]);
        *tally = regx_tally_find(rndv->counters->decisions, text);
    }
    regx_count(rndv->counters, &(*tally)->count, 1);
    return path;
}

/* ---- what it found, as text ---- */

bool regx_auto_choice_write(regx_rndv_t *rndv, char text[REGX_AUTO_CHOICE])
{
    size_t used = 0;

    regx_lock(&rndv->lock);
    for (unsigned wire = 0; wire < REGX_AUTO_WIRES && used == 0; wire++) {
        regx_path_t before = REGX_PATH_COUNT;

        for (unsigned i = 0; i < REGX_AUTO_SIZES && used < REGX_AUTO_CHOICE; i++) {
            const regx_autotune_t *tune = &rndv->tuner.sizes[wire][i];
            const regx_path_t path = wires[wire].path[tune->winner];
            char size[24];

            if (tune->known && path != before) {
                regx_option_show_size(REGX_AUTO_SMALLEST << i, size, sizeof(size));
                used += (size_t)snprintf(text + used, REGX_AUTO_CHOICE - used, "%s%s:%s",
                                         used > 0 ? "," : "", size, regx_path_name(path));
                before = path;
            }
        }
    }
    regx_unlock(&rndv->lock);
    return used > 0;
}

const regx_strategy_t regx_strategy_auto = {
    .name = "auto", .choose = choose, .grants_known_whole = true, .exposes = true};
