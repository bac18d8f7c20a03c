/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Grants that are revoked, or go back (optimistic), and cannot be given anew, or not for long:
 * memory does not come back, keeps changing, or the monitor cannot say whether it did. The rest
 * goes by slots, or is given up, and the report says why.
 */
#include "revoke_stage.h"

#include <sys/mman.h>

/* By revoking, or (optimistic) by granting anew. */
static fake_config_t configuration;

static uint64_t times(const stage_t *stage)
{
    const regx_counters_t *counters = &stage->receiver->counters;

    assert_int_equal(counters->grants_revoked > 0 && counters->grants_restarted > 0, false);
    return counters->grants_revoked + counters->grants_restarted;
}

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
    make_change();
    tell_change();
    regx_rndv_progress(stage->receiver->rndv);
    while (phase(stage) == REGX_RECV_REVOKE_DUE || phase(stage) == REGX_RECV_REVOKING) {
        deliver(stage, 0);
        end_put(stage, 0);
        regx_rndv_progress(stage->sender->rndv);
        deliver(stage, 1);
        if (configuration.optimistic) { /* nobody answers: it finds that all is acknowledged */
            regx_rndv_progress(stage->receiver->rndv);
        }
    }
    assert_int_equal(phase(stage), REGX_RECV_REVOKED);
    replaced.lost = false;
}

/* Also if the cache has not been asked to look since it was told. */
static void what_is_revoked_has_changed_in_use(void **state)
{
    stage_t *stage = revoke_open(&configuration);

    (void)state;
    begin_revoked(stage);
    assert_true(stage->receiver->counters.inuse_changes > 0);
    revoke_end(stage);
    revoke_close(stage);
}

/* The pool is taken by others, one receive waits for it, and another is to end. */
static void it_ends_also_while_others_wait_for_the_pool(void **state)
{
    stage_t *stage = revoke_open(&configuration);
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
                        fake_cts(second.recv), done, &second);
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
    revoke_close(stage);
}

/* Until it has ended. As if each look were an hour after the last. */
static void lose_patience(stage_t *stage)
{
    for (unsigned i = 0; i < 100000 && stage->dones == 0; i++) {
        stage->recv->revoke.wait.whole.since -= INT64_C(3600) * 1000000000;
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
    stage_t *stage = revoke_open(&configuration);

    (void)state;
    begin_revoked(stage);
    assert_int_equal(mprotect(last_page(stage), PAGE, PROT_NONE), 0);
    stage->receiver->rule = nothing_is_registered;
    run(stage);
    assert_int_equal(stage->dones, 0);
    for (unsigned i = 0; i < 1000; i++) {
        some_steps(stage, 1);
    }
    assert_in_range(times(stage), 1, 3);
    lose_patience(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_true(fell_back(stage, "grant: the memory did not come back"));
    assert_in_range(times(stage), 1, 4);
    assert_memory_equal(stage->received.base, stage->sent.base,
                        (size_t)(last_page(stage) - stage->received.base));
    assert_int_equal(mprotect(last_page(stage), PAGE, PROT_READ | PROT_WRITE), 0);
    close_recv(stage);
    revoke_close(stage);
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
    stage_t *stage = revoke_open(&configuration);

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
    revoke_end(stage);
    fake_monitor.subscribe = NULL;
    assert_false(unwatched);
    assert_int_equal(times(stage), 1);
    revoke_close(stage);
}

static void memory_that_does_not_come_back_is_given_up(void **state)
{
    stage_t *stage = revoke_open(&configuration);

    (void)state;
    begin_revoked(stage);
    unmap_last_page(stage);
    lose_patience(stage);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_true(fell_back(stage, "grant: the memory did not come back"));
    assert_memory_equal(stage->received.base, stage->sent.base,
                        (size_t)(last_page(stage) - stage->received.base));
    map_last_page(stage);
    close_recv(stage);
    revoke_close(stage);
}

/* It is given up after so long as well if it changes from time to time meanwhile. */
static void memory_that_is_gone_and_changes_is_given_up(void **state)
{
    stage_t *stage = revoke_open(&configuration);

    (void)state;
    begin_revoked(stage);
    unmap_last_page(stage);
    for (unsigned i = 0; i < 10000 && stage->dones == 0; i++) {
        if (i % 10 == 0) {
            fake_changed(stage->received.base, 1);
        }
        stage->recv->revoke.wait.whole.since -= INT64_C(3600) * 1000000000;
        stage->recv->revoke.wait.next = 0;
        some_steps(stage, 1);
    }
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    map_last_page(stage);
    close_recv(stage);
    revoke_close(stage);
}

static regx_status_t nothing_is_told(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                                     uint64_t *since)
{
    (void)monitor, (void)start, (void)end, (void)since;
    return REGX_DENIED;
}

/* Likewise if it is there from time to time, but its changes are not reported then. */
static void memory_that_is_gone_or_unreported_by_turns_is_given_up(void **state)
{
    stage_t *stage = revoke_open(&configuration);

    (void)state;
    begin_revoked(stage);
    fake_monitor.subscribe = nothing_is_told;
    bool there = true;
    for (unsigned i = 0; i < 1000 && stage->dones == 0; i++) {
        if (i % 5 == 0) {
            there ? unmap_last_page(stage) : map_last_page(stage);
            there = !there;
        }
        stage->recv->revoke.wait.whole.since -= INT64_C(3600) * 1000000000;
        stage->recv->revoke.wait.next = 0;
        some_steps(stage, 1);
    }
    fake_monitor.subscribe = NULL;
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    if (!there) {
        map_last_page(stage);
    }
    close_recv(stage);
    revoke_close(stage);
}

/* What a slot held is copied to where the buffer was, before the change is looked at. */
static void a_slot_for_memory_that_is_gone_does_no_harm(void **state)
{
    stage_t *stage = revoke_open(&configuration);

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
    revoke_end(stage);
    revoke_close(stage);
}

static void memory_of_which_nothing_is_told_is_written_by_slots(void **state)
{
    stage_t *stage = revoke_open(&configuration);

    (void)state;
    begin_revoked(stage);
    const uint64_t written = stage->chunk_bytes;
    fake_monitor.subscribe = nothing_is_told;
    lose_patience(stage);
    fake_monitor.subscribe = NULL;
    assert_true(fell_back(stage, "grant: changes of the new memory are not reported"));
    assert_int_equal(stage->chunk_bytes, written);
    revoke_end(stage);
    revoke_close(stage);
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
        stage_t *stage = revoke_open(&configuration);

        revoked ? begin_revoked(stage) : begin(stage);
        fake_monitor.valid = never_certain;
        run(stage);
        assert_int_equal(stage->dones, 0);
        memset(stage->received.base, 0x77, LENGTH); /* it was replaced, and nobody knows */
        lose_patience(stage);
        fake_monitor.valid = NULL;
        assert_true(fell_back(stage, "grant: the monitor does not know what changed"));
        assert_int_equal(times(stage), 1 + revoked);
        revoke_end(stage);
        revoke_close(stage);
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
        stage_t *stage = revoke_open(&configuration);

        begin_revoked(stage);
        stage->sender->corrupt = told ? NULL : spoil;
        for (unsigned i = 0; i < 100000 && stage->recv->revoke.state == REGX_REVOKE_ON_CHANGE;
             i++) {
            if (told) {
                fake_changed(stage->received.base, 1);
            }
            watched_step(stage);
        }
        revoke_end(stage); /* by slots */
        assert_true(fell_back(stage, "grant: the buffer kept changing"));
        assert_in_range(times(stage), 1, 110);
        assert_in_range(proofs_failed, told ? 0 : 100, told ? 0 : 101);
        revoke_close(stage);
    }
}

static int by_revoking(void **state)
{
    (void)state;
    configuration = revoke_pipeline;
    return 0;
}

static int by_granting_anew(void **state)
{
    (void)state;
    configuration = revoke_pipeline;
    configuration.optimistic = true;
    return 0;
}

int main(void)
{
    enum { COUNT = 11 };
    const struct CMUnitTest tests[COUNT] = {
        cmocka_unit_test(what_is_revoked_has_changed_in_use),
        cmocka_unit_test(it_ends_also_while_others_wait_for_the_pool),
        cmocka_unit_test(memory_that_cannot_be_written_is_given_up),
        cmocka_unit_test(memory_that_comes_back_is_granted_again),
        cmocka_unit_test(memory_that_does_not_come_back_is_given_up),
        cmocka_unit_test(memory_that_is_gone_and_changes_is_given_up),
        cmocka_unit_test(memory_that_is_gone_or_unreported_by_turns_is_given_up),
        cmocka_unit_test(a_slot_for_memory_that_is_gone_does_no_harm),
        cmocka_unit_test(memory_of_which_nothing_is_told_is_written_by_slots),
        cmocka_unit_test(a_monitor_that_is_never_certain_is_given_up),
        cmocka_unit_test(a_buffer_that_keeps_changing_is_given_up),
    };

    struct CMUnitTest both[2 * COUNT];

    for (unsigned i = 0; i < 2 * COUNT; i++) {
        both[i] = tests[i % COUNT];
        both[i].setup_func = i < COUNT ? by_revoking : by_granting_anew;
    }
    return cmocka_run_group_tests(both, NULL, NULL);
}
