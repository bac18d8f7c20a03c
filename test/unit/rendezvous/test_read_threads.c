/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path read where one thread comes between two steps of another: held by wrappers around what
 * is called with no lock held.
 */
#include "read_stage.h"

#include <sched.h>

regx_status_t __real_regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                         unsigned access, regx_region_t *region);
regx_status_t __wrap_regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                         unsigned access, regx_region_t *region);
void __real_regx_region_release(regx_registry_t *registry, regx_region_t *region);
void __wrap_regx_region_release(regx_registry_t *registry, regx_region_t *region);
void __real_regx_registry_progress(regx_registry_t *registry);
void __wrap_regx_registry_progress(regx_registry_t *registry);

static stage_t *stage;

/* The thread that opens the send waits before its second registration for the other one. */
static _Thread_local bool is_opener;
static unsigned acquisitions;
static _Atomic bool opener_waits, opener_may, opener_through;

/* What happens within the next release, or progress. */
static void (*within_release)(void);
static void (*within_progress)(void);

static void happen(void (**what)(void))
{
    void (*const now)(void) = *what;

    *what = NULL;
    if (now != NULL) {
        now();
    }
}

regx_status_t __wrap_regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                         unsigned access, regx_region_t *region)
{
    if (is_opener && ++acquisitions == 2) {
        atomic_store(&opener_waits, true);
        while (!atomic_load(&opener_may)) {
            sched_yield();
        }
    }
    return __real_regx_region_acquire(registry, base, length, access, region);
}

void __wrap_regx_region_release(regx_registry_t *registry, regx_region_t *region)
{
    __real_regx_region_release(registry, region);
    happen(&within_release);
}

void __wrap_regx_registry_progress(regx_registry_t *registry)
{
    happen(&within_progress);
    __real_regx_registry_progress(registry);
}

static void *open_send(void *unused)
{
    (void)unused;
    is_opener = true;
    regx_rndv_send_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, LENGTH,
                        fake_cts(stage->recv), done, stage);
    atomic_store(&opener_through, true);
    return NULL;
}

static void let_opener_through(void)
{
    atomic_store(&opener_may, true);
    while (!atomic_load(&opener_through)) {
        sched_yield();
    }
}

/* What the receive could not get is given up, and not what another thread advertises meanwhile. */
static void an_unread_ats_ends_its_own_chunk_only(void **state)
{
    fake_config_t config = standard;
    pthread_t opener;

    (void)state;
    config.threads = true;
    stage = stage_open_both(&config, &config);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base, LENGTH);
    assert_non_null(stage->recv);
    memset(stage->received.base, 0x11, stage->received.length);
    assert_int_equal(pthread_create(&opener, NULL, open_send, NULL), 0);
    while (!atomic_load(&opener_waits)) {
        sched_yield();
    }
    assert_true(deliver(stage, 1));
    assert_true(fake_got(stage->receiver, 0, 0, REGX_FAILED));
    within_progress = let_opener_through;
    assert_true(deliver(stage, 0));
    assert_null(within_progress);
    pthread_join(opener, NULL);
    run(stage);
    assert_read(stage);
    assert_int_equal(malformed(stage), 0);
    close_recv(stage);
    stage_close(stage);
}

/* The second of two chunks is registered, and the wire has no room for its get. */
static void begin_with_one_get_under_way(void)
{
    stage->answer.at = stage->receiver;
    stage->answer.call = FAKE_GET;
    stage->answer.number = 2;
    stage->answer.status = REGX_AGAIN;
    begin_of(stage, 2 * PAGE);
    assert_true(deliver(stage, 1));
    assert_true(deliver(stage, 1));
    assert_int_equal(stage->receiver->conns[0].get_count, 1);
}

static void end_a_get(void)
{
    assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
}

/* A get that ends while its receive is closed, by a peer that lies, moves nothing on. */
static void a_get_that_ends_during_close_goes_on_with_nothing(void **state)
{
    (void)state;
    stage = stage_open();
    begin_with_one_get_under_way();
    within_release = end_a_get;
    close_recv(stage);
    assert_null(within_release);
    assert_int_equal(stage->receiver->conns[0].get_count, 0);
    assert_int_equal(stage->receiver->open_windows, 0);
    assert_null(stage->receiver->conns[0].head); /* the send is told nothing */
    regx_rndv_progress(stage->receiver->rndv);
    assert_int_equal(stage->receiver->conns[0].get_count, 0);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    stage_close(stage);
}

static pthread_t ender;
static _Atomic bool ender_waits, ender_may;

static void wait_within(void)
{
    atomic_store(&ender_waits, true);
    while (!atomic_load(&ender_may)) {
        sched_yield();
    }
}

static void *end_get(void *got)
{
    within_release = wait_within;
    *(bool *)got = fake_got(stage->receiver, 0, 0, REGX_OK);
    return NULL;
}

static bool got;

static void let_a_get_begin_to_end(void)
{
    pthread_create(&ender, NULL, end_get, &got);
    while (!atomic_load(&ender_waits)) {
        sched_yield();
    }
}

/* What a get that is ending writes to is nobody else's receive by then. */
static void a_closed_record_is_not_used_again_before_its_get_has_ended(void **state)
{
    fake_config_t config = standard;

    (void)state;
    config.threads = true;
    stage = stage_open_both(&config, &config);
    begin_with_one_get_under_way();
    const regx_rndv_recv_t *closed = stage->recv;
    within_release = let_a_get_begin_to_end;
    close_recv(stage);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base, 2 * PAGE);
    assert_ptr_not_equal(stage->recv, closed);
    atomic_store(&ender_may, true);
    pthread_join(ender, NULL);
    assert_true(got);
    close_recv(stage);
    stage->recv = regx_rndv_recv_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                      stage->received.base, 2 * PAGE);
    close_recv(stage);
    assert_int_equal(stage->receiver->open_windows, 0);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    stage_close(stage);
}

static void *take_rkey(void *taken)
{
    is_opener = true;
    acquisitions = 1; /* so that the next one waits */
    *(bool *)taken = deliver(stage, 1);
    return NULL;
}

static void *close_it(void *unused)
{
    (void)unused;
    close_recv(stage);
    return NULL;
}

static bool somebody_waits_to_close(void)
{
    regx_rndv_t *rndv = stage->receiver->rndv;

    regx_lock(&rndv->lock);
    const bool waits = rndv->closers == 1;
    regx_unlock(&rndv->lock);
    return waits;
}

/* The receive is closed while another thread registers a chunk of it: that is ended first, and
 * nothing follows it. */
static void close_waits_for_a_piece_of_work_and_no_other_begins(void **state)
{
    fake_config_t config = standard;
    pthread_t taker, closer;
    bool taken = false;

    (void)state;
    config.threads = true;
    stage = stage_open_both(&config, &config);
    begin_of(stage, 2 * PAGE);
    atomic_store(&opener_waits, false);
    atomic_store(&opener_may, false);
    assert_int_equal(pthread_create(&taker, NULL, take_rkey, &taken), 0);
    while (!atomic_load(&opener_waits)) {
        sched_yield();
    }
    assert_int_equal(pthread_create(&closer, NULL, close_it, NULL), 0);
    while (!somebody_waits_to_close()) {
        sched_yield();
    }
    atomic_store(&opener_may, true);
    pthread_join(taker, NULL);
    pthread_join(closer, NULL);
    assert_true(taken);
    assert_int_equal(stage->receiver->conns[0].get_count, 0);
    assert_int_equal(stage->receiver->open_windows, 0);
    assert_null(stage->receiver->conns[0].head); /* the sender is told nothing */
    forget_both(stage);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unread_ats_ends_its_own_chunk_only),
        cmocka_unit_test(a_get_that_ends_during_close_goes_on_with_nothing),
        cmocka_unit_test(a_closed_record_is_not_used_again_before_its_get_has_ended),
        cmocka_unit_test(close_waits_for_a_piece_of_work_and_no_other_begins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
