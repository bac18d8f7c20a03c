/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/autotune.h"

#include <string.h>

#include "base/clock.h"

#define LOST 64u            /* a trial may lose one message of so many, */
#define REPEATED 3u         /* half as much each time that it ends the same, so often */
#define WAIT_MAX (1u << 20) /* messages without a trial: what it lost may have been chance */
#define SLOWER 1.25F        /* bursts take so many times what is expected, */
#define SLOWER_BURSTS 4u    /* so many in a row: the next trial comes at once */
#define WAITED 4096u   /* if the last is so many messages ago, or a quarter of the time is over */
#define FAR_WORSE 2.0F /* takes so many times what the base does: one burst is enough to see it */
#define HOPELESS 4.0F  /* so many times what the winner does: likewise at sizes nearby, */
#define NEARBY 2u      /* of which the larger is up to so many times twice as long */
#define SHORT_RUN 2u   /* messages */
#define ENOUGH 1.5F    /* what they take, compared with the best: a run is broken off */
#define SLOWEST(count) (((count) + 2) / 4) /* of a run are left out */
#define VAIN 4u          /* segments in a row by which the winner was not to be had: likewise, */
#define VAIN_WAITED 64u  /* if the last trial is so many messages ago */
#define FAILURES_MAX 16u /* segments in a row that told nothing end a trial */

unsigned regx_autotune_size(uint64_t length)
{
    const unsigned size = 63 - (unsigned)__builtin_clzll(length / REGX_AUTOTUNE_SMALLEST | 1);

    return size < REGX_AUTOTUNE_SIZES ? size : REGX_AUTOTUNE_SIZES - 1;
}

void regx_autotune_init(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES],
                        const regx_autotune_prior_t *prior)
{
    memset(autotune, 0, REGX_AUTOTUNE_SIZES * sizeof(autotune[0]));
    for (unsigned size = 0; size < REGX_AUTOTUNE_SIZES; size++) {
        const uint8_t winner = prior->winner[size];
        regx_autotune_t *of = &autotune[size];

        for (unsigned burst = 0; burst < 2; burst++) {
            of->tune[burst] = (regx_tune_t){.candidates = (uint8_t)prior->candidates,
                                            .winner = winner,
                                            .base = winner,
                                            .wait = prior->patience};
        }
        if (of->tune[1].wait < REGX_AUTOTUNE_PATIENCE) {
            of->tune[1].wait = REGX_AUTOTUNE_PATIENCE;
        }
        of->tune[0].waits = of->tune[0].wait;
        of->tune[1].waits = of->tune[1].wait;
        of->candidate = of->rest = winner;
        of->place = (uint8_t)size;
    }
}

bool regx_autotune_outcome(const regx_autotune_t *size, unsigned *candidate)
{
    const bool burst = size->tune[0].trials == 0 ||
                       (size->tune[1].trials > 0 && size->messages[1] > size->messages[0]);

    *candidate = size->tune[burst].winner;
    return size->tune[burst].trials > 0;
}

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

/* ---- a trial -------------------------------------------------------------------------------- */

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
static void begin_trial(const regx_autotune_t *size, bool burst, regx_tune_t *tune)
{
    tune->trying = true;
    tune->base = tune->winner;
    tune->left_out = 0;
    if (tune->trials == 0) {
        tune->left_out = (uint8_t)(hopeless_nearby(size, burst) & ~(1u << tune->winner));
    }
    tune->alive = (uint8_t)(((1u << tune->candidates) - 1) & ~(unsigned)tune->left_out);
    tune->round = tune->turn = tune->failures = tune->passed = 0;
    tune->short_cost = 0;
    tune->messages = 0;
    memset(tune->of, 0, sizeof(tune->of));
}

/* Whose turn it is. The first round begins with the winner, each other with the next one. */
static unsigned whose(const regx_tune_t *tune)
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

/* What short runs told is no measure of what follows them, unless that, too, is of two messages. */
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
    const unsigned now = whose(tune);
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
    } while (!alive(tune, whose(tune)));
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

/* What a message that came alone tells. Returns whether its candidate's turn is over. */
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

/* What a burst tells. Of a share of its bytes only, if others went by the base: that is used only
 * as long as there is nothing better, since the two may have gone on at the same time. */
static void judge_burst(regx_tune_t *tune, const regx_autotune_t *segment, float cost)
{
    const unsigned candidate = segment->candidate;
    const float share = (float)segment->own / (float)segment->bytes;
    const float rest = tune->of[segment->rest].cost;

    if (segment->own == segment->bytes) {
        add_sample(tune, candidate, cost, segment->closed);
        cost = tune->of[candidate].cost;
    } else {
        cost = rest + (cost - rest) / share;
        cost = cost > rest / 2 ? cost : rest / 2;
        if (tune->of[candidate].samples == 0) {
            tune->of[candidate].cost = cost;
        }
    }
    tune->of[candidate].told++;
    find_base(tune);
    drop(tune, candidate, cost, true);
}

/* ---- segments ------------------------------------------------------------------------------- */

static float cost_of(const regx_autotune_t *segment, int64_t now)
{
    return 1 + (float)(now - segment->began) * 1000 / (float)segment->bytes;
}

/* A burst outside of a trial. Several in a row that take clearly longer than the winner did in the
 * trial: costs have changed, so the next one comes earlier. */
static void watch(regx_tune_t *tune, float cost)
{
    tune->slower =
        tune->expected > 0 && cost > tune->expected * SLOWER ? (uint8_t)(tune->slower + 1) : 0;
    if (tune->slower >= SLOWER_BURSTS) {
        tune->slower = 0;
        const uint64_t waited = tune->waits - tune->wait;

        tune->wait = waited >= WAITED || waited >= tune->waits / 4 ? 0 : tune->wait;
    }
}

/* One outside of a trial, by the winner alone. If most messages of several in a row cannot have it,
 * the next trial comes at once, and leaves it out. */
static void watch_vain(regx_tune_t *tune, const regx_autotune_t *segment)
{
    if (segment->closed == 0) {
        return;
    }
    tune->vain = 2 * segment->refused > segment->closed ? (uint8_t)(tune->vain + 1) : 0;
    if (tune->vain >= VAIN) {
        tune->vain = 0;
        tune->wait = tune->waits - tune->wait >= VAIN_WAITED ? 0 : tune->wait;
    }
}

/* One that is part of a trial. If it told nothing, its candidate has another turn. */
static void end_turn(regx_autotune_t *segment, int64_t now)
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
            judge_burst(tune, segment, cost_of(segment, now));
        } else if (!judge_alone(tune, segment->candidate, cost_of(segment, now))) {
            return; /* the run goes on */
        }
    }
    advance(tune, segment->burst);
}

static void end_segment(regx_autotune_t *segment, int64_t now)
{
    regx_tune_t *tune = &segment->tune[segment->burst];

    segment->messages[segment->burst] += segment->entered;
    if (segment->timed) {
        end_turn(segment, now);
        return;
    }
    tune->wait -= tune->wait < segment->entered ? tune->wait : segment->entered;
    watch_vain(tune, segment);
    if (segment->open_max >= REGX_AUTOTUNE_BURST && segment->began > 0 && segment->bytes > 0) {
        watch(tune, cost_of(segment, now));
    }
}

static void begin_segment(regx_autotune_t *segment, bool burst, int64_t now)
{
    regx_tune_t *tune = &segment->tune[burst];

    if (!tune->trying && tune->wait == 0) {
        begin_trial(segment, burst, tune);
    }
    const bool stream = segment->burst;
    const uint8_t last = segment->entered > segment->limit ? segment->rest : segment->candidate;

    segment->burst = burst;
    segment->timed = tune->trying;
    segment->failed = 0;
    segment->candidate = segment->rest = tune->winner;
    segment->limit = UINT32_MAX;
    segment->began = now;
    if (tune->trying) {
        segment->candidate = (uint8_t)whose(tune);
        segment->rest = tune->base;
        if (segment->candidate != segment->rest && tune->of[segment->rest].cost > 0 &&
            (tune->of[segment->candidate].told == 0 || tune->of[segment->candidate].suspect > 0)) {
            segment->limit = REGX_AUTOTUNE_PROBE;
        }
    }
    segment->number++;
    segment->entered = segment->closed = segment->refused = 0;
    segment->bytes = segment->own = 0;
    segment->open_max = segment->open;
    segment->before = segment->open;
    if (stream && segment->limit == UINT32_MAX && segment->candidate != last) {
        /* What the sender got ahead with the other candidate is not this one's either. */
        segment->before *= 2;
    }
}

static void next_segment(regx_autotune_t *segment, bool burst)
{
    const regx_tune_t *tune = &segment->tune[burst];
    const bool due = tune->wait <= (burst == segment->burst ? segment->entered : 0);
    const int64_t now = segment->timed || due || burst ? regx_now_ns() : 0;

    end_segment(segment, now);
    begin_segment(segment, burst, now);
}

regx_trial_t regx_autotune_enter(regx_autotune_t autotune[REGX_AUTOTUNE_SIZES], uint64_t length)
{
    regx_autotune_t *segment = &autotune[regx_autotune_size(length)];

    if (segment->open == 0) {
        next_segment(segment, segment->open_max >= REGX_AUTOTUNE_BURST);
    } else if (!segment->burst && segment->open + 1 >= REGX_AUTOTUNE_BURST) {
        segment->open_max = segment->open + 1;
        next_segment(segment, true);
    } else if (segment->before == 0 && segment->closed >= REGX_AUTOTUNE_SEGMENT &&
               segment->closed >= segment->open_max) {
        next_segment(segment, segment->open_max >= REGX_AUTOTUNE_BURST);
    }
    segment->open++;
    segment->open_max = segment->open > segment->open_max ? segment->open : segment->open_max;
    const bool rest = segment->entered >= segment->limit;

    segment->entered++;
    return (regx_trial_t){.of = segment,
                          .trial = segment->timed,
                          .known = segment->tune[segment->burst].trials > 0,
                          .candidate = rest ? segment->rest : segment->candidate,
                          .number = segment->number};
}

void regx_autotune_leave(const regx_trial_t *trial, uint64_t length, bool went)
{
    regx_autotune_t *segment = trial->of;

    if (segment == NULL) {
        return;
    }
    segment->open--;
    if (segment->before > 0) {
        if (--segment->before == 0 && (segment->timed || segment->burst)) {
            segment->began = regx_now_ns();
        }
        return;
    }
    segment->closed++;
    segment->bytes += length;
    segment->own += trial->candidate == segment->candidate ? length : 0;
    if (!went && trial->number == segment->number) {
        segment->failed |= (uint8_t)(1u << trial->candidate);
        segment->refused++;
    }
}
