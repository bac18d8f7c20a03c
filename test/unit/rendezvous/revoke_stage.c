/* SPDX-License-Identifier: BSD-3-Clause */
#include "revoke_stage.h"

const fake_config_t revoke_pipeline = {.slots = 8,
                                       .slot_size = SLOT,
                                       .strategy = "pipeline",
                                       .chunk_size = CHUNK,
                                       .chunk_depth = DEPTH,
                                       .revocable = true,
                                       .cache_bytes = REGX_UNLIMITED};

replaced_t replaced;
unsigned proofs_failed;

static void lose(fake_t *fake, const void *from, size_t length, char *written)
{
    uint8_t *const first = (uint8_t *)written, *const last = first + length;
    uint8_t *const end = replaced.start + replaced.length;
    uint8_t *const start = first > replaced.start ? first : replaced.start;

    (void)fake, (void)from;
    if (replaced.lost && start < (last < end ? last : end)) {
        memset(start, 0x77, (size_t)((last < end ? last : end) - start));
    }
}

stage_t *revoke_open(const fake_config_t *config)
{
    const bool direct = strcmp(config->strategy, "direct") == 0;
    stage_t *stage =
        transfer_open(config, config, direct ? REGX_PATH_direct : REGX_PATH_pipeline, false);

    stage->sender->corrupt = lose;
    replaced = (replaced_t){.lost = false};
    proofs_failed = 0;
    return stage;
}

void tell_change(void)
{
    fake_changed(replaced.start, replaced.length);
}

void make_change(void)
{
    memset(replaced.start, 0x77, replaced.length);
    replaced.lost = true;
}

static unsigned puts_under_way(const stage_t *stage)
{
    unsigned count = 0;

    for (const fake_frame_t *at = stage->sender->conns[1].head; at != NULL; at = at->next) {
        count += at->pending != NULL;
    }
    return count;
}

regx_rndv_send_t *send_of(const stage_t *stage)
{
    return regx_handle_table_at(&stage->sender->rndv->sends, 0);
}

/* The sender knows, and has not answered. */
static bool is_revoked(const stage_t *stage)
{
    const regx_rndv_send_t *send = send_of(stage);

    return send != NULL && send->agreement == REGX_AGREEMENT_REVOKED;
}

regx_recv_phase_t phase(const stage_t *stage)
{
    return stage->recv->phase;
}

bool watched_step(stage_t *stage)
{
    const bool was_agreed = phase(stage) == REGX_RECV_REVOKED, was_revoked = is_revoked(stage);
    const bool was_there = phase(stage) == REGX_RECV_ARRIVED;
    const uint64_t written = stage->chunk_bytes;
    const bool happened = step(stage);

    if (was_agreed && phase(stage) == REGX_RECV_REVOKED) {
        assert_int_equal(puts_under_way(stage), 0);
        assert_int_equal(stage->chunk_bytes, written);
    }
    if (was_revoked && is_revoked(stage)) {
        assert_int_equal(stage->chunk_bytes, written); /* what was begun ends, nothing begins */
    }
    if (phase(stage) == REGX_RECV_REVOKED) {
        replaced.lost = false;
    }
    proofs_failed += was_there && phase(stage) != REGX_RECV_ARRIVED;
    if (stage->dones > 0) {
        assert_int_equal(phase(stage), REGX_RECV_ARRIVED);
    }
    return happened;
}

void watched_steps(stage_t *stage, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        watched_step(stage);
    }
}

void watched_run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 300 && stage->dones == 0; idle++) {
        if (watched_step(stage)) {
            idle = 0;
        }
    }
    run(stage);
}

void revoke_close(stage_t *stage)
{
    fake_changed(stage->sent.base, LENGTH);
    fake_changed(stage->received.base, LENGTH);
    stage_close(stage);
}

void revoke_end_but_malformed(stage_t *stage, unsigned times)
{
    watched_run(stage);
    assert_read(stage);
    assert_int_equal(malformed(stage), times);
    close_recv(stage);
}

void revoke_end(stage_t *stage)
{
    revoke_end_but_malformed(stage, 0);
}
