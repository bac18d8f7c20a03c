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
 * message and read after it (two cores of a Xeon, from 64 KiB to 1 MiB). The first messages, or the
 * first burst, find caches and page tables cold, so they are not compared. The first trial on a
 * node begins at once, with bounce: so what that pays for its pages falls into a benchmark's
 * warm-up.
 *
 * A trial is turns of the candidates: RUN messages that come alone (in the first turn only
 * RUN_FIRST: one that is far worse costs a short program most), a burst, or STREAM messages where
 * some are always open. A turn's cost is a time per byte, from its begin to that of the next, so
 * what the program does with the data counts. Messages that come alone have a cost each, and the
 * turn's is their median, which a long computation now and then does not change; in a candidate's
 * first turn it is the lower of the two in the middle. The first messages of a turn pay for where
 * the one before left the data, and are not counted. Their number varies, and a burst is left out
 * now and then, so that turns do not fall into step with the program; in the first trial it goes by
 * what was fastest so far. A burst goes by one candidate as a whole: if only a part of it did, the
 * slots of bounce would wait for the kernel's copies of the rest.
 *
 * The least cost of a candidate's turns counts, of up to ROUNDS; of lone messages the first turn's
 * only until there is a second. It has no second turn if the first was far worse than the best, no
 * third if it was clearly worse, and none after messages went another way in two. While its turns
 * still become faster it goes on, in the first trial at once, and where one takes half the time of
 * the best before, that one is not counted in ROUNDS: the first ones of bounce map the pages of its
 * slots (a virtual machine on an EPYC of Zen 5: 64 messages of 32 KiB took 1.4, 0.7, 0.3, 0.12 ms).
 * Messages that come alone are not compared with bursts: a turn of another kind is repeated. After
 * three such turns in a row both are compared.
 *
 * Then all go by the winner, for REST times as many messages as the trial took, or until several of
 * them went another way. Larger sizes that were not tried yet begin with that winner, and what was
 * far worse has no part in the first trial of the next six. What trials lose, compared with the
 * best single candidate, and how soon a change of the costs is noticed, stands in test_regret.c.
 * Where a long computation follows every second burst a slow candidate may win.
 *
 * The receiver of a message decides alone, so the two ends of a pair cannot disagree. Peers are not
 * told apart. While there is no trial no clock is read.
 *
 * Over an RDMA device a short message into a buffer that is new goes by bounce if buffers have not
 * come back lately: to register a buffer at both ends pays only if it comes back. It has no part in
 * what is found out, which is about registered ones.
 */
#include "rendezvous/recv.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROUNDS 3u
#define TURNS_MAX 18u /* of a trial, with those that are repeated */
#define FAILED_TURNS 2u
#define NEARBY 6u /* powers of two */
#define WARM 2u   /* messages that come alone: the first ones of a turn, or one more */
#define RUN 6u    /* and those that are counted, at least; even, as some programs alternate */
#define WARM_FIRST 1u
#define RUN_FIRST 2u /* the same in a candidate's first turn */
#define BURST 4u     /* messages open at once: they do not come alone */
#define ALONE 1u     /* kinds of turns */
#define BURSTS 2u
#define REPEATS_MAX 2u
#define SHORT 16u          /* messages of a turn of bursts, at least */
#define STREAM 64u         /* messages */
#define WORSE 1.25F        /* times the best: a third turn would not help, */
#define FAR_WORSE 1.5F     /* nor a second */
#define WARMER (7.0F / 8)  /* times the turn before: it is still becoming faster, */
#define COLD 0.5F          /* or times the best before, which then does not count */
#define SAVES (31.0F / 32) /* another candidate has to save as much to win */
#define REST 128u
#define REST_UNFINISHED 16u /* a candidate was not measured */
#define REST_MAX (1u << 16)
#define REST_TOLD 4096u /* of what was measured elsewhere */
#define FAILURE 4u      /* of the winner; a message that went makes up for one part */
#define FAILURES_MAX 16u

/* On this kind of wire. The prior is the first, and SLOTS is bounce. */
#define SLOTS 1u
static const struct {
    uint8_t candidates;
    regx_path_t path[REGX_AUTO_CANDIDATES];
    uint32_t patience; /* messages before the first trial */
} wires[REGX_AUTO_WIRES] = {
    [REGX_AUTO_NODE] = {3, {REGX_PATH_together, REGX_PATH_bounce, REGX_PATH_read}, 0},
    [REGX_AUTO_APART] = {2, {REGX_PATH_pipeline, REGX_PATH_bounce}, 512}};

void regx_auto_init(regx_autotune_t tunes[REGX_AUTO_SIZES], regx_auto_wire_t wire)
{
    for (unsigned size = 0; size < REGX_AUTO_SIZES; size++) {
        tunes[size] = (regx_autotune_t){.candidates = wires[wire].candidates,
                                        .larger = (uint8_t)(REGX_AUTO_SIZES - 1 - size),
                                        .rest = wires[wire].patience};
    }
}

/* The number of a message's size. */
static unsigned number_of(uint64_t length)
{
    const unsigned size = 63 - (unsigned)__builtin_clzll(length / REGX_AUTO_SMALLEST | 1);

    return size < REGX_AUTO_SIZES ? size : REGX_AUTO_SIZES - 1;
}

void regx_auto_tell(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length, regx_path_t path)
{
    regx_autotune_t *tune = &tunes[number_of(length)];

    for (uint8_t i = 0; i < wires[REGX_AUTO_NODE].candidates; i++) {
        if (wires[REGX_AUTO_NODE].path[i] == path && tune->turn.number == 0) {
            tune->winner = i;
            tune->known = tune->told = true;
            tune->rest = REST_TOLD;
        }
    }
}

void regx_rndv_tell(regx_rndv_t *rndv, uint64_t length, regx_path_t path)
{
    regx_lock(&rndv->lock);
    regx_auto_tell(rndv->tuner.sizes[REGX_AUTO_NODE], length, path);
    regx_unlock(&rndv->lock);
}

/* ---- a trial ---- */

/* Whether messages of the turn, or of the trial, do not come alone. */
static bool is_burst(const regx_autotune_t *tune)
{
    return tune->open_max >= BURST || tune->turn.bursts || (tune->kind & BURSTS) != 0;
}

/* No cost is more than any, and a candidate that fails is more than that. */
static float cost_of(const regx_tried_t *tried)
{
    return tried->failed >= FAILED_TURNS ? INFINITY : tried->cost > 0 ? tried->cost : FLT_MAX;
}

static bool is_worse(const regx_autotune_t *tune, unsigned candidate, float times)
{
    float best = FLT_MAX;

    for (unsigned i = 0; i < tune->candidates; i++) {
        const float cost = cost_of(&tune->tried[i]);

        best = cost < best ? cost : best;
    }
    return tune->tried[candidate].cost > best * times;
}

static void begin_turn(regx_autotune_t *tune, uint8_t candidate)
{
    const uint32_t number = tune->turn.number + 1;
    /* 0 to 3, evenly, without a period. The sequence begins where no program of test_regret.c falls
     * into step with it. */
    const uint32_t vary = (number + 7) * 0x9e3779b9U >> 30;
    const bool alone = tune->open_max < BURST;
    const bool burst = tune->open == 0 && !alone;
    const uint32_t warm = tune->tried[candidate].turns == 0 ? WARM_FIRST : WARM + vary / 2;
    /* Of those that are open a sender has got ahead with as many. */
    const uint32_t before = tune->open > 0 ? 2 * tune->open : alone ? warm : 0;

    tune->turn = (regx_turn_t){.candidate = candidate,
                               .idle = burst && !tune->turn.idle && vary % 2 == 1,
                               .number = number,
                               .before = before};
    tune->open_max = tune->open;
    tune->turns++;
}

static void begin_trial(regx_autotune_t *tune)
{
    tune->trying = true;
    tune->told = false;
    tune->kind = tune->repeats = tune->turns = 0;
    tune->messages = 0;
    begin_turn(tune, tune->turn.number > 0 ? tune->winner : SLOTS);
    if (tune->turn.number == 1) {
        tune->turn.idle = true; /* it goes by the prior, or by what was fastest below */
        tune->turn.before = 0;
    }
}

/* To try what is far worse nearby costs a short program more than it can gain. The ratio of two
 * candidates changes slowly with the size (Zen 3, near, together to bounce from 32 KiB on: 2.8,
 * 2.0, 1.7, 1.5, 1.4), so for each size further it has to be worse by a quarter. Of a candidate
 * that had no part here a smaller size has told. */
static void tell_larger(regx_autotune_t *tune)
{
    float times = FAR_WORSE;

    for (unsigned i = 1; i <= tune->larger && !tune[i].known; i++, times *= WORSE) {
        if (tune[i].trying && tune[i].turn.number > 1) {
            continue;
        }
        tune[i].winner = tune->winner;
        for (unsigned other = 0; other < tune->candidates; other++) {
            if (tune->tried[other].cost > 0) {
                tune[i].tried[other].failed =
                    i <= NEARBY && is_worse(tune, other, times) ? FAILED_TURNS : 0;
            }
        }
    }
}

static void end_trial(regx_autotune_t *tune)
{
    float limit = cost_of(&tune->tried[tune->winner]) * SAVES;
    bool unfinished = false;

    for (uint8_t i = 0; i < tune->candidates; i++) {
        const float cost = cost_of(&tune->tried[i]);

        unfinished |= cost == FLT_MAX;
        if (cost < limit) {
            tune->winner = i;
            limit = cost;
        }
    }
    tune->known = tune->tried[tune->winner].cost > 0;
    tune->failures = 0;
    tune->trying = false;
    tune->rest = (uint32_t)regx_min(
        (uint64_t)tune->messages * (unfinished || !tune->known ? REST_UNFINISHED : REST), REST_MAX);
    if (tune->known) {
        tell_larger(tune);
    }
    memset(tune->tried, 0, sizeof(tune->tried));
}

/* No message is open, or the turn is over. Messages that come alone have a sample each, and those of
 * a burst one together, of the whole turn: a candidate that keeps up with the sender splits a burst
 * into parts, and what the program loses after the burst shows in the last part only. */
static void take_sample(regx_autotune_t *tune, bool over)
{
    regx_turn_t *turn = &tune->turn;

    if (is_burst(tune)) {
        if (!over) {
            return;
        }
        turn->samples = 0;
        turn->sampled = 0;
        turn->last = turn->began;
    }
    const int64_t now = regx_now_ns();

    if (turn->bytes > turn->sampled && turn->samples < REGX_AUTO_SAMPLES) {
        const float cost = (float)(now - turn->last) * 1000 / (float)(turn->bytes - turn->sampled);
        unsigned i = turn->samples++;

        for (; i > 0 && turn->sample[i - 1] > cost; i--) {
            turn->sample[i] = turn->sample[i - 1];
        }
        turn->sample[i] = cost;
    }
    turn->last = now;
    turn->sampled = turn->bytes;
}

/* The turn's messages come as the others of the trial. If they did not several times in a row, what
 * was measured before is forgotten: either the program does something else now, or its bursts come
 * alone by a candidate that keeps up with the sender. From then on both kinds are compared. */
static bool is_comparable(regx_autotune_t *tune)
{
    const uint8_t kind = tune->turn.bursts ? BURSTS : ALONE;

    if (tune->kind != 0 && (tune->kind & kind) == 0) {
        if (++tune->repeats <= REPEATS_MAX) {
            return false;
        }
        memset(tune->tried, 0, sizeof(tune->tried));
    }
    tune->kind |= kind;
    tune->repeats = 0;
    return true;
}

/* The turn is over: what it tells of its candidate. false: nothing, it is to be repeated. */
static bool judge(regx_autotune_t *tune)
{
    const regx_turn_t *turn = &tune->turn;
    regx_tried_t *tried = &tune->tried[turn->candidate];

    if (turn->failed) {
        tried->failed++;
        return true;
    }
    if (turn->own == 0 || turn->samples == 0 || !is_comparable(tune)) {
        return false;
    }
    const bool first = tried->turns == 0;
    const float before = tried->cost;
    const float low = turn->sample[(turn->samples - 1) / 2];
    const float cost = first ? low : (low + turn->sample[turn->samples / 2]) / 2;

    tried->warming = first ? turn->candidate == SLOTS : cost < tried->cost * WARMER;
    /* Two that came alone only tell what is far worse. */
    if (first || (tried->turns == 1 && tune->kind == ALONE) || cost < tried->cost) {
        tried->cost = tune->found[turn->candidate] = cost;
    }
    tried->turns = (uint8_t)(tried->turns + (first || cost > before * COLD));
    return true;
}

static bool has_turn(const regx_autotune_t *tune, unsigned candidate)
{
    const regx_tried_t *tried = &tune->tried[candidate];

    return tried->failed < FAILED_TURNS && tried->turns < ROUNDS &&
           (tried->turns == 0 || tried->warming ||
            !is_worse(tune, candidate, tried->turns < 2 ? FAR_WORSE : WORSE));
}

/* The smallest size: of messages that may go eagerly, too, few in a row come here while btl/eager.c
 * tries both. (Those of just 32 KiB are of the next one.) */
static bool is_eager(const regx_autotune_t *tune)
{
    return tune->larger == REGX_AUTO_SIZES - 1;
}

static void next_turn(regx_autotune_t *tune)
{
    const bool judged = !tune->turn.idle && judge(tune);
    const uint8_t own = tune->turn.candidate;

    if (judged && !tune->turn.failed && !tune->known && !is_worse(tune, own, 1)) {
        tune->winner = own; /* so far: bursts that are left out go by it, not by the prior */
    }
    const bool again = !judged || (tune->tried[own].warming && !tune->known && !is_eager(tune));
    const unsigned first = again ? own : own + 1;

    for (unsigned i = first; i < first + tune->candidates && tune->turns < TURNS_MAX; i++) {
        if (has_turn(tune, i % tune->candidates)) {
            begin_turn(tune, (uint8_t)(i % tune->candidates));
            return;
        }
    }
    end_trial(tune);
}

/* A turn ends where no message is open; or, where some always are, once those have closed. */
static bool is_over(const regx_autotune_t *tune)
{
    const regx_turn_t *turn = &tune->turn;
    const uint32_t run = tune->tried[turn->candidate].turns == 0 ? RUN_FIRST : RUN;

    if (tune->open > 0) {
        return turn->began > 0 && turn->closed >= STREAM && turn->closed >= tune->open_max;
    }
    return turn->began > 0 && turn->closed >= (is_burst(tune) ? SHORT : run);
}

/* A message comes, and no trial is going on. One begins as a turn ends. */
static void wait_for_trial(regx_autotune_t *tune)
{
    tune->rest -= tune->rest > 0;
    if (tune->rest == 0 && (tune->open == 0 || tune->turn.entered >= 2 * STREAM)) {
        begin_trial(tune);
    }
}

/* A message comes during a trial. */
static void go_on(regx_autotune_t *tune)
{
    const bool over = is_over(tune);

    if (tune->turn.began > 0 && (over || tune->open == 0)) {
        tune->turn.bursts |= tune->open_max >= BURST;
        take_sample(tune, over);
    }
    if (over) {
        next_turn(tune);
    }
}

regx_trial_t regx_auto_enter(regx_autotune_t tunes[REGX_AUTO_SIZES], uint64_t length)
{
    regx_autotune_t *tune = &tunes[number_of(length)];
    regx_turn_t *turn = &tune->turn;

    if (tune->trying) {
        const uint32_t program = regx_fractions_begin();

        go_on(tune);
        regx_fractions_end(program);
    } else {
        wait_for_trial(tune);
    }
    const bool trial = tune->trying && !turn->idle;
    if (tune->trying && turn->before == 0 && turn->began == 0) {
        turn->began = turn->last = regx_now_ns();
    }
    if (tune->open == 0) {
        tune->open_max = turn->entered = 0;
    }
    tune->open++;
    tune->open_max = (uint32_t)regx_max(tune->open, tune->open_max);
    tune->messages++;
    turn->entered++;
    return (regx_trial_t){.of = tune,
                          .candidate = trial ? turn->candidate : tune->winner,
                          .why = trial        ? REGX_WHY_trial
                                 : tune->told ? REGX_WHY_told
                                 : tune->known || tune->tried[tune->winner].cost > 0
                                     ? REGX_WHY_winner
                                     : REGX_WHY_prior,
                          .number = turn->number};
}

/* No trial is going on. A winner by which messages do not go is tried anew. */
static void watch_winner(regx_autotune_t *tune, const regx_trial_t *trial, bool went)
{
    if (!tune->known || trial->candidate != tune->winner) {
        return;
    }
    if (went) {
        tune->failures -= tune->failures > 0;
    } else {
        tune->failures += FAILURE;
    }
    if (tune->failures >= FAILURES_MAX) {
        tune->rest = 0;
    }
}

void regx_auto_leave(const regx_trial_t *trial, uint64_t length, bool went)
{
    regx_autotune_t *tune = trial->of;

    if (tune == NULL) {
        return;
    }
    regx_turn_t *turn = &tune->turn;

    tune->open--;
    if (!tune->trying) {
        watch_winner(tune, trial, went);
        return;
    }
    if (turn->before > 0) {
        if (--turn->before == 0 && tune->open > 0) {
            turn->began = turn->last = regx_now_ns();
        }
        return;
    }
    const bool own = trial->candidate == turn->candidate;

    turn->closed++;
    turn->bytes += length;
    turn->own += own ? length : 0;
    turn->failed |= own && !went && trial->number == turn->number;
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
    } else if (reuse->credit > 0) {
        reuse->credit--;
    } else {
        reuse->passed = (reuse->passed + 1) % SAMPLE;
        return reuse->passed == 0;
    }
    return true;
}

/* Over a device: the buffer is registered, or is to be. */
static bool is_worth_registering(regx_rndv_t *rndv, const regx_rndv_recv_t *recv)
{
    const regx_registry_t *registry = rndv->registry;

    if (recv->buffer.length > NEW_MAX || !recv->peer->conn->transport->registers ||
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
    const regx_auto_wire_t wire = conn->shares_pool ? REGX_AUTO_NODE : REGX_AUTO_APART;

    if (wire == REGX_AUTO_NODE &&
        (!conn->single_copy || recv->peer->no_puts || recv->peer->no_gets)) {
        recv->why = REGX_WHY_refused;
        return REGX_PATH_bounce;
    }
    if (wire == REGX_AUTO_APART && !is_worth_registering(rndv, recv)) {
        recv->why = REGX_WHY_new;
        return REGX_PATH_bounce;
    }
    regx_lock(&rndv->lock);
    recv->trial = regx_auto_enter(rndv->tuner.sizes[wire], recv->buffer.length);
    regx_unlock(&rndv->lock);
    recv->why = recv->trial.why;
    return wires[wire].path[recv->trial.candidate];
}

uint64_t regx_auto_speed(regx_rndv_t *rndv, regx_path_t path, uint64_t length)
{
    const unsigned size = number_of(length);
    const uint32_t program = regx_fractions_begin();
    float cost = 0;

    regx_lock(&rndv->lock);
    /* A transport has one kind of wire: of the other nothing was found. */
    for (unsigned i = 0; i < REGX_AUTO_WIRES * REGX_AUTO_CANDIDATES; i++) {
        const unsigned wire = i / REGX_AUTO_CANDIDATES, candidate = i % REGX_AUTO_CANDIDATES;

        if (wires[wire].path[candidate] == path) {
            cost += rndv->tuner.sizes[wire][size].found[candidate];
        }
    }
    regx_unlock(&rndv->lock);
    const uint64_t speed = cost > 0 ? (uint64_t)(1e9F / cost) : 0;
    regx_fractions_end(program);
    return speed;
}

const regx_strategy_t regx_strategy_auto = {
    .name = "auto", .choose = choose, .grants_known_whole = true, .exposes = true};
