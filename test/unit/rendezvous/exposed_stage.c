/* SPDX-License-Identifier: BSD-3-Clause */
#include "exposed_stage.h"

#include "rendezvous/send.h"
#include "rendezvous/strategy.h"

enum { DEPTH = 3 };

fake_config_t config_of(const char *strategy)
{
    return (fake_config_t){.slots = 8,
                           .slot_size = SLOT,
                           .strategy = strategy,
                           .chunk_size = PAGE,
                           .chunk_depth = DEPTH};
}

static void got(void *context, regx_status_t status)
{
    heard_t *heard = context;

    heard->times++;
    heard->status = status;
}

bool expose(const stage_t *stage, size_t length, uint8_t *bytes)
{
    regx_rndv_exposure_t exposure;
    const bool exposed = regx_rndv_expose(stage->sender->rndv, &stage->sender->peers[1],
                                          stage->sent.base + stage->from, length, &exposure);

    memcpy(bytes, exposure.bytes, exposed ? REGX_CTS_SIZE : 0);
    return exposed;
}

void match(stage_t *stage, const uint8_t *exposure, size_t length, heard_t *heard)
{
    *heard = (heard_t){.stage = stage};
    memset(stage->received.base, 0x11, stage->received.length);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base + stage->to, length);
    assert_non_null(stage->recv);
    regx_rndv_recv_get(stage->receiver->rndv, stage->recv, exposure, got, heard);
}

void clear_to_send(stage_t *stage, size_t length)
{
    stage->dones = 0;
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1],
                        stage->sent.base + stage->from, length, fake_cts(stage->recv), done, stage);
    run(stage);
    assert_read_of(stage, length);
}

stage_t *open_both(const char *sender, const char *receiver)
{
    const fake_config_t sends = config_of(sender), receives = config_of(receiver);

    fake_overtaking = true;
    return transfer_open(&sends, &receives, regx_strategy_find(receiver)->path, true);
}

void close_both(stage_t *stage)
{
    close_recv(stage);
    stage_close(stage);
}

void assert_whole(const stage_t *stage, size_t length)
{
    assert_memory_equal(stage->received.base + stage->to, stage->sent.base + stage->from, length);
    for (size_t i = 0; i < stage->received.length; i++) {
        if ((i < stage->to || i >= stage->to + length) && stage->received.base[i] != 0x11) {
            fail_msg("byte %zu was written", i);
        }
    }
}
