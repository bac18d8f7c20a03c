/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/eager.h"

#include "base/util.h"

#define RECENT 64u  /* messages of the other sizes */
#define STRAYS 64u  /* in a batch: the trial is given up */
#define OTHERS 512u /* in a batch: the same */
#define FAR 2.5F    /* times as long by rendezvous: so it is for shorter messages */

void regx_eager_init(regx_eager_t *eager, size_t *limit, bool tunes)
{
    *eager = (regx_eager_t){.tunes = tunes, .limit = limit, .configured = *limit};
    for (unsigned i = 0; i < REGX_EAGER_SIZES; i++) {
        /* tell_others passes on what is found, not the tuner. */
        regx_tune_init(&eager->of[i], 1, REGX_AUTO_EAGER);
    }
}

/* Whether messages of that size, which are to go eagerly, do so even if shorter ones are to go by
 * rendezvous. A size that is tried does; it has its way against longer ones, too. */
static bool outranks_shorter(const regx_eager_t *eager, unsigned size)
{
    const regx_autotune_t *tune = &eager->of[size];

    if (eager->trial != NULL && eager->trial <= tune) {
        return eager->trial == tune;
    }
    return regx_tune_knows(tune) && eager->unseen[size] < RECENT;
}

static void set_limit(const regx_eager_t *eager)
{
    size_t limit = eager->configured;

    for (unsigned i = REGX_EAGER_SIZES; i-- > 0;) {
        if (regx_tune_way(&eager->of[i]) == REGX_EAGER_RENDEZVOUS) {
            limit = ((size_t)REGX_EAGER_MIN << i) + REGX_EAGER_HEADER;
        } else if (outranks_shorter(eager, i)) {
            break;
        }
    }
    *eager->limit = regx_min(limit, eager->configured);
}

/* What was told of messages that come alone; and of bursts. */
static void tell(regx_autotune_t *tune, uint8_t single, uint8_t stream)
{
    const uint8_t told[REGX_TRAFFICS] = {single, stream, REGX_TUNE_UNTOLD};

    regx_tune_tell(tune, told);
}

void regx_eager_tell(regx_eager_t *eager, unsigned number, uint8_t single, uint8_t stream)
{
    if (eager->tunes && eager->of[number].messages == 0 && eager->trial == NULL) {
        tell(&eager->of[number], single, stream);
        eager->unseen[number] = RECENT;
        set_limit(eager);
    }
}

/* The message had to go another way than the messages of the batch that is being timed. */
static void note_stray(regx_eager_t *eager, regx_autotune_t *tune)
{
    if (++eager->strays == STRAYS) {
        if (regx_tune_way(tune) == REGX_EAGER_RENDEZVOUS) {
            tune->winner = REGX_EAGER_SEND;
        }
        regx_tune_give_up(tune);
    }
}

/* Tells only what nothing was told of before. */
static void tell_more(regx_autotune_t *tune, uint8_t single, uint8_t stream)
{
    const uint8_t *told = tune->told;

    tell(tune, told[REGX_TRAFFIC_SINGLE] == REGX_TUNE_UNTOLD ? single : told[REGX_TRAFFIC_SINGLE],
         told[REGX_TRAFFIC_STREAM] == REGX_TUNE_UNTOLD ? stream : told[REGX_TRAFFIC_STREAM]);
}

/* What a trial tells of sizes that were not tried. What a rendezvous costs before its first byte is half as
 * much a byte for twice as many (two cores of a Xeon, both ways at once, from 8 KiB on: 2.7, 1.5 and 0.5
 * times as long as eagerly). So if it is faster, longer messages begin with it. If it is far worse their
 * first trials come later, since a benchmark of another size would lose more by one than it can gain; it
 * has to be twice as far for each size further. */
static void tell_others(regx_eager_t *eager, const regx_autotune_t *tune)
{
    const uint32_t program = regx_fpe_mask();
    float limit = FAR * tune->found[REGX_EAGER_SEND];

    for (regx_autotune_t *other = eager->of; other < eager->of + REGX_EAGER_SIZES; other++) {
        limit *= other > tune ? 2 : 1;
        if (regx_tune_knows(other) || other->batch.number > 0) {
            continue;
        }
        if (other > tune && tune->winner == REGX_EAGER_RENDEZVOUS) {
            tell_more(other, REGX_EAGER_RENDEZVOUS, REGX_EAGER_RENDEZVOUS);
        } else if (tune->found[REGX_EAGER_RENDEZVOUS] > limit && other->state == REGX_TUNE_TOLD) {
            tell_more(other, REGX_EAGER_SEND, REGX_TUNE_UNTOLD);
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
        note_stray(eager, tune);
    } else {
        const regx_trial_t trial = regx_tune_enter(tune, false);

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
            regx_tune_give_up(eager->trial);
            eager->trial = NULL;
        }
    }
    set_limit(eager);
}
