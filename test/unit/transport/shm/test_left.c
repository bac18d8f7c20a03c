/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A wait that is left: a signal's handler jumps out of the transport behind an instruction. One test is one
 * piece of work, which is left behind each of its instructions, one process for each. What the left process
 * receives may never end, but never with other bytes than were sent; what its peer receives ends, and right.
 * A run tries every 211th, others each time; with REGX_LEFT_STRIDE=1 all, which takes some minutes, but where
 * the processor copies. A process that ends behind an instruction is the same.
 */
#include "../../process.h"
#include "shm_parties.h"

#include <setjmp.h>
#include <signal.h>
#include <x86intrin.h>

enum {
    TRAP = 0x100,
    LENGTH = 2 * PIECE + 100,
    STAGED = 70000,
    SHORT = 9000,
    STRIDE = 211,
    PATIENCE = 3000,
    REST = 30,
    NOT_LEFT = 100,
    WRONG,
    NO_END
};

static sigjmp_buf place;
static long steps, last;

static void trapped(int signal)
{
    (void)signal;
    if (++steps == last) {
        siglongjmp(place, 1);
    }
}

/* Whether that was left behind its instruction of that number. */
static bool left(void (*act)(void), long number)
{
    const struct sigaction action = {.sa_handler = trapped};

    last = number;
    sigaction(SIGTRAP, &action, NULL);
    if (sigsetjmp(place, 1) != 0) {
        return true;
    }
    __writeeflags(__readeflags() | TRAP);
    act();
    __writeeflags(__readeflags() & ~(unsigned long long)TRAP);
    return false;
}

typedef struct trial {
    void (*before)(void); /* goes on as ever */
    void (*act)(void);    /* is left */
    const op_t *of_peer;  /* must end; NULL: none need */
    long rarely; /* it has so many times more instructions, as it copies by the processor */
} trial_t;

static op_t op, back;
static uint8_t *to, *other_source, *other_to;

static bool is_wrong(const op_t *get)
{
    const uint8_t *from = get == &op ? source : other_source;

    return get->ended > 1 || (get->ended == 1 && get->status == REGX_OK &&
                              memcmp(get->get.local, from, get->get.length) != 0);
}

/* In a process of its own: NOT_LEFT, WRONG, NO_END, or 0. */
static int outcome(const trial_t *trial, long number)
{
    signal(SIGSEGV, SIG_DFL); /* the test's own says so, and goes on with the next test */
    shm_parties_open(false);
    trial->before();
    if (!left(trial->act, number)) {
        return NOT_LEFT;
    }
    for (unsigned i = 0; i < PATIENCE && trial->of_peer != NULL && trial->of_peer->ended == 0;
         i++) {
        parties_progress();
    }
    for (unsigned i = 0; i < REST; i++) {
        parties_progress();
    }
    if (is_wrong(&op) || is_wrong(&back)) {
        return WRONG;
    }
    return trial->of_peer != NULL && trial->of_peer->ended == 0 ? NO_END : 0;
}

static void try_everywhere(const trial_t *trial)
{
    const char *set = getenv("REGX_LEFT_STRIDE");
    const long stride = (set != NULL ? atol(set) : STRIDE) * trial->rarely;
    long number = 1 + getpid() % stride;
    int status = 0, found = 0;

    source = malloc(LENGTH);
    other_source = malloc(SHORT);
    to = calloc(1, LENGTH);
    other_to = calloc(1, SHORT);
    unit_fill(source, LENGTH, 1, 0);
    unit_fill(other_source, SHORT, 2, 0);
    for (; found != NOT_LEFT; number += stride) {
        const pid_t child = fork();

        if (child == 0) {
            _exit(outcome(trial, number));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        found = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (found != 0 && found != NOT_LEFT) {
            fail_msg("left at %ld: %s", number,
                     found == WRONG    ? "wrong bytes"
                     : found == NO_END ? "no end"
                                       : "it died");
        }
    }
    assert_true(number > 100);
    free(source);
    free(other_source);
    free(to);
    free(other_to);
}

/* ---- the kernel copies ---- */

static regx_mr_t exposed, other_exposed;

/* A get of two's zone by one, to be started. */
static void one_may_get(void)
{
    regx_shm_expose(two.transport, source, LENGTH, &exposed.key);
    op_get(&op, to, LENGTH, NULL, &exposed, 0);
}

/* The other way, one that is begun. */
static void two_has_begun(void)
{
    regx_shm_expose(one.transport, other_source, SHORT, &other_exposed.key);
    op_get(&back, other_to, SHORT, NULL, &other_exposed, 0);
    op_start_get(&two, &back);
    step(&two);
    one_may_get();
}

static void one_gets(void)
{
    if (regx_shm_get(one.conn, &op.get) != REGX_PENDING) {
        _exit(WRONG);
    }
    while (op.ended == 0) {
        step(&one);
    }
}

UNIT_TEST(a_get_is_left)
{
    try_everywhere(&(trial_t){two_has_begun, one_gets, &back, 1});
}

/* ---- both copy ---- */

static void one_has_asked(void)
{
    two_has_begun();
    op.get.assisted = true;
    op_start_get(&one, &op);
    step(&two);
}

static void one_goes_on(void)
{
    for (unsigned i = 0; i < 8; i++) {
        step(&one);
    }
}

static void two_helps(void)
{
    for (unsigned i = 0; i < 8; i++) {
        step(&two);
    }
}

static void one_has_begun(void)
{
    one_may_get();
    op.get.assisted = true;
    op_start_get(&one, &op);
    step(&one);
}

UNIT_TEST(an_assisted_get_is_left_by_who_gets)
{
    try_everywhere(&(trial_t){one_has_asked, one_goes_on, &back, 1});
}

UNIT_TEST(an_assisted_get_is_left_by_who_helps)
{
    try_everywhere(&(trial_t){one_has_begun, two_helps, &op, 1});
}

/* ---- by staging buffers ---- */

static void two_offers(void)
{
    regx_shm_expose(two.transport, source, STAGED, &exposed.key);
    if (!regx_shm_stage(two.conn, source, STAGED, &exposed.key)) {
        _exit(WRONG);
    }
}

static void one_takes(void)
{
    if (regx_shm_get(one.conn, &op.get) != REGX_PENDING) {
        _exit(WRONG);
    }
    for (unsigned i = 0; i < 4; i++) {
        step(&one);
    }
}

static void two_has_offered(void)
{
    two_has_begun();
    two_offers();
    op_get(&op, to, STAGED, NULL, &exposed, 0);
    op.get.staged = true;
}

static void one_has_taken(void)
{
    two_has_offered();
    one_takes();
}

UNIT_TEST(a_staged_message_is_left_by_its_receiver)
{
    try_everywhere(&(trial_t){two_has_offered, one_takes, &back, 1});
}

UNIT_TEST(a_staged_message_is_left_by_its_sender_who_offers_it)
{
    try_everywhere(&(trial_t){one_may_get, two_offers, NULL, 1});
}

UNIT_TEST(a_staged_message_is_left_by_its_sender)
{
    try_everywhere(&(trial_t){one_has_taken, two_helps, &op, 20});
}

/* ---- a process ends while it asks to be connected ---- */

static regx_connect_request_t request;

static void ask(void)
{
    regx_connect_queue_request(shm_of(&one)->queue, &request);
}

/* Whether it came so far. */
static bool die_while_asking(long number)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        request.address.life.pid = getpid();
        _exit(left(ask, number) ? 0 : NOT_LEFT);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 0;
}

/* More deaths than there are entries: whoever comes later finds one. (Its mailbox is not there, which is seen
 * here.) */
SHM_TEST(who_ends_while_it_asks_leaves_every_entry_to_others)
{
    long number = 1;
    unsigned claimed = 0;

    request = (regx_connect_request_t){.sender = THREE,
                                       .address = shm_of(&two)->address,
                                       .mailboxes = conn_of(&two)->box->segment,
                                       .mailbox_ring = conn_of(&two)->box->ring};
    request.mailboxes.id = INT32_MAX;
    for (; die_while_asking(number); number++) {
        for (int i = 0; i < REGX_CONNECT_QUEUE_ENTRIES; i++) {
            claimed += shm_of(&one)->queue->entries[i].state > REGX_REQUEST_READY;
        }
        const unsigned broken = one.broken;
        assert_int_equal(regx_connect_queue_request(shm_of(&one)->queue, &request), REGX_OK);
        assert_true(step(&one) > 0 && one.broken > broken);
    }
    assert_true(claimed > REGX_CONNECT_QUEUE_ENTRIES);
    regx_conn_t *const first = two.conn;
    party_connect(&two, &one);
    party_send(&two, 1, 1, 8);
    parties_settle();
    tested->ops->disconnect(first);
}
