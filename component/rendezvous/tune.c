/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/tune.h"

#include <string.h>

#define LOST 64u            /* a trial may lose one message of so many, */
#define REPEATED 3u         /* half as much each time that it ends the same, so often */
#define WAIT_MAX (1u << 20) /* messages without a trial: what it lost may have been chance */
#define CHANCE_MAX 16.0F    /* that a probe cost: likewise */
#define SLOWER 1.25F        /* bursts take so many times what is expected, */
#define SLOWER_BURSTS 4u    /* so many in a row: the next trial comes at once */
#define WAITED 4096u /* if the last is so many messages ago, or a quarter of the time is over */
#define CLEARLY (1.0F / 8) /* longer: worse */
#define PROBE_FEW 16u      /* one message of so many cannot make a burst clearly shorter */
#define GLANCE 2u          /* messages, */
#define FAR_WORSE 2.0F     /* which take so many times what the base's do */
#define ENOUGH 1.5F        /* what they take, compared with the best: a run is broken off */
#define SLOWEST(count) (((count) + 2) / 4) /* of a run are left out */
#define VAIN 4u          /* segments in a row by which the winner was not to be had: likewise, */
#define VAIN_WAITED 64u  /* if the last trial is so many messages ago */
#define FAILURES_MAX 16u /* segments in a row that told nothing end a trial */

void regx_tune_init(regx_tune_t *tune, bool burst, unsigned candidates, unsigned winner,
                    uint32_t patience)
{
    const uint64_t wait = burst && patience < REGX_TUNE_PATIENCE ? REGX_TUNE_PATIENCE : patience;

    *tune = (regx_tune_t){.burst = burst,
                          .candidates = (uint8_t)candidates,
                          .winner = (uint8_t)winner,
                          .base = (uint8_t)winner,
                          .wait = wait,
                          .waits = wait};
}

static bool alive(const regx_tune_t *tune, unsigned candidate)
{
    return (tune->alive & 1u << candidate) != 0;
}

static unsigned rounds(const regx_tune_t *tune)
{
    return !tune->burst || tune->trials == 0 ? 3 : 5;
}

/* Messages that come alone: the first round of the first trial. */
static bool glances(const regx_tune_t *tune)
{
    return !tune->burst && tune->trials == 0 && tune->round == 0;
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
    return glances(tune) ? GLANCE : REGX_TUNE_RUN;
}

/* ---- a trial -------------------------------------------------------------------------------- */

static void begin_trial(regx_tune_t *tune)
{
    tune->trying = true;
    tune->base = tune->winner;
    tune->alive = (uint8_t)((1u << tune->candidates) - 1);
    tune->round = tune->turn = tune->failures = tune->passed = 0;
    tune->check = false;
    tune->glanced = 0;
    tune->messages = 0;
    tune->lost = 0;
    memset(tune->of, 0, sizeof(tune->of));
    for (unsigned i = 0; i < tune->candidates; i++) {
        tune->of[i].probe = 1;
    }
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
        tune->trials + (tune->of[before].messages >= REGX_TUNE_PATIENCE ? 1u : 0u);
    const float save = 1.0F / (float)(16u << (sure < 2 ? sure : 2)); /* to win */
    const float bytes = (float)(tune->of[0].bytes + tune->of[1].bytes + tune->of[2].bytes);
    float share = tune->lost > 0 ? tune->lost / (float)tune->messages : 0; /* of them: lost */

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
        tune->repeated = before != tune->winner || tune->trials == 0 ? 0
                         : tune->repeated + 1u < REPEATED            ? (uint8_t)(tune->repeated + 1)
                                                                     : REPEATED;
        tune->trials = tune->trials < UINT8_MAX ? (uint8_t)(tune->trials + 1) : UINT8_MAX;
        for (unsigned i = 0; i < tune->candidates && tune->of[tune->winner].cost > 0; i++) {
            float more = tune->of[i].cost / tune->of[tune->winner].cost - 1;

            more = more < 1 || tune->of[i].samples > 1 ? more : 1; /* once may have been chance */
            share += more > 0 ? more * (float)tune->of[i].bytes / bytes : 0;
        }
    }
    /* Bookkeeping and caches that another candidate filled are not free either. */
    share = share > 1.0F / 16 ? share : 1.0F / 16;
    const float lost = share * (float)tune->messages * (float)(LOST << tune->repeated);

    tune->wait = lost < WAIT_MAX ? (uint64_t)lost + 1 : WAIT_MAX;
    tune->waits = tune->wait;
    tune->expected = tune->of[tune->winner].cost;
    tune->slower = tune->vain = 0;
    tune->trying = false;
}

/* What a glance told is no measure of what follows it, unless that, too, is of two messages. */
static void forget_glance(regx_tune_t *tune)
{
    tune->glanced = tune->of[tune->base].cost;
    for (unsigned i = 0; i < tune->candidates; i++) {
        if (alive(tune, i)) {
            tune->of[i].samples = 0;
            tune->of[i].messages = 0;
            tune->of[i].cost = 0;
        }
    }
}

/* The next one's turn, or the end. */
static void advance(regx_tune_t *tune)
{
    if ((tune->alive & (tune->alive - 1)) == 0) { /* only one is left */
        if (tune->of[tune->base].cost == 0) {
            tune->of[tune->base].cost = tune->glanced;
        }
        end_trial(tune, tune->alive != 0);
        return;
    }
    const unsigned now = whose(tune);
    const bool glance = glances(tune);

    if (alive(tune, now) && tune->burst && tune->trials == 0 &&
        tune->messages < REGX_TUNE_PATIENCE * 3 / 4) {
        return; /* the prior goes on */
    }
    tune->passed = 0;
    tune->check = false;
    do {
        if (++tune->turn == tune->candidates) {
            tune->turn = 0;
            tune->round++;
        }
    } while (!alive(tune, whose(tune)));
    if (tune->round >= rounds(tune)) {
        end_trial(tune, true);
    } else if (glance && tune->round > 0) {
        forget_glance(tune);
    }
}

/* How much worse a candidate may be than the base, by the messages that it had. */
static float tolerance(const regx_tune_t *tune, uint32_t messages)
{
    if (glances(tune)) {
        return FAR_WORSE;
    }
    return messages >= (tune->burst ? 16 : REGX_TUNE_RUN) ? 1 + CLEARLY : 1 + 2 * CLEARLY;
}

/* The base is the best that is known of those that are alive. */
static void find_base(regx_tune_t *tune)
{
    for (unsigned i = 0; i < tune->candidates; i++) {
        if (alive(tune, i) && tune->of[i].samples > 0 &&
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

/* What is clearly worse has no further turn. In bursts that must be seen twice, since much is
 * decided by each; the second time fewer messages show it. */
static void drop(regx_tune_t *tune, unsigned judged)
{
    const float best = tune->of[tune->base].cost;

    for (unsigned i = 0; i < tune->candidates; i++) {
        const uint32_t messages = tune->of[i].messages;

        if (tune->of[tune->base].samples == 0 || tune->of[i].samples == 0) {
            continue;
        }
        if (tune->of[i].cost <= best * tolerance(tune, messages)) {
            tune->of[i].suspect = 0;
        } else if (i == judged || tune->of[i].suspect == 0) {
            tune->of[i].suspect++;
            tune->of[i].probe = (messages / tune->of[i].samples + 3) / 4;
        }
        if (tune->of[i].suspect >= (tune->burst ? 2 : 1)) {
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

    if (at == REGX_TUNE_SAMPLES) {
        at--; /* instead of the slowest */
    } else {
        tune->of[candidate].samples++;
    }
    insert(sample, at, cost);
    tune->of[candidate].messages += messages;
    tune->of[candidate].cost = sample[(tune->of[candidate].samples - 1u) / 4];
}

/* Without the slowest third, or half of a glance. */
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
    const float best = measured ? tune->of[tune->base].cost : tune->glanced;

    return (count == GLANCE || (count == GLANCE + 1 && measured)) && best > 0 &&
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

    if (candidate != tune->base && !glances(tune) && is_enough(tune, count, mean)) {
        tune->alive &= (uint8_t) ~(1u << candidate);
    } else if (count < length) {
        return false;
    }
    add_sample(tune, candidate, mean, count);
    find_base(tune);
    drop(tune, candidate);
    return true;
}

/* The median: what a burst takes that is neither fast nor slow by chance. */
static float usual(const regx_tune_t *tune, unsigned candidate)
{
    const float *sample = tune->of[candidate].sample;
    const unsigned last = tune->of[candidate].samples - 1u;

    return (sample[last / 2] + sample[(last + 1) / 2]) / 2;
}

/* What a burst tells of which others went by the base: only whether it took longer. The next one
 * has so many by the candidate as promise to lose an eighth of it at most. Returns whether the turn
 * is over. */
static bool judge_probe(regx_tune_t *tune, const regx_turn_t *turn, const regx_told_t *told)
{
    const unsigned candidate = turn->candidate;
    const float more = told->cost / usual(tune, turn->rest) - 1;
    const float lost = more * (float)told->closed;

    if (more < -CLEARLY && turn->limit <= told->closed / PROBE_FEW) {
        tune->check = true;
        return false;
    }
    tune->lost += lost < CHANCE_MAX ? lost : CHANCE_MAX;
    if (more > CLEARLY) {
        tune->of[candidate].suspect++;
        if (tune->of[candidate].suspect >= 2) {
            tune->alive &= (uint8_t) ~(1u << candidate);
        }
        return true;
    }
    if (more > CLEARLY / 2) {
        return true;
    }
    tune->of[candidate].suspect = 0;
    tune->of[candidate].probe = turn->limit * (more > CLEARLY / 8 ? 2 : 8);
    if (tune->of[candidate].probe > told->closed / 2) {
        tune->of[candidate].probe = UINT32_MAX;
    }
    return false;
}

/* What a burst tells. Returns whether the turn is over. */
static bool judge_burst(regx_tune_t *tune, const regx_turn_t *turn, const regx_told_t *told)
{
    const unsigned candidate = turn->candidate;

    if (told->messages > turn->limit) {
        return judge_probe(tune, turn, told);
    }
    const bool over = !tune->check;

    tune->check = false;
    tune->of[candidate].probe = UINT32_MAX;
    add_sample(tune, candidate, told->cost, told->closed);
    find_base(tune);
    drop(tune, candidate);
    return over;
}

/* If it told nothing, its candidate has another turn. */
static void end_turn(regx_tune_t *tune, const regx_turn_t *turn, const regx_told_t *told)
{
    tune->messages += told->messages;
    tune->of[turn->candidate].bytes += told->messages > turn->limit ? 0 : told->own;
    tune->of[turn->rest].bytes += told->bytes - told->own;
    /* The winner may fail once. */
    give_up(tune, tune->failures > 0 ? told->failed : told->failed & ~(1u << tune->winner));
    if (alive(tune, turn->candidate)) {
        if (told->failed != 0 || told->own == 0 || told->cost == 0) {
            if (++tune->failures >= FAILURES_MAX) {
                end_trial(tune, false);
            }
            return;
        }
        tune->failures = 0;
        if (tune->burst ? !judge_burst(tune, turn, told)
                        : !judge_alone(tune, turn->candidate, told->cost)) {
            return; /* it goes on */
        }
    }
    advance(tune);
}

/* ---- no trial ------------------------------------------------------------------------------- */

/* Several bursts in a row that take clearly longer than the winner did in the trial: costs have
 * changed, so the next one comes earlier. */
static void watch_cost(regx_tune_t *tune, float cost)
{
    tune->slower =
        tune->expected > 0 && cost > tune->expected * SLOWER ? (uint8_t)(tune->slower + 1) : 0;
    if (tune->slower >= SLOWER_BURSTS) {
        tune->slower = 0;
        const uint64_t waited = tune->waits - tune->wait;

        tune->wait = waited >= WAITED || waited >= tune->waits / 4 ? 0 : tune->wait;
    }
}

/* If most messages of several segments in a row cannot have the winner, the next trial comes at
 * once, and leaves it out. */
static void watch_vain(regx_tune_t *tune, const regx_told_t *told)
{
    if (told->closed == 0) {
        return;
    }
    tune->vain = 2 * told->refused > told->closed ? (uint8_t)(tune->vain + 1) : 0;
    if (tune->vain >= VAIN) {
        tune->vain = 0;
        tune->wait = tune->waits - tune->wait >= VAIN_WAITED ? 0 : tune->wait;
    }
}

/* ---- segments ------------------------------------------------------------------------------- */

regx_turn_t regx_tune_next(regx_tune_t *tune)
{
    regx_turn_t turn = {.candidate = tune->winner, .limit = UINT32_MAX, .rest = tune->winner};

    if (!tune->trying && tune->wait == 0) {
        begin_trial(tune);
    }
    if (tune->trying) {
        turn.trial = true;
        turn.candidate = tune->check ? tune->base : (uint8_t)whose(tune);
        turn.rest = tune->base;
        if (tune->burst && turn.candidate != turn.rest && tune->of[turn.rest].samples > 0) {
            turn.limit = tune->of[turn.candidate].probe;
        }
    }
    return turn;
}

void regx_tune_tell(regx_tune_t *tune, const regx_turn_t *turn, const regx_told_t *told)
{
    if (turn->trial) {
        end_turn(tune, turn, told);
        return;
    }
    tune->wait -= tune->wait < told->messages ? tune->wait : told->messages;
    watch_vain(tune, told);
    if (tune->burst && told->cost > 0) {
        watch_cost(tune, told->cost);
    }
}
