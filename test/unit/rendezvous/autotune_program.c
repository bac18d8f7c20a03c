/* SPDX-License-Identifier: BSD-3-Clause */
#include "autotune_program.h"

#include <time.h>

regx_autotune_t autotune[REGX_AUTOTUNE_SIZES];
int64_t now;
int64_t costs[WAYS];
unsigned went[WAYS], tried, looks;
unsigned refused;
bool refused_one;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    looks++;
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

void begin_of(unsigned candidates, uint8_t winner, uint32_t patience)
{
    regx_autotune_prior_t prior = {.candidates = candidates, .patience = patience};

    memset(prior.winner, winner, sizeof(prior.winner));
    regx_autotune_init(autotune, &prior);
    now = 1000000;
    refused = 0;
    refused_one = false;
}

void begin_with(uint8_t winner, uint32_t patience)
{
    begin_of(WAYS, winner, patience);
}

int begin(void **state)
{
    (void)state;
    begin_with(BOUNCE, 0);
    return 0;
}

void again(void)
{
    memset(went, 0, sizeof(went));
    tried = looks = 0;
}

void cost(int64_t bounce, int64_t read, int64_t together)
{
    costs[BOUNCE] = bounce;
    costs[READ] = read;
    costs[TOGETHER] = together;
    again();
}

void enter(message_t *message, uint64_t length)
{
    message->length = length;
    message->opened = now;
    message->trial = regx_autotune_enter(autotune, length);
    went[message->trial.candidate]++;
    tried += message->trial.trial;
}

void leave(const message_t *message, bool whole)
{
    regx_autotune_leave(&message->trial, message->length,
                        whole && (refused & 1u << message->trial.candidate) == 0);
}

int64_t time_of(const message_t *message)
{
    return costs[message->trial.candidate] * (int64_t)(message->length / KIB);
}

void alone(unsigned count, uint64_t length)
{
    for (unsigned i = 0; i < count; i++) {
        message_t message;

        enter(&message, length);
        now += time_of(&message);
        leave(&message, true);
    }
}

void stream(unsigned count, unsigned ahead, uint64_t length)
{
    static message_t messages[100000];
    const unsigned lag = LAG / length > 1 ? (unsigned)(LAG / length) : 2;
    int64_t sender = now;
    unsigned opened = 0;

    assert_true(count <= sizeof(messages) / sizeof(messages[0]));
    for (unsigned i = 0; i < count; i++) {
        message_t *message = &messages[i];

        while (opened < count && opened < i + ahead) {
            enter(&messages[opened++], length);
        }
        sender = message->opened > sender ? message->opened : sender;
        if (message->trial.candidate != BOUNCE) {
            sender += time_of(message);
        } else {
            if (i >= lag && messages[i - lag].closed > sender) {
                sender = messages[i - lag].closed;
            }
            sender += time_of(message) * 8 / 10;
        }
        now = sender > now ? sender : now;
        now += message->trial.candidate != BOUNCE ? 1 : time_of(message);
        message->closed = now;
        leave(message, !(refused_one && i == 0 && message->trial.candidate == TOGETHER));
    }
}

void halo(unsigned steps, unsigned neighbours, uint64_t length)
{
    message_t messages[WINDOW];

    while (steps-- > 0) {
        const int64_t start = now;
        int64_t bounced = start;

        for (unsigned i = 0; i < neighbours; i++) {
            enter(&messages[i], length);
            bounced += messages[i].trial.candidate == BOUNCE ? time_of(&messages[i]) : 0;
        }
        for (unsigned i = 0; i < neighbours; i++) {
            const int64_t end = messages[i].trial.candidate == BOUNCE
                                    ? bounced - (int64_t)(neighbours - i)
                                    : start + time_of(&messages[i]);

            now = end > now ? end : now;
            leave(&messages[i], true);
        }
    }
}

unsigned winner(uint64_t length)
{
    unsigned candidate = WAYS;

    assert_true(regx_autotune_outcome(&autotune[regx_autotune_size(length)], &candidate));
    return candidate;
}
