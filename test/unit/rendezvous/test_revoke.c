/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that are revoked: whatever of the receiver's buffer is replaced, at any moment, all has
 * arrived at the end, nothing is written between REVOKED and the next grant, and nobody waits for
 * ever. What is on its way to pages that were replaced is lost, as by a device.
 */
#include "transfer_stage.h"

#include <sys/mman.h>

#include "rendezvous/proto.h"

enum { CHUNK = PAGE, DEPTH = 3, STEPS = 60, SEEDS = 648 };

static const fake_config_t pipeline = {.slots = 8,
                                       .slot_size = SLOT,
                                       .strategy = "pipeline",
                                       .chunk_size = CHUNK,
                                       .chunk_depth = DEPTH,
                                       .revocable = true,
                                       .cache_bytes = REGX_UNLIMITED};

/* A part of the buffer that was replaced; what is under way to it goes to the old pages. */
typedef struct replaced {
    uint8_t *start;
    size_t length;
    bool lost; /* until nothing that was granted before can be written any more */
} replaced_t;

static replaced_t replaced;
static unsigned proofs_failed;

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

static stage_t *open_stage(const fake_config_t *config)
{
    const bool direct = strcmp(config->strategy, "direct") == 0;
    stage_t *stage =
        transfer_open(config, config, direct ? REGX_PATH_direct : REGX_PATH_pipeline, false);

    stage->sender->corrupt = lose;
    replaced = (replaced_t){.lost = false};
    proofs_failed = 0;
    return stage;
}

static void choose_range(stage_t *stage)
{
    const size_t first = chance_next(&stage->seed) % LENGTH;

    replaced.start = stage->received.base + first;
    replaced.length = 1 + chance_next(&stage->seed) % (LENGTH - first);
}

static void tell(void)
{
    fake_changed(replaced.start, replaced.length);
}

static void make(void)
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

static regx_rndv_send_t *send_of(const stage_t *stage)
{
    return regx_handle_table_at(&stage->sender->rndv->sends, 0);
}

/* The sender knows, and has not answered. */
static bool is_revoked(const stage_t *stage)
{
    const regx_rndv_send_t *send = send_of(stage);

    return send != NULL && send->agreement == REGX_AGREEMENT_REVOKED;
}

static regx_recv_phase_t phase(const stage_t *stage)
{
    return stage->recv->phase;
}

/* One thing happens; then what must always hold. */
static bool watched_step(stage_t *stage)
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

static void watched_steps(stage_t *stage, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        watched_step(stage);
    }
}

static void watched_run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 300 && stage->dones == 0; idle++) {
        if (watched_step(stage)) {
            idle = 0;
        }
    }
    run(stage);
}

/* The receiver has not seen for the last time that nothing changed. */
static bool is_open(const stage_t *stage)
{
    return phase(stage) != REGX_RECV_ARRIVED;
}

/* Nothing is kept of buffers that go. */
static void finish(stage_t *stage)
{
    fake_changed(stage->sent.base, LENGTH);
    fake_changed(stage->received.base, LENGTH);
    stage_close(stage);
}

static void end(stage_t *stage)
{
    watched_run(stage);
    assert_read(stage);
    assert_int_equal(malformed(stage), 0);
    close_recv(stage);
}

static stage_t *any_stage(uint64_t seed)
{
    static const char *const names[] = {"pipeline", "pipeline", "direct"};
    fake_config_t config = pipeline;

    config.strategy = names[seed % 3];
    stage_t *stage = open_stage(&config);
    stage->seed = seed * 7919 + 1;
    stage->late_percent = (unsigned[]){0, 60, 100}[seed / 3 % 3];
    stage->again_percent = seed / 9 % 2 == 0 ? 0 : 30;
    if (seed / 18 % 3 == 0) { /* some of it goes by slots */
        stage->answer.at = seed % 2 == 0 ? stage->receiver : stage->sender;
        stage->answer.call = FAKE_REG;
        stage->answer.number = 2 + (unsigned)(seed / 54 % 6); /* by the first, all would */
        stage->answer.status = REGX_NO_MEMORY;
    }
    return stage;
}

static void what_is_replaced_at_any_moment_is_sent_again(void **state)
{
    unsigned revoked = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        stage_t *stage = any_stage(seed);

        begin(stage);
        for (uint64_t n = 0; n < 1 + seed % 3; n++) {
            watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
            if (is_open(stage)) {
                choose_range(stage);
                make();
                tell();
            }
        }
        end(stage);
        revoked += stage->receiver->counters.grants_revoked > 0;
        finish(stage);
    }
    assert_in_range(revoked, SEEDS / 2, SEEDS);
}

/* As by hooks: by then its pages may have been granted anew, or written. */
static void what_is_told_before_it_is_replaced_is_sent_again(void **state)
{
    unsigned differed = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        stage_t *stage = any_stage(seed);

        begin(stage);
        watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
        if (is_open(stage)) {
            choose_range(stage);
            tell();
            watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
            if (is_open(stage)) {
                make();
            }
        }
        end(stage);
        differed += proofs_failed > 0;
        finish(stage);
    }
    assert_in_range(differed, SEEDS / 10, SEEDS); /* else this was not tried */
}

static void what_is_revoked_and_not_yet_begun_is_not_written(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin(stage);
    while (deliver(stage, 1)) { /* the first chunk is there, and more are granted */
    }
    fake_changed(stage->received.base, 1);
    regx_rndv_progress(stage->receiver->rndv);
    assert_int_equal(phase(stage), REGX_RECV_REVOKING);
    stage->again_percent = 100;
    for (unsigned i = 0; i < DEPTH; i++) {
        assert_true(deliver(stage, 0));
    }
    assert_non_null(send_of(stage)->held);
    assert_int_equal(send_of(stage)->count, DEPTH - 1);
    stage->again_percent = 0;
    assert_true(deliver(stage, 0)); /* REVOKE */
    assert_int_equal(stage->chunk_bytes, CHUNK);
    assert_int_equal(send_of(stage)->count, 0);
    end(stage);
    finish(stage);
}

static void a_change_elsewhere_revokes_nothing(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin(stage);
    for (unsigned i = 0; i < STEPS; i++) {
        fake_changed(stage->received.base - 4 * PAGE, PAGE);
        watched_step(stage);
    }
    end(stage);
    assert_int_equal(stage->receiver->counters.grants_revoked, 0);
    finish(stage);
}

/* READY, which a chunked message has anyway, and ARRIVED. */
static void a_transfer_without_changes_takes_one_message_more(void **state)
{
    unsigned to_sender[2], to_receiver[2];

    (void)state;
    for (unsigned revocable = 0; revocable < 2; revocable++) {
        fake_config_t config = pipeline;

        config.revocable = revocable == 1;
        stage_t *stage = open_stage(&config);
        begin(stage);
        run(stage);
        assert_read(stage);
        to_sender[revocable] = stage->frames[0];
        to_receiver[revocable] = stage->frames[1];
        close_recv(stage);
        finish(stage);
    }
    assert_int_equal(to_sender[1], to_sender[0] + 1);
    assert_int_equal(to_receiver[1], to_receiver[0]);
}

static void a_peer_that_goes_in_mid_revocation_leaves_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        stage_t *stage = any_stage(seed);

        begin(stage);
        watched_steps(stage, (unsigned)(chance_next(&stage->seed) % STEPS));
        choose_range(stage);
        make();
        tell();
        watched_steps(stage, (unsigned)(chance_next(&stage->seed) % 12));
        forget_both(stage);
        assert_int_equal(stage->dones, 1);
        close_recv(stage);
        finish(stage);
    }
}

/* ---- what ends it ---- */

static bool fell_back(stage_t *stage, const char *reason)
{
    return regx_tally_find(stage->receiver->counters.fallbacks, reason)->count == 1;
}

/* Goes on until the sender has answered: nothing is under way to the buffer. */
static void begin_revoked(stage_t *stage)
{
    begin(stage);
    while (stage->recv->landed == 0) {
        watched_step(stage);
    }
    replaced = (replaced_t){.start = stage->received.base, .length = LENGTH};
    make();
    tell();
    regx_rndv_progress(stage->receiver->rndv);
    while (phase(stage) == REGX_RECV_REVOKING) {
        deliver(stage, 0);
        end_put(stage, 0);
        regx_rndv_progress(stage->sender->rndv);
        deliver(stage, 1);
    }
    assert_int_equal(phase(stage), REGX_RECV_REVOKED);
    replaced.lost = false;
}

/* Also if the cache has not been asked to look since it was told. */
static void what_is_revoked_has_changed_in_use(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin_revoked(stage);
    assert_true(stage->receiver->counters.inuse_changes > 0);
    end(stage);
    finish(stage);
}

/* The pool is taken by others, one receive waits for it, and another is to end. */
static void it_ends_also_while_others_wait_for_the_pool(void **state)
{
    stage_t *stage = open_stage(&pipeline);
    guarded_t other = guarded_new(LENGTH);
    stage_t second = {.sender = stage->sender};

    (void)state;
    while (regx_pool_get(&stage->receiver->pool) != REGX_SLOT_NONE) {
    }
    second.recv =
        regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0], other.base, LENGTH);
    assert_non_null(second.recv);
    stage->receiver->longest = 1; /* of the second, nothing more can be registered */
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, LENGTH,
                        regx_rndv_recv_cts(second.recv), done, &second);
    run(stage);
    assert_true(stage->receiver->rndv->work.pool_exhausted);
    stage->receiver->longest = 0;
    begin(stage);
    watched_run(stage);
    assert_read(stage);
    assert_int_equal(second.dones, 0);
    close_recv(stage);
    for (uint32_t slot = 0; slot < stage->receiver->pool.slots; slot++) {
        regx_pool_put(&stage->receiver->pool, slot);
    }
    run(stage);
    assert_int_equal(second.dones, 1);
    assert_memory_equal(other.base, stage->sent.base, LENGTH);
    regx_rndv_recv_close(stage->receiver->rndv, second.recv);
    fake_changed(other.base, LENGTH);
    guarded_free(&other);
    finish(stage);
}

/* What was registered after a change had been told, and before it was made, is of the old pages,
 * even if what is in the new ones is right: the next message must not use it. */
static void what_was_registered_meanwhile_is_not_used_again(void **state)
{
    (void)state;
    for (unsigned changes = 0; changes < 2; changes++) {
        stage_t *stage = open_stage(&pipeline);

        begin(stage);
        while (stage->recv->landed == 0) {
            watched_step(stage);
        }
        replaced = (replaced_t){.start = stage->received.base, .length = LENGTH};
        if (changes > 0) {
            tell(); /* and made behind our back, with what had been sent */
        }
        end(stage);
        assert_int_equal(stage->receiver->counters.grants_revoked > 0, changes > 0);
        fake_settle(stage->receiver);
        assert_int_equal(stage->receiver->open_windows > 0, changes == 0);
        finish(stage);
    }
}

/* Until it has ended. As if each look were an hour after the last. */
static void lose_patience(stage_t *stage)
{
    for (unsigned i = 0; i < 100000 && stage->dones == 0; i++) {
        stage->recv->revoke.wait.since -= INT64_C(3600) * 1000000000;
        stage->recv->revoke.wait.next = 0;
        some_steps(stage, 1);
    }
}

static regx_status_t nothing_is_registered(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    (void)fake, (void)put;
    return call == FAKE_REG ? REGX_DENIED : REGX_OK;
}

/* Its last page; the first one has arrived. */
static uint8_t *last_page(const stage_t *stage)
{
    const uintptr_t last = (uintptr_t)stage->received.base + LENGTH - PAGE;

    return (uint8_t *)(last & ~(uintptr_t)(PAGE - 1));
}

static void memory_that_cannot_be_written_is_given_up(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin_revoked(stage);
    assert_int_equal(mprotect(last_page(stage), PAGE, PROT_NONE), 0);
    stage->receiver->rule = nothing_is_registered;
    run(stage);
    assert_int_equal(stage->dones, 0);
    for (unsigned i = 0; i < 1000; i++) {
        some_steps(stage, 1);
    }
    assert_in_range(stage->receiver->counters.grants_revoked, 1, 3);
    lose_patience(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_true(fell_back(stage, "grant=synchronous: the memory did not come back"));
    assert_in_range(stage->receiver->counters.grants_revoked, 1, 4);
    assert_memory_equal(stage->received.base, stage->sent.base,
                        (size_t)(last_page(stage) - stage->received.base));
    assert_int_equal(mprotect(last_page(stage), PAGE, PROT_READ | PROT_WRITE), 0);
    close_recv(stage);
    finish(stage);
}

static void unmap_last_page(const stage_t *stage)
{
    assert_int_equal(munmap(last_page(stage), PAGE), 0);
}

static void map_last_page(const stage_t *stage)
{
    assert_ptr_equal(mmap(last_page(stage), PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     last_page(stage));
}

/* As the notifier: what was not watched until now counts as changed. */
static bool unwatched;

static regx_status_t watch_anew(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                                uint64_t *since)
{
    if (unwatched) {
        regx_inval_log_write(monitor->log, start, end);
    }
    unwatched = false;
    *since = atomic_load(&monitor->log->head);
    return REGX_OK;
}

static void memory_that_comes_back_is_granted_again(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin_revoked(stage);
    unmap_last_page(stage);
    fake_monitor.subscribe = watch_anew;
    unwatched = true;
    const uint64_t written = stage->chunk_bytes;
    run(stage);
    assert_int_equal(phase(stage), REGX_RECV_REVOKED);
    assert_int_equal(stage->chunk_bytes, written);
    map_last_page(stage);
    stage->recv->revoke.wait.next = 0;
    end(stage);
    fake_monitor.subscribe = NULL;
    assert_false(unwatched);
    assert_int_equal(stage->receiver->counters.grants_revoked, 1);
    finish(stage);
}

static void memory_that_does_not_come_back_is_given_up(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin_revoked(stage);
    unmap_last_page(stage);
    lose_patience(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_true(fell_back(stage, "grant=synchronous: the memory did not come back"));
    assert_memory_equal(stage->received.base, stage->sent.base,
                        (size_t)(last_page(stage) - stage->received.base));
    map_last_page(stage);
    close_recv(stage);
    finish(stage);
}

/* What a slot held is copied to where the buffer was, before the change is looked at. */
static void a_slot_for_memory_that_is_gone_does_no_harm(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin(stage);
    stage->receiver->longest = 1; /* all but the first chunk goes by slots */
    while (stage->recv->slots_out == 0 || stage->recv->granted < LENGTH) {
        watched_step(stage);
    }
    while (deliver(stage, 0)) {
    }
    unmap_last_page(stage);
    fake_changed(last_page(stage), PAGE);
    for (unsigned i = 0; i < 100 && phase(stage) == REGX_RECV_STARTED; i++) {
        deliver(stage, 1);
    }
    map_last_page(stage);
    stage->receiver->longest = 0;
    end(stage);
    finish(stage);
}

static regx_status_t nothing_is_told(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                                     uint64_t *since)
{
    (void)monitor, (void)start, (void)end, (void)since;
    return REGX_DENIED;
}

static void memory_of_which_nothing_is_told_is_written_by_slots(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin_revoked(stage);
    const uint64_t written = stage->chunk_bytes;
    fake_monitor.subscribe = nothing_is_told;
    lose_patience(stage);
    fake_monitor.subscribe = NULL;
    assert_true(fell_back(stage, "grant=synchronous: changes of the new memory are not told"));
    assert_int_equal(stage->chunk_bytes, written);
    end(stage);
    finish(stage);
}

static bool never_certain(regx_monitor_t *monitor, uintptr_t start, uintptr_t end)
{
    (void)monitor, (void)start, (void)end;
    return false;
}

static void a_monitor_that_is_never_certain_is_given_up(void **state)
{
    (void)state;
    for (unsigned revoked = 0; revoked < 2; revoked++) {
        stage_t *stage = open_stage(&pipeline);

        revoked ? begin_revoked(stage) : begin(stage);
        fake_monitor.valid = never_certain;
        run(stage);
        assert_int_equal(stage->dones, 0);
        lose_patience(stage);
        fake_monitor.valid = NULL;
        assert_true(fell_back(stage, "grant=synchronous: nobody can tell of changes any more"));
        assert_int_equal(stage->receiver->counters.grants_revoked, 2 * revoked);
        end(stage);
        finish(stage);
    }
}

/* Its pages have been replaced behind our back each time that it is to be compared. */
static void spoil(fake_t *fake, const void *from, size_t length, char *written)
{
    const stage_t *stage = fake->context;

    (void)from;
    if (written == (char *)stage->received.base && length > 0) {
        *written = (char)~*written;
    }
}

static void a_buffer_that_keeps_changing_is_given_up(void **state)
{
    (void)state;
    for (unsigned told = 0; told < 2; told++) {
        stage_t *stage = open_stage(&pipeline);

        begin_revoked(stage);
        stage->sender->corrupt = told ? NULL : spoil;
        for (unsigned i = 0; i < 100000 && !stage->recv->revoke.over; i++) {
            if (told) {
                fake_changed(stage->received.base, 1);
            }
            watched_step(stage);
        }
        end(stage); /* by slots */
        assert_true(fell_back(stage, "grant=synchronous: the buffer kept changing"));
        assert_in_range(stage->receiver->counters.grants_revoked, 1, 110);
        assert_in_range(proofs_failed, told ? 0 : 100, told ? 0 : 101);
        finish(stage);
    }
}

/* ---- what a peer may say ---- */

static void say(fake_t *to, uint64_t from, regx_control_t control)
{
    uint8_t bytes[REGX_CONTROL_MAX];

    fake_arrive(to, from, bytes, regx_control_pack(&control, bytes));
}

static void an_answer_to_no_revocation_is_refused(void **state)
{
    stage_t *stage = open_stage(&pipeline);
    regx_control_t revoked = {.type = REGX_CONTROL_REVOKED};

    (void)state;
    begin(stage);
    watched_steps(stage, 20);
    revoked.to = stage->recv->handle;
    revoked.from = stage->recv->sender;
    for (uint64_t offset = 0; offset <= LENGTH; offset += CHUNK) {
        revoked.offset = offset;
        say(stage->receiver, 0, revoked);
    }
    assert_int_equal(malformed(stage), LENGTH / CHUNK + 1);
    watched_run(stage);
    assert_read(stage);
    say(stage->receiver, 0, revoked); /* nor is there anything to prove */
    assert_int_equal(malformed(stage), LENGTH / CHUNK + 2);
    close_recv(stage);
    finish(stage);
}

static void a_send_that_may_not_be_revoked_is_not(void **state)
{
    fake_config_t config = pipeline;

    (void)state;
    config.revocable = false;
    stage_t *stage = open_stage(&config);
    stage->late_percent = 100;
    begin(stage);
    assert_non_null(send_of(stage));
    say(stage->sender, 1,
        (regx_control_t){.type = REGX_CONTROL_REVOKE, .to = send_of(stage)->handle});
    say(stage->sender, 1,
        (regx_control_t){.type = REGX_CONTROL_ARRIVED, .to = send_of(stage)->handle});
    assert_int_equal(malformed(stage), 2);
    run(stage);
    assert_read(stage);
    close_recv(stage);
    finish(stage);
}

static void a_revocation_to_what_was_never_sent_ends_the_send(void **state)
{
    stage_t *stage = open_stage(&pipeline);

    (void)state;
    begin(stage);
    say(stage->sender, 1,
        (regx_control_t){
            .type = REGX_CONTROL_REVOKE, .to = send_of(stage)->handle, .offset = LENGTH});
    assert_int_equal(malformed(stage), 1); /* beyond the end */
    assert_int_equal(stage->dones, 0);
    say(stage->sender, 1,
        (regx_control_t){
            .type = REGX_CONTROL_REVOKE, .to = send_of(stage)->handle, .offset = LENGTH - 1});
    assert_int_equal(malformed(stage), 2);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    close_recv(stage);
    finish(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_replaced_at_any_moment_is_sent_again),
        cmocka_unit_test(what_is_told_before_it_is_replaced_is_sent_again),
        cmocka_unit_test(what_is_revoked_and_not_yet_begun_is_not_written),
        cmocka_unit_test(a_change_elsewhere_revokes_nothing),
        cmocka_unit_test(a_transfer_without_changes_takes_one_message_more),
        cmocka_unit_test(a_peer_that_goes_in_mid_revocation_leaves_nothing),
        cmocka_unit_test(what_is_revoked_has_changed_in_use),
        cmocka_unit_test(it_ends_also_while_others_wait_for_the_pool),
        cmocka_unit_test(what_was_registered_meanwhile_is_not_used_again),
        cmocka_unit_test(memory_that_cannot_be_written_is_given_up),
        cmocka_unit_test(memory_that_comes_back_is_granted_again),
        cmocka_unit_test(memory_that_does_not_come_back_is_given_up),
        cmocka_unit_test(a_slot_for_memory_that_is_gone_does_no_harm),
        cmocka_unit_test(memory_of_which_nothing_is_told_is_written_by_slots),
        cmocka_unit_test(a_monitor_that_is_never_certain_is_given_up),
        cmocka_unit_test(a_buffer_that_keeps_changing_is_given_up),
        cmocka_unit_test(an_answer_to_no_revocation_is_refused),
        cmocka_unit_test(a_send_that_may_not_be_revoked_is_not),
        cmocka_unit_test(a_revocation_to_what_was_never_sent_ends_the_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
