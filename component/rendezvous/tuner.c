/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/tuner.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/util.h"

/* ---- the numbers ----
 * In brackets stands where a value comes from: a machine on which it was seen, or [replay]: it was chosen by
 * test_regret.c and test_eager.c, which replay costs, most of them recorded on two cores of a Xeon. */

/* How long a trial is, and how messages are told apart that come alone or in bursts. */
#define BATCHES_MAX 18u   /* of a trial, with those that are repeated [replay] */
#define FAILED_BATCHES 2u /* after which a candidate has no other [replay] */
#define REPEATS_MAX 2u    /* batches in a row whose messages come as none before [replay] */
#define RUN_FIRST 2u      /* messages that come alone, in a candidate's first batch [replay] */
#define BURST 4u          /* messages open at once: they do not come alone [replay] */
#define BURST_LEAST 16u   /* messages of a batch of bursts, at least [replay] */
#define ALONE 1u          /* kinds of batches, as bits */
#define BURSTS 2u

/* A candidate that costs so many times as much as the best */
#define WORSE 1.1F     /* has no third batch; [replay] */
#define FAR_WORSE 1.2F /* has no second: in bursts each is a 20th of a benchmark; [replay] */
/* is not tried by messages twice as long, and that limit grows so many times for each size further. The ratio of
 * two candidates mostly changes slowly with the size [Zen 3, near, together to staged from 32 KiB on: 2.8,
 * 2.0, 1.7, 1.5, 1.4]. It leaps where staged no longer has a whole message in a staging buffer [Zen 4, near,
 * the other way round: 1.6 at 128 KiB, 0.95 at 256 KiB]. */
#define TOLD_WORSE 2.0F
#define WORSE_BY 1.25F
#define NEARBY 6u          /* larger sizes, powers of two, that are told so [replay] */
#define SAVES (31.0F / 32) /* times the cost of the winner is enough to win [replay] */

/* What part of the candidate's cost so far a batch has to cost, or less, to show that it is still
 * becoming faster; and that it was cold, so that the batches before do not count. [A virtual machine of Zen 5:
 * 64 messages of 32 KiB by staged took 1.4, 0.7, 0.3 and 0.12 ms.] */
#define WARMER (7.0F / 8)
#define COLD 0.5F

/* When the next trial comes. */
#define REST 128u           /* messages of rest for each of a trial [replay] */
#define REPEATED_MAX 3u     /* times that it is doubled while the outcome stays [replay] */
#define REST_UNKNOWN 16u    /* the same if the winner was not measured [replay] */
#define REST_MAX (1u << 16) /* messages of rest, at most [replay] */
/* Of the winner: is added for a message that could not go by it; each that could takes 1 off. [replay] */
#define FAILURE 4u
#define FAILURES_MAX 16u

/* The sender */
#define OTHERS 512u   /* messages of other sizes during a batch: the trial is given up [replay] */
#define PUTS_OFF 2.5F /* times as long as eagerly: no first trial of other sizes soon [replay] */

/* The candidate by which the first trial opens: staged, or bounce; of eager or not, the rendezvous. */
#define OPENER 1u
/* What differs between the receiver on a node, the receiver over a device, and the sender [replay, but for what is
 * said]. */
static const struct {
    uint8_t candidates;
    uint8_t opening;     /* messages by OPENER, untimed, before the first trial; 0: a batch by the
                            prior instead. On a node these three and one untimed message of the
                            first batch touch each of the sender's first four staging buffers */
    uint8_t first;       /* candidate of the batch after that */
    uint8_t warm[2];     /* messages that come alone and are not counted: of a candidate's first
                            batch, and of others */
    float cold;          /* times the candidate's cost so far, which then does not count */
    bool prior_thrice;   /* unless bursts are long the prior has three batches. While a lap of the
                            ring brings in new pages, eager seems up to ten times as slow as it is,
                            and a batch of it costs little */
    uint32_t patience;   /* messages before the first trial: collective benchmarks send 110. Of the
                            512 nothing is recorded */
    uint32_t rest_first; /* and at most, before the second */
} wires[] = {[REGX_AUTO_NODE] = {3, 3, OPENER, {1, 2}, COLD, false, 0, REST_MAX},
             [REGX_AUTO_DEVICE] = {2, 0, OPENER, {1, 2}, COLD, false, 512, REST_MAX},
             [REGX_AUTO_EAGER] = {2, 16, 0, {8, 8}, WARMER, true, 112, REGX_AUTO_SOON}};

void regx_tune_init(regx_autotune_t *tunes, unsigned sizes, regx_auto_wire_t wire)
{
    for (unsigned size = 0; size < sizes; size++) {
        tunes[size] = (regx_autotune_t){.wire = (uint8_t)wire,
                                        .larger = (uint8_t)(sizes - 1 - size),
                                        .rest = wires[wire].patience};
    }
}

/* ---- what is known of the candidates ---- */

/* A candidate without a cost ranks behind all that have one, and one that has failed behind these. */
static float cost_of(const regx_tried_t *tried)
{
    if (tried->failed >= FAILED_BATCHES) {
        return INFINITY;
    }
    return tried->cost > 0 ? tried->cost : FLT_MAX;
}

/* The fastest so far. Another than the winner has to cost at most so many times as much as it. */
static uint8_t best_of(const regx_autotune_t *tune, float times)
{
    uint8_t best = tune->winner;
    float limit = cost_of(&tune->tried[best]) * times;

    for (uint8_t i = 0; i < wires[tune->wire].candidates; i++) {
        if (cost_of(&tune->tried[i]) < limit) {
            best = i;
            limit = cost_of(&tune->tried[i]);
        }
    }
    return best;
}

static bool is_worse(const regx_autotune_t *tune, unsigned candidate, float times)
{
    return tune->tried[candidate].cost > cost_of(&tune->tried[best_of(tune, 1)]) * times;
}

static bool has_batch(const regx_autotune_t *tune, unsigned candidate)
{
    const regx_tried_t *tried = &tune->tried[candidate];

    return tried->failed < FAILED_BATCHES && tried->batches < REGX_AUTO_ROUNDS &&
           (tried->batches == 0 || tried->warming ||
            (wires[tune->wire].prior_thrice && candidate == 0 && tune->open_max < BURST_LEAST) ||
            !is_worse(tune, candidate, tried->batches < 2 ? FAR_WORSE : WORSE));
}

uint8_t regx_tune_way(const regx_autotune_t *tune)
{
    const bool idle = tune->batch.use == REGX_BATCH_IDLE;

    if (!regx_tune_tries(tune) || (idle && regx_tune_knows(tune))) {
        return tune->winner;
    }
    /* Times 1 is exact: it does not trap where the program has the processor trap inexact results. */
    return idle ? best_of(tune, 1) : tune->batch.candidate;
}

/* ---- a trial ---- */

/* Whether messages of the batch, or of the trial, do not come alone. */
static bool is_burst(const regx_autotune_t *tune)
{
    return tune->open_max >= BURST || tune->batch.bursts || (tune->kind & BURSTS) != 0;
}

static void begin_batch(regx_autotune_t *tune, uint8_t candidate)
{
    const uint32_t number = tune->batch.number + 1;
    /* 0 to 3, evenly, without a period. The sequence begins where no program of test_regret.c falls
     * into step with it. */
    const uint32_t vary = (number + 7) * 0x9e3779b9U >> 30;
    const bool alone = tune->open_max < BURST;
    const bool burst = tune->open == 0 && !alone;
    const uint32_t warm =
        tune->tried[candidate].batches == 0 ? wires[tune->wire].warm[0] : wires[tune->wire].warm[1];

    const bool idle = burst && tune->batch.use != REGX_BATCH_IDLE && vary % 2 == 1;
    uint32_t before = 0;

    if (alone) {
        /* How many messages come together, where a few are open at a time. */
        const uint32_t round = tune->open_max > 1 ? tune->open_max : tune->open;

        before = (uint32_t)regx_max(2 * round, warm);
    } else if (!burst) {
        /* Where some are always open, the sender has sent these already by the way before, and as many
         * more before it hears of the new one. */
        before = (uint32_t)regx_max(2 * tune->open, REGX_AUTO_STREAM);
    }
    tune->batch = (regx_batch_t){.candidate = candidate,
                                 .use = idle ? REGX_BATCH_IDLE : REGX_BATCH_TIMED,
                                 .amid = tune->open > 0 && !alone,
                                 .number = number,
                                 .before = before};
    tune->open_max = tune->open;
    tune->batches++;
}

/* What is measured first would be cold if nothing came before. */
static void begin_trial(regx_autotune_t *tune)
{
    const bool first = tune->batch.number == 0;

    tune->state = regx_tune_knows(tune) ? REGX_TUNE_NEXT_TRIAL : REGX_TUNE_FIRST_TRIAL;
    tune->kind = 0;
    tune->repeats = 0;
    tune->batches = 0;
    tune->messages = 0;
    begin_batch(tune, first ? OPENER : tune->winner);
    if (first) {
        tune->batch.before = has_batch(tune, OPENER) ? wires[tune->wire].opening : 0;
        tune->batch.use = tune->batch.before > 0 ? REGX_BATCH_OPENING : REGX_BATCH_IDLE;
        tune->batch.amid = false;
    }
}

/* To try what is far worse for a size that is little smaller costs a short program more than it can gain
 * (TOLD_WORSE). For a candidate that was not tried here, what a smaller size has told stays. */
static void tell_larger(regx_autotune_t *tune)
{
    float times = TOLD_WORSE;

    for (unsigned i = 1; i <= tune->larger && !regx_tune_knows(&tune[i]); i++, times *= WORSE_BY) {
        if (regx_tune_tries(&tune[i]) && tune[i].batch.number > 1) {
            continue;
        }
        tune[i].winner = tune->winner;
        for (unsigned other = 0; other < wires[tune->wire].candidates; other++) {
            if (tune->tried[other].cost > 0) {
                tune[i].tried[other].failed =
                    i <= NEARBY && is_worse(tune, other, times) ? FAILED_BATCHES : 0;
            }
        }
    }
}

static void end_trial(regx_autotune_t *tune)
{
    const uint8_t before = tune->winner;
    const bool known = regx_tune_knows(tune);
    const uint32_t most = known ? REST_MAX : wires[tune->wire].rest_first;

    tune->winner = best_of(tune, SAVES);
    tune->repeated =
        known && before == tune->winner ? (uint8_t)regx_min(tune->repeated + 1, REPEATED_MAX) : 0;
    tune->state = tune->tried[tune->winner].cost > 0 ? REGX_TUNE_FOUND : REGX_TUNE_UNTRIED;
    tune->failures = 0;
    tune->rest = (uint32_t)regx_min(
        (uint64_t)tune->messages * (!regx_tune_knows(tune) ? REST_UNKNOWN : REST << tune->repeated),
        most);
    if (regx_tune_knows(tune)) {
        tell_larger(tune);
    }
    memset(tune->tried, 0, sizeof(tune->tried));
}

/* The sender's trial ends without an outcome. */
static void give_up(regx_autotune_t *tune)
{
    tune->state = regx_tune_knows(tune) ? REGX_TUNE_FOUND : REGX_TUNE_UNTRIED;
    tune->rest = REGX_AUTO_SOON;
    memset(tune->tried, 0, sizeof(tune->tried));
}

/* Into so many, the least first. */
static void insert(float *costs, unsigned count, float cost)
{
    for (; count > 0 && costs[count - 1] > cost; count--) {
        costs[count] = costs[count - 1];
    }
    costs[count] = cost;
}

/* The batch is over: what it tells of its candidate, if anything. */
static void judge(regx_autotune_t *tune)
{
    const regx_batch_t *batch = &tune->batch;
    const uint8_t kind = batch->bursts ? BURSTS : ALONE;
    regx_tried_t *tried = &tune->tried[batch->candidate];

    if (batch->use != REGX_BATCH_TIMED) {
        return;
    }
    if (batch->failed) {
        tried->failed++;
        return;
    }
    if (batch->samples == 0) {
        return;
    }
    /* Its messages have to come as the others of the trial. If they did not several times in a row, what was
     * measured before is forgotten: either the program does something else now, or its bursts come alone by
     * a candidate that is so fast that no two messages are open together. From then on both kinds are
     * compared. */
    if (tune->kind != 0 && (tune->kind & kind) == 0) {
        if (++tune->repeats <= REPEATS_MAX) {
            return;
        }
        memset(tune->tried, 0, sizeof(tune->tried));
    }
    tune->kind |= kind;
    tune->repeats = 0;

    const bool first = tried->batches == 0;
    const float low = batch->sample[(batch->samples - 1) / 2];
    const float cost = first ? low : (low + batch->sample[batch->samples / 2]) / 2;
    /* One that is so much faster shows that the candidate was cold before: it is not one of its three. */
    const bool was_cold = !first && cost <= tried->cost * wires[tune->wire].cold;

    tried->warming = !first && cost < tried->cost * WARMER;
    /* The batches before no longer count if the candidate was cold. Nor does its first one if messages come
     * alone, since two of them only tell what is far worse; or if staged or bounce has become faster, since
     * its first batch maps the pages of its buffers. */
    if (first || was_cold ||
        (tried->batches == 1 &&
         (tune->kind == ALONE || (batch->candidate == OPENER && tried->warming)))) {
        tried->kept = 0;
    }
    insert(tried->batch, tried->kept++, cost);
    tried->cost = tried->batch[(tried->kept - 1) / 2];
    tune->found[batch->candidate] = tried->cost;
    tried->batches = (uint8_t)(tried->batches + !was_cold);
}

/* A batch is over. The next one is of a candidate with the fewest batches: that of the last batch, or else the
 * one that follows it. */
static void next_batch(regx_autotune_t *tune)
{
    const unsigned candidates = wires[tune->wire].candidates;
    const unsigned own =
        tune->batch.use == REGX_BATCH_OPENING ? wires[tune->wire].first : tune->batch.candidate;
    unsigned fewest = REGX_AUTO_ROUNDS, next = own;

    judge(tune);
    for (unsigned i = 0; i < candidates; i++) {
        const unsigned candidate = (own + i) % candidates;

        if (has_batch(tune, candidate) && tune->tried[candidate].batches < fewest) {
            next = candidate;
            fewest = tune->tried[next].batches;
        }
    }
    if (has_batch(tune, next) && tune->batches < BATCHES_MAX) {
        begin_batch(tune, (uint8_t)next);
    } else {
        end_trial(tune);
    }
}

/* A batch ends where no message is open; or, where some always are, once those have closed. */
static bool is_over(const regx_autotune_t *tune)
{
    const regx_batch_t *batch = &tune->batch;
    const uint32_t run = tune->tried[batch->candidate].batches == 0 ? RUN_FIRST : REGX_AUTO_SAMPLES;

    if (batch->use == REGX_BATCH_OPENING || batch->began == 0) {
        return batch->use == REGX_BATCH_OPENING && batch->before == 0;
    }
    if (tune->open > 0) {
        return batch->closed >= REGX_AUTO_STREAM && batch->closed >= tune->open_max;
    }
    return batch->closed >= (is_burst(tune) ? BURST_LEAST : run);
}

/* A message comes during a trial. */
static void go_on(regx_autotune_t *tune)
{
    regx_batch_t *batch = &tune->batch;
    const bool over = is_over(tune);

    if (batch->began > 0 && (over || tune->open == 0)) {
        batch->bursts |= tune->open_max >= BURST;
        /* Messages that come alone have a sample each, and those of a burst one together, of the whole
         * batch: a candidate that keeps up with the sender splits a burst into parts, and what the program
         * loses after the burst shows in the last part only. */
        const bool burst = is_burst(tune);
        if (burst && over) {
            batch->samples = 0;
            batch->sampled = 0;
            batch->last = batch->began;
        }
        if (!burst || over) {
            const int64_t now = regx_now_ns();
            const uint64_t bytes = batch->bytes - batch->sampled;

            if (bytes > 0 && batch->samples < REGX_AUTO_SAMPLES) {
                insert(batch->sample, batch->samples++,
                       (float)(now - batch->last) * 1000 / (float)bytes);
            }
            batch->last = now;
            batch->sampled = batch->bytes;
        }
    }
    if (over) {
        next_batch(tune);
    }
}

regx_trial_t regx_tune_enter(regx_autotune_t *tune)
{
    regx_batch_t *batch = &tune->batch;

    if (regx_tune_tries(tune)) {
        const uint32_t program = regx_fpe_mask();

        go_on(tune);
        regx_fpe_restore(program);
    } else {
        /* A trial begins only where a batch could end, not amid a burst. A first one may, since its opening
         * is not timed. */
        tune->rest -= tune->rest > 0;
        if (tune->rest == 0 && (tune->open == 0 || batch->entered >= 2 * REGX_AUTO_STREAM ||
                                (batch->number == 0 && wires[tune->wire].opening > 0))) {
            begin_trial(tune);
        }
    }
    if (tune->open == 0) { /* a burst begins */
        tune->open_max = 0;
        batch->entered = 0;
        batch->before = batch->amid ? 0 : batch->before;
    }
    if (regx_tune_tries(tune) && batch->before == 0 && batch->began == 0) {
        batch->began = regx_now_ns();
        batch->last = batch->began;
    }
    tune->open++;
    tune->open_max = (uint32_t)regx_max(tune->open, tune->open_max);
    tune->messages++;
    batch->entered++;

    const uint8_t way = regx_tune_way(tune);
    regx_why_t why = REGX_WHY_prior;
    if (regx_tune_tries(tune) && batch->use != REGX_BATCH_IDLE) {
        why = REGX_WHY_trial;
    } else if (regx_tune_knows(tune) || tune->tried[way].cost > 0) {
        why = REGX_WHY_winner;
    }
    return (regx_trial_t){.of = tune, .candidate = way, .why = why, .number = batch->number};
}

void regx_tune_leave(const regx_trial_t *trial, uint64_t length, bool went)
{
    regx_autotune_t *tune = trial->of;

    if (tune == NULL) {
        return;
    }
    regx_batch_t *batch = &tune->batch;

    tune->open--;
    if (!regx_tune_tries(tune)) {
        /* A winner by which messages do not go is tried anew. */
        if (regx_tune_knows(tune) && trial->candidate == tune->winner) {
            if (!went) {
                tune->failures += FAILURE;
            } else if (tune->failures > 0) {
                tune->failures--;
            }
            tune->rest = tune->failures >= FAILURES_MAX ? 0 : tune->rest;
        }
        return;
    }
    if (batch->before > 0) {
        if (--batch->before == 0 && tune->open > 0) {
            batch->began = regx_now_ns();
            batch->last = batch->began;
        }
        return;
    }
    batch->closed++;
    batch->bytes += length;
    batch->failed |=
        !went && trial->number == batch->number && trial->candidate == batch->candidate;
}

/* ---- the sender: eagerly, or by rendezvous ---- */

void regx_eager_init(regx_eager_t *eager, size_t *limit, bool tunes)
{
    *eager = (regx_eager_t){.tunes = tunes, .limit = limit, .configured = *limit};
    for (unsigned i = 0; i < REGX_EAGER_SIZES; i++) {
        /* tell_others passes on what is found, not tell_larger. */
        regx_tune_init(&eager->of[i], 1, REGX_AUTO_EAGER);
    }
}

/* From the longest size on. Messages of a size that are to go eagerly do so even if shorter ones are to go by
 * rendezvous: those of the size on trial, which has its way against longer ones, too; or else those of
 * which that is known, if some came lately. */
static void set_limit(const regx_eager_t *eager)
{
    size_t limit = eager->configured;

    for (unsigned i = REGX_EAGER_SIZES; i-- > 0;) {
        const regx_autotune_t *tune = &eager->of[i];
        const bool overruled = eager->trial != NULL && eager->trial < tune;

        if (regx_tune_way(tune) == REGX_EAGER_RENDEZVOUS) {
            limit = ((size_t)REGX_EAGER_MIN << i) + REGX_EAGER_HEADER;
        } else if (eager->trial == tune ||
                   (!overruled && regx_tune_knows(tune) && eager->unseen[i] < REGX_AUTO_STREAM)) {
            break;
        }
    }
    *eager->limit = regx_min(limit, eager->configured);
}

/* What a trial tells of sizes that were not tried. What a rendezvous costs before its first byte is half as
 * much a byte for twice as many (two cores of a Xeon, both ways at once, from 8 KiB on: 2.7, 1.5 and 0.5
 * times as long as eagerly). So if it is faster, longer messages begin with it. If it is far worse their
 * first trials come later, since a benchmark of another size would lose more by one than it can gain; it
 * has to be twice as far for each size further. */
static void tell_others(regx_eager_t *eager, const regx_autotune_t *tune)
{
    const uint32_t program = regx_fpe_mask();
    float limit = PUTS_OFF * tune->found[REGX_EAGER_SEND];

    for (regx_autotune_t *other = eager->of; other < eager->of + REGX_EAGER_SIZES; other++) {
        limit *= other > tune ? 2 : 1;
        if (other->batch.number > 0 || other->winner == REGX_EAGER_RENDEZVOUS) {
            continue; /* it was tried, or told before */
        }
        if (other > tune && tune->winner == REGX_EAGER_RENDEZVOUS) {
            other->winner = REGX_EAGER_RENDEZVOUS;
            other->rest = REGX_AUTO_SOON;
        } else if (tune->found[REGX_EAGER_RENDEZVOUS] > limit) {
            other->rest = REGX_AUTO_SOON;
        }
    }
    regx_fpe_restore(program);
}

/* A message of a size that may be tried. The tuner takes it as open until progress is called. */
static void weigh(regx_eager_t *eager, regx_autotune_t *tune, size_t length, regx_eager_way_t way)
{
    const bool tried = regx_tune_tries(tune);

    if (tried && regx_tune_way(tune) != way) {
        /* It had to go another way than the messages of the batch that is being timed. */
        if (++eager->strays == REGX_AUTO_STREAM) {
            if (regx_tune_way(tune) == REGX_EAGER_RENDEZVOUS) {
                tune->winner = REGX_EAGER_SEND;
            }
            give_up(tune);
        }
    } else {
        const regx_trial_t trial = regx_tune_enter(tune);

        regx_tune_leave(&trial, length, true);
        tune->open++;
        if (tried && !regx_tune_tries(tune)) {
            tell_others(eager, tune);
        }
    }
    eager->trial = regx_tune_tries(tune) ? tune : NULL;
    if (eager->batch != tune->batch.number) {
        eager->batch = tune->batch.number;
        eager->strays = 0;
        eager->others = 0;
    }
}

void regx_eager_note(regx_eager_t *eager, size_t length, regx_eager_way_t way, bool node,
                     unsigned progress)
{
    unsigned size = 0;

    if (!eager->tunes || length <= REGX_EAGER_MIN || length > REGX_EAGER_MIN << REGX_EAGER_SIZES) {
        return;
    }
    if (!node) {
        eager->tunes = false;
        *eager->limit = eager->configured;
        return;
    }
    for (unsigned i = 0; i < REGX_EAGER_SIZES; i++) {
        size += length > (size_t)REGX_EAGER_MIN << (i + 1);
        eager->unseen[i]++;
    }
    regx_autotune_t *tune = &eager->of[size];

    eager->unseen[size] = 0;
    if (progress != eager->progress[size] || tune->open >= REGX_AUTO_STREAM) {
        tune->open = 0;
    }
    eager->progress[size] = progress;
    if (eager->trial == NULL || eager->trial == tune) {
        weigh(eager, tune, length, way);
    } else {
        tune->rest -= tune->rest > 0;
        if (++eager->others == OTHERS) {
            give_up(eager->trial);
            eager->trial = NULL;
        }
    }
    set_limit(eager);
}
