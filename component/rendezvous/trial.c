/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/trial.h"

#include <string.h>

#define LOST 64u            /* a trial may lose one message of so many, */
#define REPEATED 3u         /* half as much each time that it ends the same, so often */
#define WAIT_MAX (1u << 20) /* messages without a trial: what it lost may have been chance */
#define FAR_WORSE 2.0F      /* takes so many times what the base does: one burst shows it */
#define HOPELESS 4.0F       /* so many times what the winner does: likewise at sizes nearby, */
#define NEARBY 2u           /* of which the larger is up to so many times twice as long */
#define SHORT_RUN 2u        /* messages */
#define ENOUGH 1.5F         /* what they take, compared with the best: a run is broken off */
#define SLOWEST(count) (((count) + 2) / 4) /* of a run are left out */
#define NONE UINT8_MAX                     /* no candidate */
#define WORTH_MAPPING (16u << 20)          /* bytes of a burst, in a first trial */
#define FAILURES_MAX 16u                   /* segments in a row without a result end a trial */

static bool alive(const regx_tune_t *tune, unsigned candidate)
{
    return (tune->alive & 1u << candidate) != 0;
}

static unsigned rounds(const regx_tune_t *tune, bool burst)
{
    return !burst || tune->trials == 0 ? 3 : 5;
}

/* Messages that come alone: the first round of the first trial. */
static bool has_short_runs(const regx_tune_t *tune)
{
    return tune->trials == 0 && tune->round == 0;
}

/* Messages of a candidate in a row: these are not counted. Each round has another number, so that
 * runs do not keep step with a program of which each third, say, is slow. */
static unsigned run_start(const regx_tune_t *tune)
{
    return tune->trials == 0 ? tune->round : tune->round + 2u;
}

/* And these are. */
static unsigned run_length(const regx_tune_t *tune)
{
    return has_short_runs(tune) ? SHORT_RUN : REGX_AUTOTUNE_RUN;
}

/* Whether a trial has compared all candidates. */
static bool is_measured(const regx_tune_t *tune)
{
    return tune->trials > 0 && tune->left_out == 0;
}

/* Bits of the candidates that were found hopeless at the nearest size that is measured. */
static unsigned hopeless_nearby(const regx_autotune_t *size, bool burst)
{
    for (unsigned apart = 1; apart <= NEARBY; apart++) {
        if (size->place >= apart && is_measured(&(size - apart)->tune[burst])) {
            return (size - apart)->tune[burst].hopeless;
        }
        if (size->place + apart < REGX_AUTOTUNE_SIZES &&
            is_measured(&(size + apart)->tune[burst])) {
            return (size + apart)->tune[burst].hopeless;
        }
    }
    return 0;
}

/* A size's first trial leaves out what is hopeless nearby, but never the prior. The second shows
 * whether that was right. */
void regx_trial_begin(regx_autotune_t *size, bool burst)
{
    regx_tune_t *tune = &size->tune[burst];

    tune->trying = true;
    tune->base = tune->winner;
    tune->left_out = 0;
    if (tune->trials == 0) {
        tune->left_out = (uint8_t)(hopeless_nearby(size, burst) & ~(1u << tune->winner));
    }
    tune->alive = (uint8_t)(((1u << tune->candidates) - 1) & ~(unsigned)tune->left_out);
    tune->round = tune->turn = tune->failures = tune->passed = 0;
    tune->promising = NONE;
    tune->short_cost = 0;
    tune->messages = 0;
    memset(tune->of, 0, sizeof(tune->of));
}

/* Whose turn it is. The first round begins with the winner, each other with the next one. */
unsigned regx_trial_whose(const regx_tune_t *tune)
{
    return (tune->winner + tune->turn + tune->round * (tune->candidates - 1u)) % tune->candidates;
}

static void end_trial(regx_tune_t *tune, bool known)
{
    const unsigned before = tune->winner;
    const unsigned sure =
        tune->trials + (tune->of[before].messages >= REGX_AUTOTUNE_SEGMENT ? 1u : 0u);
    const float save = 1.0F / (float)(16u << (sure < 2 ? sure : 2)); /* to win */
    const float bytes = (float)(tune->of[0].bytes + tune->of[1].bytes + tune->of[2].bytes);
    float lost = 0;

    tune->hopeless = 0;
    if (!alive(tune, before) && tune->alive != 0) { /* also if little is known */
        tune->winner = tune->base;
    }
    if (known) {
        float limit = alive(tune, before) ? tune->of[before].cost * (1 - save) : 0;

        for (unsigned i = 0; i < tune->candidates; i++) {
            if (alive(tune, i) && i != before && tune->of[i].samples > 0 &&
                (limit == 0 || tune->of[i].cost < limit)) {
                tune->winner = (uint8_t)i;
                limit = tune->of[i].cost;
            }
        }
        tune->repeated = before != tune->winner           ? 0
                         : tune->repeated + 1u < REPEATED ? (uint8_t)(tune->repeated + 1)
                                                          : REPEATED;
        tune->trials = tune->trials < UINT8_MAX ? (uint8_t)(tune->trials + 1) : UINT8_MAX;
        for (unsigned i = 0; i < tune->candidates && tune->of[tune->winner].cost > 0; i++) {
            float more = tune->of[i].cost / tune->of[tune->winner].cost - 1;

            if (more > HOPELESS - 1) {
                tune->hopeless |= (uint8_t)(1u << i);
            }
            more = more < 1 || tune->of[i].told > 1 ? more : 1; /* once may have been chance */
            lost += more > 0 ? more * (float)tune->of[i].bytes / bytes : 0;
        }
    }
    /* Bookkeeping and caches that another candidate filled are not free either. */
    lost = lost > 1.0F / 16 ? lost : 1.0F / 16;
    lost *= (float)tune->messages * (float)(LOST << tune->repeated);
    tune->wait = lost < WAIT_MAX ? (uint64_t)lost + 1 : WAIT_MAX;
    tune->waits = tune->wait;
    tune->expected = tune->of[tune->winner].cost;
    tune->slower = tune->vain = 0;
    tune->trying = false;
}

/* What short runs took is no measure of what follows them, unless that, too, is of two messages. */
static void forget_short_runs(regx_tune_t *tune)
{
    tune->short_cost = tune->of[tune->base].cost;
    for (unsigned i = 0; i < tune->candidates; i++) {
        if (alive(tune, i)) {
            tune->of[i].samples = 0;
            tune->of[i].messages = 0;
            tune->of[i].cost = 0;
        }
    }
}

/* The next one's turn, or the end. */
static void advance(regx_tune_t *tune, bool burst)
{
    if ((tune->alive & (tune->alive - 1)) == 0) { /* only one is left */
        if (tune->of[tune->base].cost == 0) {
            tune->of[tune->base].cost = tune->short_cost;
        }
        end_trial(tune, tune->alive != 0);
        return;
    }
    const unsigned now = regx_trial_whose(tune);
    const bool short_runs = !burst && has_short_runs(tune);

    if (burst && alive(tune, now) && tune->of[now].samples == 0 && now == tune->base) {
        return; /* the probe was good: now all of a burst */
    }
    if (alive(tune, now) && burst && tune->trials == 0 &&
        tune->messages < REGX_AUTOTUNE_PATIENCE * 3 / 4) {
        return; /* the prior goes on */
    }
    tune->passed = 0;
    do {
        if (++tune->turn == tune->candidates) {
            tune->turn = 0;
            tune->round++;
        }
    } while (!alive(tune, regx_trial_whose(tune)));
    if (tune->round >= rounds(tune, burst)) {
        end_trial(tune, true);
    } else if (short_runs && tune->round > 0) {
        forget_short_runs(tune);
    }
}

/* How much worse a candidate may be than the base, by the messages that it had. A burst's probe
 * shows it rather too good than too bad. */
static float tolerance(uint32_t messages, bool burst)
{
    return messages >= (burst ? 16 : REGX_AUTOTUNE_RUN) ? 1.125F : 1.25F;
}

/* The base is the best that is known of those that are alive. */
static void find_base(regx_tune_t *tune)
{
    for (unsigned i = 0; i < tune->candidates; i++) {
        if (alive(tune, i) && tune->of[i].cost > 0 &&
            (tune->of[tune->base].cost == 0 || tune->of[i].cost < tune->of[tune->base].cost)) {
            tune->base = (uint8_t)i;
        }
    }
}

/* These, by bits, cannot be had now: no measure for the others. */
static void give_up(regx_tune_t *tune, unsigned gone)
{
    tune->alive &= (uint8_t)~gone;
    if (!alive(tune, tune->base) && tune->alive != 0) {
        tune->base = (uint8_t)__builtin_ctz(tune->alive);
        find_base(tune);
    }
}

/* What is clearly worse has no further turn. `cost` is what the last segment or run told of its
 * candidate. In bursts that must be seen twice unless it is far worse, since much is decided by
 * each. */
static void drop(regx_tune_t *tune, unsigned judged, float cost, bool burst)
{
    const float best = tune->of[tune->base].cost;
    const bool short_runs = !burst && has_short_runs(tune);

    for (unsigned i = 0; i < tune->candidates; i++) {
        const float seen = i == judged ? cost : tune->of[i].cost;
        const unsigned enough = burst && cost <= best * FAR_WORSE ? 2 : 1;

        if (tune->of[tune->base].samples == 0 || (burst && i != judged)) {
            continue;
        }
        if (seen <= best * (short_runs ? FAR_WORSE : tolerance(tune->of[i].messages, burst))) {
            tune->of[i].suspect = 0;
        } else if (i == judged || tune->of[i].suspect == 0) {
            tune->of[i].suspect++;
        }
        if (tune->of[i].suspect >= enough) {
            tune->alive &= (uint8_t) ~(1u << i);
        }
    }
}

/* Enters a figure into others in ascending order. */
static void insert(float *sorted, unsigned count, float figure)
{
    for (; count > 0 && sorted[count - 1] > figure; count--) {
        sorted[count] = sorted[count - 1];
    }
    sorted[count] = figure;
}

static void add_sample(regx_tune_t *tune, unsigned candidate, float cost, uint32_t messages)
{
    float *sample = tune->of[candidate].sample;
    unsigned at = tune->of[candidate].samples;

    if (at == REGX_AUTOTUNE_SAMPLES) {
        at--; /* instead of the slowest */
    } else {
        tune->of[candidate].samples++;
    }
    insert(sample, at, cost);
    tune->of[candidate].messages += messages;
    tune->of[candidate].cost = sample[(tune->of[candidate].samples - 1u) / 4];
}

/* Without the slowest third, or half of a short run. */
static float mean_of_run(const regx_tune_t *tune, unsigned count)
{
    const unsigned kept = count - SLOWEST(count);
    float sum = 0;

    for (unsigned i = 0; i < kept; i++) {
        sum += tune->run[i];
    }
    return sum / (float)kept;
}

/* Whether a run that has only begun is so much slower than the best that it is enough. Of two or
 * three messages one may be slow: more would not show the difference, either. */
static bool is_enough(const regx_tune_t *tune, unsigned count, float mean)
{
    const bool measured = tune->of[tune->base].samples > 0;
    const float best = measured ? tune->of[tune->base].cost : tune->short_cost;

    return (count == SHORT_RUN || (count == SHORT_RUN + 1 && measured)) && best > 0 &&
           mean > best * ENOUGH;
}

/* Takes in a message that came alone. Returns whether its candidate's turn is over. */
static bool judge_alone(regx_tune_t *tune, unsigned candidate, float cost)
{
    const unsigned start = run_start(tune), length = run_length(tune);

    tune->passed++;
    if (tune->passed <= start) {
        return false;
    }
    const unsigned count = tune->passed - start;

    insert(tune->run, count - 1, cost);
    const float mean = mean_of_run(tune, count);

    if (candidate != tune->base && !has_short_runs(tune) && is_enough(tune, count, mean)) {
        tune->alive &= (uint8_t) ~(1u << candidate);
    } else if (count < length) {
        return false;
    }
    add_sample(tune, candidate, mean, count);
    tune->of[candidate].told++;
    find_base(tune);
    drop(tune, candidate, tune->of[candidate].cost, false);
    return true;
}

/* Whether the probe's copies were so quick that a burst of its own may be quicker than the base's,
 * and that is worth while to find out: slots are mapped for it. */
static bool is_promising(const regx_tune_t *tune, const regx_autotune_t *segment)
{
    return segment->candidate != segment->rest && tune->of[segment->candidate].samples == 0 &&
           segment->copying > 0 && 2 * segment->copying < tune->of[segment->rest].cost &&
           (tune->trials > 0 || segment->bytes >= WORTH_MAPPING);
}

/* Takes in a burst. Of a share of its bytes only, if others went by the base: that is used only
 * as long as there is nothing better, since the two may have gone on at the same time. Instead of
 * it, what two copies take, if that is promising; the burst that maps slots for it is left out. */
static void judge_burst(regx_tune_t *tune, const regx_autotune_t *segment, float cost)
{
    const unsigned candidate = segment->candidate;
    const float share = (float)segment->own / (float)segment->bytes;
    const float rest = tune->of[segment->rest].cost;

    if (segment->own == segment->bytes && candidate == tune->promising) {
        tune->promising = NONE;
        tune->promised = true;
        return;
    }
    if (segment->own == segment->bytes) {
        add_sample(tune, candidate, cost, segment->closed);
        cost = tune->of[candidate].cost;
    } else {
        cost = rest + (cost - rest) / share;
        if (cost > rest && is_promising(tune, segment)) {
            cost = 2 * segment->copying;
            tune->promising = tune->promised ? NONE : (uint8_t)candidate;
        }
        cost = cost > rest / 2 ? cost : rest / 2;
        if (tune->of[candidate].samples == 0) {
            tune->of[candidate].cost = cost;
        }
    }
    tune->of[candidate].told++;
    find_base(tune);
    drop(tune, candidate, cost, true);
}

/* One that is part of a trial. If it had no result, its candidate has another turn. */
void regx_trial_end_turn(regx_autotune_t *segment, float cost)
{
    regx_tune_t *tune = &segment->tune[segment->burst];
    const bool burst = segment->open_max >= REGX_AUTOTUNE_BURST;

    tune->messages += segment->entered;
    tune->of[segment->candidate].bytes += segment->own;
    tune->of[segment->rest].bytes += segment->bytes - segment->own;
    /* The winner may fail once. */
    give_up(tune, tune->failures > 0 ? segment->failed : segment->failed & ~(1u << tune->winner));
    if (alive(tune, segment->candidate)) {
        if (segment->failed != 0 || segment->own == 0 || burst != segment->burst ||
            segment->before > 0) {
            if (++tune->failures >= FAILURES_MAX) {
                end_trial(tune, false);
            }
            return;
        }
        tune->failures = 0;
        if (burst) {
            judge_burst(tune, segment, cost);
        } else if (!judge_alone(tune, segment->candidate, cost)) {
            return; /* the run goes on */
        }
    }
    advance(tune, segment->burst);
}
