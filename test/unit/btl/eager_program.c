/* SPDX-License-Identifier: BSD-3-Clause */
#include "eager_program.h"

#include <time.h>

regx_eager_t eager;
size_t limit, configured;
int64_t now;
unsigned progress, header, sent, went[WAYS], looks;
regx_eager_way_t last;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    looks++;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

void begin_with(size_t bytes, bool tunes)
{
    limit = configured = bytes;
    regx_eager_init(&eager, &limit, tunes);
    now = 1000000;
    header = HEADER;
    progress = sent = looks = 0;
    last = REGX_EAGER_SEND;
    memset(went, 0, sizeof(went));
}

int begin(void **state)
{
    (void)state;
    begin_with(CONFIGURED, true);
    return 0;
}

regx_eager_way_t note(size_t length)
{
    last = length + header <= limit ? REGX_EAGER_SEND : REGX_EAGER_RENDEZVOUS;
    went[last]++;
    sent++;
    regx_eager_note(&eager, length, last, true, progress);
    assert_true(limit <= configured);
    assert_true(limit >= LEAST || limit == configured);
    return last;
}

const table_t tables[TABLES] = {
    {"rendezvous three times as fast, short", SHORT, {3000, 1000}},
    {"rendezvous three times as fast, long", LONG, {6000, 2000}},
    {"eager three times as fast, short", SHORT, {1000, 3000}},
    {"eager three times as fast, long", LONG, {2000, 6000}},
    {"rendezvous twice as fast", LONG, {4000, 2000}},
    {"eager twice as fast", SHORT, {2000, 4000}},
    {"rendezvous 1.4 times as fast", SHORT, {1400, 1000}},
    {"eager 1.4 times as fast", LONG, {2000, 2800}},
};

const program_t programs[PROGRAMS] = {
    {"ping-pong", 1, .noise = 0},
    {"ping-pong, noise", 1, .noise = 20, .interrupted = true},
    {"ping-pong, hiccups", 1, .noise = 10, .hiccups = 100},
    {"ping-pong, computes", 1, .noise = 10, .computes = 20000},
    {"bursts of 4", 4, .noise = 10, .interrupted = true},
    {"bursts of 16", 16, .noise = 20, .interrupted = true},
    {"bursts of 64", 64, .noise = 0},
    {"bursts of 64, noise", 64, .noise = 20, .interrupted = true},
    {"bursts of 64, computes", 64, .noise = 10, .computes = 50000},
    {"no progress", 64, true, .noise = 10, .interrupted = true},
};

enum {
    AFTER_CHANGE = 6, /* so many messages take longer when the way has changed, */
    FIRST = 12        /* and so many of the first by rendezvous, since the receiver tries paths */
};

uint32_t scatter(uint32_t seed, uint32_t index)
{
    uint64_t x = (((uint64_t)seed << 32) | index) * 0x9e3779b97f4a7c15U;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9U;
    return (uint32_t)(x >> 32);
}

static int64_t time_of(const table_t *table, const program_t *program, unsigned number,
                       uint32_t seed, regx_eager_way_t way, bool penalty)
{
    const uint32_t chance = scatter(seed, number);
    int64_t takes = table->takes[way] * (100 + (int64_t)(chance % (program->noise + 1))) / 100;

    takes += penalty ? table->takes[way] / 2 : 0;
    takes += program->interrupted && chance % 4000 == 0 ? 1000000 : 0;
    takes += program->hiccups > 0 && chance % program->hiccups == 0 ? 85000 : 0;
    return takes;
}

int64_t run(const table_t *table, const program_t *program, unsigned messages, uint32_t seed,
            int fixed)
{
    const int64_t began = now;
    unsigned since_change = AFTER_CHANGE, by_rendezvous = FIRST;
    regx_eager_way_t before = last;
    int64_t takes = 0;

    for (unsigned i = 0; i < messages; i++) {
        const regx_eager_way_t way = fixed == TUNED ? note(table->length) : (regx_eager_way_t)fixed;

        if (fixed == TUNED) {
            since_change = way == before ? since_change + 1 : 0;
            by_rendezvous = went[REGX_EAGER_RENDEZVOUS];
            before = way;
        }
        takes += time_of(table, program, i, seed, way,
                         since_change < AFTER_CHANGE ||
                             (way == REGX_EAGER_RENDEZVOUS && by_rendezvous < FIRST));
        if (program->no_progress) {
            now += takes;
            takes = 0;
        } else if ((i + 1) % program->burst == 0) {
            now += takes + program->computes;
            progress += 1 + scatter(seed, i) % 7;
            takes = 0;
        }
    }
    now += takes;
    return now - began;
}
