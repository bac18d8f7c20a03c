/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

regx_status_t pair_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    pair_t *pair = fake->context;

    (void)put;
    if (call == FAKE_PUT || call == FAKE_GET) {
        return pair->puts;
    }
    const unsigned number = fake->calls[call];
    const bool refused = fake == pair->receiver
                             ? number == pair->refused_region ||
                                   (number > pair->refused_region && number <= pair->refused_most)
                             : pair->sender_refused > 0 && number >= pair->sender_refused;

    return call == FAKE_REG && refused ? REGX_NO_MEMORY : REGX_OK;
}

void pair_done(void *context, regx_status_t status)
{
    pair_t *pair = context;

    pair->dones++;
    pair->status = status;
}

pair_t *pair_open(const fake_config_t *sender, const fake_config_t *receiver)
{
    pair_t *pair = calloc(1, sizeof(*pair));

    assert_non_null(pair);
    pair->sender = fake_open(0, sender);
    pair->receiver = fake_open(1, receiver);
    fake_connect(pair->sender, pair->receiver, false);
    fake_connect(pair->receiver, pair->sender, false);
    pair->sender->rule = pair->receiver->rule = pair_rule;
    pair->sender->context = pair->receiver->context = pair;
    return pair;
}

unsigned pair_run(pair_t *pair)
{
    unsigned frames = 0;
    bool any = true;

    while (any) {
        any = false;
        regx_rndv_progress(pair->sender->rndv);
        regx_rndv_progress(pair->receiver->rndv);
        while (fake_complete(pair->sender, 1, 0, REGX_OK) ||
               fake_got(pair->receiver, 0, 0, REGX_OK) ||
               fake_receive(pair->receiver, pair->sender) ||
               fake_receive(pair->sender, pair->receiver)) {
            any = true;
            frames++;
        }
    }
    return frames;
}

void pair_close(pair_t *pair)
{
    fake_assert_idle(pair->sender);
    fake_assert_idle(pair->receiver);
    assert_int_equal(pair->sender->counters.malformed, 0);
    assert_int_equal(pair->receiver->counters.malformed, 0);
    fake_close(pair->sender);
    fake_close(pair->receiver);
    free(pair);
}
