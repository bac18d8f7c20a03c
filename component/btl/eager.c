/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/eager.h"

#include <string.h>

#include "base/util.h"

#define PATIENCE 112u       /* messages before the first trial: collective benchmarks send 110 */
#define FIRST 16u           /* messages by rendezvous as it begins */
#define ROUNDS 3u           /* turns of each way */
#define SKIP 8u             /* messages at a turn's begin that are not counted; */
#define SKIP_MAX 64u        /* where progress is not called */
#define SAMPLE 8u           /* messages of a sample, at least; */
#define SAMPLE_MAX 128u     /* where progress is not called */
#define TURN_SAMPLES 4u     /* either ends a turn: so many samples, */
#define TURN_MESSAGES 32u   /* or so many messages that were counted */
#define CLEAR_MESSAGES 32u  /* counted of each way: a trial may end early, */
#define CLEAR 1.5F          /* if one takes so many times as long as the other, */
#define LESS_CLEAR 1.125F   /* or so many after the second round */
#define FAR 2.5F            /* times as long by rendezvous: so it is for the other sizes */
#define STRAYS 64u          /* in a turn: the trial is given up */
#define OTHERS 512u         /* in a turn: the same */
#define RECENT 64u          /* messages of the other sizes */
#define LOST 64u            /* a trial may lose one message of so many, */
#define REPEATED 3u         /* half as many each time that it ends the same, up to so often */
#define WAIT_FIRST 4096u    /* the receiver tried its paths during the first trial */
#define WAIT_MAX (1u << 20) /* messages */

void regx_eager_init(regx_eager_t *eager, size_t *limit, bool tunes)
{
    memset(eager, 0, sizeof(*eager));
    eager->tunes = tunes;
    eager->limit = limit;
    eager->configured = *limit;
    for (unsigned i = 0; i < REGX_EAGER_SIZES; i++) {
        eager->size[i].wait = PATIENCE;
    }
}

static regx_eager_way_t other(regx_eager_way_t way)
{
    return way == REGX_EAGER_SEND ? REGX_EAGER_RENDEZVOUS : REGX_EAGER_SEND;
}

/* ABBAAB: what drifts is no advantage to either. */
static regx_eager_way_t whose(const regx_eager_t *eager)
{
    const regx_eager_way_t winner = eager->trial->winner;

    if (eager->first > 0) {
        return REGX_EAGER_RENDEZVOUS;
    }
    return eager->turn % 2 == (eager->turn / 2) % 2 ? winner : other(winner);
}

/* Which way a size's messages are to go now. */
static regx_eager_way_t way_of(const regx_eager_t *eager, const regx_eager_size_t *size)
{
    return size == eager->trial ? whose(eager) : size->winner;
}

/* Whether messages of that size, which are to go eagerly, do so even if shorter ones are to go by
 * rendezvous. A size that is tried does; it has its way against longer ones, too. */
static bool prevails(const regx_eager_t *eager, const regx_eager_size_t *size)
{
    if (eager->trial != NULL && eager->trial <= size) {
        return eager->trial == size;
    }
    return size->trials > 0 && size->unseen < RECENT;
}

static size_t find_limit(const regx_eager_t *eager)
{
    size_t limit = eager->configured;

    for (unsigned i = REGX_EAGER_SIZES; i-- > 0;) {
        if (way_of(eager, &eager->size[i]) == REGX_EAGER_RENDEZVOUS) {
            limit = ((size_t)REGX_EAGER_MIN << i) + REGX_EAGER_HEADER;
        } else if (prevails(eager, &eager->size[i])) {
            break;
        }
    }
    return regx_min(limit, eager->configured);
}

static float cost(const regx_eager_size_t *size, regx_eager_way_t way)
{
    return size->of[way].sample[(size->of[way].samples - 1u) / 4];
}

static void begin_sample(regx_eager_t *eager, int64_t now)
{
    eager->measuring = true;
    eager->began = now;
    eager->bytes = 0;
    eager->passed = 0;
}

static void begin_turn(regx_eager_t *eager)
{
    eager->skipped = eager->counted = eager->strays = eager->others = 0;
    eager->samples = 0;
    eager->measuring = false;
}

static void begin_trial(regx_eager_t *eager, regx_eager_size_t *size)
{
    eager->trial = size;
    eager->turn = 0;
    eager->first = size->trials == 0 ? FIRST : 0;
    eager->messages = 0;
    memset(size->of, 0, sizeof(size->of));
    begin_turn(eager);
}

static uint64_t wait_after(const regx_eager_size_t *size, uint32_t messages, float ratio)
{
    /* Of each message. Where both ways take as long it is not 0: a change of the way costs, too. */
    const float lost = ratio > 1.125F ? (ratio - 1) / 2 : 1.0F / 16;
    const float wait = lost * (float)messages * (float)(LOST << size->repeated);
    const uint64_t longest = size->trials <= 1 ? WAIT_FIRST : WAIT_MAX;

    return wait < (float)longest ? (uint64_t)wait + 1 : longest;
}

/* A benchmark of that size would lose more by a trial than it can gain. */
static void put_off_others(regx_eager_t *eager)
{
    for (regx_eager_size_t *size = eager->size; size < eager->size + REGX_EAGER_SIZES; size++) {
        if (size != eager->trial && size->trials == 0) {
            size->wait = WAIT_FIRST;
        }
    }
}

static void end_trial(regx_eager_t *eager, bool known)
{
    regx_eager_size_t *size = eager->trial;
    const regx_eager_way_t before = size->winner;
    const uint32_t program = regx_fractions_begin();
    float ratio = 1;

    if (known) {
        const float save = 1.0F / (size->trials == 0 ? 16 : 32); /* to win */

        ratio = cost(size, other(before)) / cost(size, before);
        if (ratio < 1 - save) {
            size->winner = other(before);
        }
        if (cost(size, REGX_EAGER_RENDEZVOUS) > FAR * cost(size, REGX_EAGER_SEND)) {
            put_off_others(eager);
        }
        ratio = ratio < 1 ? 1 / ratio : ratio;
        size->trials = size->trials < UINT8_MAX ? (uint8_t)(size->trials + 1) : UINT8_MAX;
    }
    size->repeated = before != size->winner      ? 0
                     : size->repeated < REPEATED ? (uint8_t)(size->repeated + 1)
                                                 : REPEATED;
    size->wait = wait_after(size, eager->messages, ratio);
    regx_fractions_end(program);
    eager->trial = NULL;
}

/* Whether the other turns cannot change the outcome. */
static bool is_clear(const regx_eager_size_t *size, unsigned turns)
{
    float ratio;

    if (turns % 2 != 0 || size->of[0].messages < CLEAR_MESSAGES ||
        size->of[1].messages < CLEAR_MESSAGES) {
        return false;
    }
    ratio = cost(size, REGX_EAGER_SEND) / cost(size, REGX_EAGER_RENDEZVOUS);
    ratio = ratio < 1 ? 1 / ratio : ratio;
    return ratio > (turns > 2 ? LESS_CLEAR : CLEAR);
}

/* Enters a figure into others in ascending order; instead of the largest, if there are enough. */
static void insert(float *sorted, uint8_t *count, float figure)
{
    unsigned at = *count < REGX_EAGER_SAMPLES ? (*count)++ : REGX_EAGER_SAMPLES - 1;

    for (; at > 0 && sorted[at - 1] > figure; at--) {
        sorted[at] = sorted[at - 1];
    }
    sorted[at] = figure;
}

/* A burst is measured from its first message on: one that is not counted would cost as much. */
static void end_turn(regx_eager_t *eager, int64_t now)
{
    const bool bursts = eager->passed >= 2 * SAMPLE;

    eager->turn++;
    if (eager->turn == 2 * ROUNDS || is_clear(eager->trial, eager->turn)) {
        end_trial(eager, true);
        return;
    }
    begin_turn(eager);
    if (bursts) {
        begin_sample(eager, now);
    }
}

static void end_sample(regx_eager_t *eager, regx_eager_way_t way)
{
    const uint32_t program = regx_fractions_begin();
    const int64_t now = regx_now_ns();

    insert(eager->trial->of[way].sample, &eager->trial->of[way].samples,
           1 + (float)(now - eager->began) * 1000 / (float)eager->bytes);
    eager->trial->of[way].messages += eager->passed;
    eager->counted += eager->passed;
    eager->samples++;
    if (eager->samples >= TURN_SAMPLES || eager->counted >= TURN_MESSAGES) {
        end_turn(eager, now);
    } else {
        begin_sample(eager, now);
    }
    regx_fractions_end(program);
}

/* It cannot go as the turn's messages are to, or not yet: this sample is worthless. */
static void note_stray(regx_eager_t *eager)
{
    eager->measuring = false;
    if (++eager->strays == STRAYS) {
        if (whose(eager) == REGX_EAGER_RENDEZVOUS) {
            eager->trial->winner = REGX_EAGER_SEND;
        }
        end_trial(eager, false);
    }
}

/* A message of the size that is tried. first: progress was called since the last one. */
static void weigh(regx_eager_t *eager, size_t length, regx_eager_way_t way, bool first)
{
    if (way != whose(eager)) {
        note_stray(eager);
        return;
    }
    if (eager->first > 0) {
        if (--eager->first == 0) {
            begin_turn(eager);
        }
        return;
    }
    if (!eager->measuring) {
        if ((first && eager->skipped >= SKIP) || eager->skipped >= SKIP_MAX) {
            begin_sample(eager, regx_now_ns());
        } else {
            eager->skipped++;
        }
    } else if ((first && eager->passed >= SAMPLE) || eager->passed >= SAMPLE_MAX) {
        end_sample(eager, way);
        if (eager->trial == NULL || way != whose(eager)) { /* it went before the next turn */
            return;
        }
    }
    if (eager->measuring) {
        eager->passed++;
        eager->bytes += length;
    }
}

/* A message of a size that is not tried. */
static void pass(regx_eager_t *eager, regx_eager_size_t *size)
{
    if (size->wait > 0) {
        size->wait--;
    }
    if (eager->trial != NULL) {
        if (++eager->others == OTHERS) {
            end_trial(eager, false);
        }
    } else if (size->wait == 0) {
        begin_trial(eager, size);
    }
}

void regx_eager_tell(regx_eager_t *eager, unsigned number, regx_eager_way_t winner)
{
    regx_eager_size_t *size = &eager->size[number];

    if (eager->tunes && eager->messages == 0 && eager->trial == NULL) {
        *size = (regx_eager_size_t){
            .winner = winner, .trials = 1, .wait = WAIT_FIRST, .unseen = RECENT};
        *eager->limit = find_limit(eager);
    }
}

void regx_eager_note(regx_eager_t *eager, size_t length, regx_eager_way_t way, bool node,
                     unsigned progress)
{
    if (!eager->tunes || length <= REGX_EAGER_MIN || length > REGX_EAGER_MIN << REGX_EAGER_SIZES) {
        return;
    }
    if (!node) {
        eager->tunes = false;
        *eager->limit = eager->configured;
        return;
    }
    regx_eager_size_t *size = eager->size;

    for (unsigned i = 0; i < REGX_EAGER_SIZES; i++) {
        size += length > (size_t)REGX_EAGER_MIN << (i + 1);
        eager->size[i].unseen++;
    }
    size->unseen = 0;
    eager->messages++;
    if (size == eager->trial) {
        weigh(eager, length, way, progress != eager->progress);
    } else {
        pass(eager, size);
    }
    if (size == eager->trial) {
        eager->progress = progress;
    }
    *eager->limit = find_limit(eager);
}
