/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The path read, between two processes in memory: what is exposed, got and told, and what becomes
 * of it when something is refused, fails, is wrong, or ends early.
 */
#include "fake.h"

#include "rendezvous/engine.h"

enum { PAGE = 4096, LENGTH = 6 * PAGE + 7, CHUNKS = 7, DEPTH = 3, SLOT = 1024 };

typedef struct stage {
    fake_t *sender;   /* process 0 */
    fake_t *receiver; /* process 1 */
    fake_t *stranger; /* process 2, without an engine */
    guarded_t sent, received;
    regx_landing_t *landing; /* NULL: closed */
    unsigned dones;
    regx_status_t status;
    unsigned frames[2]; /* delivered to the process of that number */
    /* What the transport answers. */
    struct {
        fake_t *at;
        fake_call_t call;
        unsigned number; /* of the call, 0: none */
        regx_status_t status;
    } answer;
    unsigned again_percent;
    uint64_t seed;
} stage_t;

static const fake_config_t standard = {
    .slots = 64, .slot_size = SLOT, .strategy = "read", .chunk_size = PAGE, .chunk_depth = DEPTH};

static regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    stage_t *stage = fake->context;

    (void)put;
    if (fake == stage->answer.at && call == stage->answer.call &&
        fake->calls[call] == stage->answer.number) {
        return stage->answer.status;
    }
    return call != FAKE_REG && unit_random(&stage->seed) % 100 < stage->again_percent ? REGX_AGAIN
                                                                                      : REGX_OK;
}

static void done(void *context, regx_status_t status)
{
    stage_t *stage = context;

    stage->dones++;
    stage->status = status;
}

static stage_t *stage_open_both(const fake_config_t *sender, const fake_config_t *receiver)
{
    const fake_config_t played = {.slots = 2, .slot_size = 64};
    stage_t *stage = calloc(1, sizeof(*stage));

    assert_non_null(stage);
    stage->sender = fake_open(0, sender);
    stage->receiver = fake_open(1, receiver);
    stage->stranger = fake_open(2, &played);
    fake_connect(stage->sender, stage->receiver, false);
    fake_connect(stage->receiver, stage->sender, false);
    fake_connect(stage->receiver, stage->stranger, false);
    fake_connect(stage->sender, stage->stranger, false);
    stage->sender->context = stage->receiver->context = stage;
    stage->sender->rule = stage->receiver->rule = rule;
    stage->sent = guarded_new(LENGTH);
    stage->received = guarded_new(LENGTH);
    guarded_fill(&stage->sent, 1);
    return stage;
}

static stage_t *stage_open(void)
{
    return stage_open_both(&standard, &standard);
}

static void begin_of(stage_t *stage, size_t length)
{
    memset(stage->received.base, 0x11, stage->received.length);
    stage->landing = regx_landing_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                       stage->received.base, length);
    assert_non_null(stage->landing);
    regx_source_open(stage->sender->rndv, &stage->sender->peers[1], stage->sent.base, length,
                     regx_landing_cts(stage->landing), done, stage);
}

static void begin(stage_t *stage)
{
    begin_of(stage, LENGTH);
}

static void end(stage_t *stage)
{
    regx_landing_close(stage->receiver->rndv, stage->landing);
    stage->landing = NULL;
}

static void stage_close(stage_t *stage)
{
    fake_t *const fakes[] = {stage->sender, stage->receiver, stage->stranger};

    for (int i = 0; i < 2; i++) {
        fake_settle(fakes[i]);
        fake_assert_idle(fakes[i]);
    }
    for (int i = 0; i < 3; i++) {
        fake_close(fakes[i]);
    }
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    free(stage);
}

static uint64_t malformed(const stage_t *stage)
{
    return stage->sender->counters.malformed + stage->receiver->counters.malformed;
}

/* Delivers the next frame to the process of that number. false: there is none. */
static bool deliver(stage_t *stage, unsigned to)
{
    fake_t *const fakes[] = {stage->sender, stage->receiver};
    const bool there = fake_receive(fakes[to], fakes[1 - to]);

    stage->frames[to] += there;
    return there;
}

/* Lets happen all that can, gets and messages in any order. */
static void run(stage_t *stage)
{
    for (unsigned idle = 0; idle < 300; idle++) {
        const unsigned what = (unsigned)(unit_random(&stage->seed) % 4);

        regx_rndv_progress(stage->sender->rndv);
        regx_rndv_progress(stage->receiver->rndv);
        if (what < 2 ? deliver(stage, what) : fake_got(stage->receiver, 0, what - 2, REGX_OK)) {
            idle = 0;
        }
    }
}

/* Asserts that all has arrived, and was told once. */
static void assert_read_of(const stage_t *stage, size_t length)
{
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_OK);
    assert_memory_equal(stage->received.base, stage->sent.base, length);
    for (size_t i = length; i < stage->received.length; i++) {
        assert_int_equal(stage->received.base[i], 0x11);
    }
}

static void assert_read(const stage_t *stage)
{
    assert_read_of(stage, LENGTH);
}

/* What went by reading and by slots. */
static void assert_bytes(const stage_t *stage, uint64_t got)
{
    const regx_counters_t *counters = &stage->sender->counters;

    assert_int_equal(counters->bytes[REGX_PATH_read], got);
    assert_int_equal(counters->bytes[REGX_PATH_bounce], LENGTH - got);
    assert_int_equal(counters->messages[REGX_PATH_bounce], got == 0);
    assert_int_equal(counters->messages[REGX_PATH_read], got > 0);
    assert_int_equal(counters->messages[REGX_PATH_fallback], got < LENGTH);
    assert_int_equal(stage->receiver->counters.copied_out_bytes, LENGTH - got);
}

/* ---- what it does ---- */

/* One registration at each end, one get and two messages for each chunk, and nothing else. */
static void each_length_takes_its_chunks(void **state)
{
    stage_t *stage = stage_open();
    const regx_counters_t *sender = &stage->sender->counters;
    const regx_counters_t *receiver = &stage->receiver->counters;

    (void)state;
    for (size_t length = 1; length <= LENGTH; length += length % PAGE < 2 ? 1 : PAGE - 3) {
        const uint64_t chunks = (length + PAGE - 1) / PAGE;
        const uint64_t before = receiver->gets;

        memset(stage->frames, 0, sizeof(stage->frames));
        stage->dones = 0;
        begin_of(stage, length);
        run(stage);
        assert_read_of(stage, length);
        end(stage);
        assert_int_equal(receiver->gets - before, chunks);
        assert_int_equal(stage->frames[0], chunks);
        assert_int_equal(stage->frames[1], chunks);
        assert_int_equal(sender->registrations, receiver->gets);
        assert_int_equal(receiver->registrations, receiver->gets);
    }
    assert_int_equal(sender->puts + sender->gets + receiver->puts + receiver->grants, 0);
    assert_int_equal(sender->messages[REGX_PATH_fallback], 0);
    assert_int_equal(sender->largest_registration, PAGE);
    assert_int_equal(receiver->largest_registration, PAGE);
    assert_int_equal(malformed(stage), 0);
    stage_close(stage);
}

/* Both ends' limits hold, whichever is the smaller. */
static void no_more_at_once_than_both_allow(void **state)
{
    static const struct {
        size_t chunk;
        unsigned depth;
    } limits[] = {{PAGE, 1}, {PAGE, 4}, {3 * PAGE, 2}, {16 * PAGE, 64}};

    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        fake_config_t sender = standard, receiver = standard;

        sender.chunk_size = limits[i / 4].chunk;
        sender.chunk_depth = limits[i / 4].depth;
        receiver.chunk_size = limits[i % 4].chunk;
        receiver.chunk_depth = limits[i % 4].depth;
        stage_t *stage = stage_open_both(&sender, &receiver);
        const unsigned depth =
            sender.chunk_depth < receiver.chunk_depth ? sender.chunk_depth : receiver.chunk_depth;
        const size_t chunk =
            sender.chunk_size < receiver.chunk_size ? sender.chunk_size : receiver.chunk_size;
        const size_t chunks = (LENGTH + chunk - 1) / chunk;
        const size_t most = chunks < depth ? chunks : depth;

        begin(stage);
        assert_int_equal(stage->sender->open_windows, most);
        while (deliver(stage, 1)) {
        }
        assert_int_equal(stage->receiver->open_windows, most);
        assert_int_equal(stage->receiver->conns[0].get_count, most);
        run(stage);
        assert_read(stage);
        end(stage);
        assert_int_equal(stage->sender->counters.chunks_high, most);
        assert_int_equal(stage->receiver->counters.chunks_high, most);
        assert_int_equal(stage->receiver->counters.gets, chunks);
        assert_int_equal(malformed(stage), 0);
        stage_close(stage);
    }
}

/* What is exposed stays so until it was got, whatever else ends before; then not a moment longer
 * than the message takes. */
static void the_end_waits_for_the_last_get(void **state)
{
    (void)state;
    for (unsigned last = 0; last < DEPTH; last++) {
        stage_t *stage = stage_open();

        begin_of(stage, DEPTH * PAGE);
        while (deliver(stage, 1)) {
        }
        for (unsigned i = 0; i < DEPTH - 1; i++) {
            assert_true(fake_got(stage->receiver, 0, last == 0 ? 1 : i < last ? 0 : 1, REGX_OK));
            assert_true(deliver(stage, 0));
            assert_int_equal(stage->sender->open_windows, DEPTH - 1 - i);
            assert_int_equal(stage->dones, 0);
        }
        assert_true(fake_got(stage->receiver, 0, 0, REGX_OK));
        assert_int_equal(stage->receiver->open_windows, 0);
        assert_int_equal(stage->dones, 0); /* it has not heard of it */
        assert_true(deliver(stage, 0));
        assert_int_equal(stage->sender->open_windows, 0);
        assert_read_of(stage, DEPTH * PAGE);
        end(stage);
        stage_close(stage);
    }
}

/* The registrations that serve a chunk may be of more, at either end. */
static void chunks_lie_within_larger_regions(void **state)
{
    (void)state;
    for (size_t outer = 1; outer <= PAGE; outer += outer < 3 ? 1 : 500) {
        fake_config_t config = standard;

        config.outer = outer;
        stage_t *stage = stage_open_both(&config, &config);

        begin(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, LENGTH);
        end(stage);
        stage_close(stage);
    }
}

/* With a cache at both ends the second time costs no registration, and a change of the memory costs
 * those of that end again. */
static void what_is_kept_serves_again(void **state)
{
    fake_config_t config = standard;

    (void)state;
    config.cache_bytes = REGX_UNLIMITED;
    stage_t *stage = stage_open_both(&config, &config);
    const regx_counters_t *sender = &stage->sender->counters;
    const regx_counters_t *receiver = &stage->receiver->counters;
    uint64_t sending = 0, receiving = 0;

    for (unsigned round = 0; round < 3; round++) {
        stage->dones = 0;
        begin(stage);
        run(stage);
        assert_read(stage);
        end(stage);
        if (round == 0) { /* a region is of whole pages, and may serve the last chunk too */
            sending = sender->registrations;
            receiving = receiver->registrations;
            assert_in_range(sending, CHUNKS - 1, CHUNKS);
            assert_in_range(receiving, CHUNKS - 1, CHUNKS);
        }
        assert_int_equal(sender->registrations, round < 2 ? sending : 2 * sending);
        assert_int_equal(receiver->registrations, receiving);
        if (round == 1) {
            fake_changed(stage->sent.base, LENGTH);
        }
    }
    guarded_free(&stage->sent);
    guarded_free(&stage->received);
    stage->sent = guarded_new(1);
    stage->received = guarded_new(1);
    stage_close(stage);
}

/* ---- refused, failed, no room ---- */

static void each_registration_may_be_refused(void **state)
{
    static const regx_status_t answers[] = {REGX_NO_MEMORY, REGX_DENIED};

    (void)state;
    for (unsigned a = 0; a < 4; a++) {
        for (unsigned number = 1; number <= CHUNKS; number++) {
            stage_t *stage = stage_open();
            fake_t *at = a / 2 == 0 ? stage->sender : stage->receiver;
            const uint64_t before = (number - 1) * PAGE;

            stage->answer.at = at;
            stage->answer.call = FAKE_REG;
            stage->answer.number = number;
            stage->answer.status = answers[a % 2];
            begin(stage);
            run(stage);
            assert_read(stage);
            if (at == stage->sender) { /* it stops at once */
                assert_bytes(stage, before);
                assert_int_equal(stage->receiver->counters.registrations, number - 1);
            } else { /* what was exposed before it heard of that is still got */
                assert_in_range(stage->sender->counters.bytes[REGX_PATH_read], before,
                                before + (DEPTH - 1) * PAGE);
                assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
            }
            assert_int_equal(at->counters.fallbacks[0].count, 1);
            assert_int_equal(at->counters.fallbacks[1].state, 0);
            assert_int_equal(malformed(stage), 0);
            end(stage);
            /* The next message is read again. */
            stage->dones = 0;
            begin_of(stage, PAGE);
            run(stage);
            assert_read_of(stage, PAGE);
            end(stage);
            assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
            stage_close(stage);
        }
    }
}

static void each_get_may_be_refused(void **state)
{
    static const regx_status_t answers[] = {REGX_DENIED, REGX_INVALID, REGX_NO_MEMORY, REGX_FAILED,
                                            REGX_AGAIN};

    (void)state;
    for (size_t a = 0; a < sizeof(answers) / sizeof(answers[0]); a++) {
        for (unsigned number = 1; number <= CHUNKS; number++) {
            stage_t *stage = stage_open();

            stage->answer.at = stage->receiver;
            stage->answer.call = FAKE_GET;
            stage->answer.number = number;
            stage->answer.status = answers[a];
            begin(stage);
            run(stage);
            assert_read(stage);
            if (answers[a] == REGX_AGAIN) {
                assert_bytes(stage, LENGTH);
            } else {
                assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
                assert_int_equal(stage->sender->counters.messages[REGX_PATH_fallback], 1);
            }
            assert_int_equal(malformed(stage), answers[a] == REGX_INVALID);
            end(stage);
            stage_close(stage);
        }
    }
}

/* They fail late: all bytes arrive all the same, also those that a get has written in part. */
static void each_get_may_fail(void **state)
{
    (void)state;
    for (unsigned mask = 1; mask < 128; mask++) {
        stage_t *stage = stage_open();
        unsigned ended = 0;

        begin(stage);
        for (unsigned idle = 0; idle < 100; idle++) {
            const unsigned first = stage->receiver->conns[0].get_count;

            if (first > 0) {
                const bool fails = (mask >> ended++ & 1) != 0;

                if (fails) {
                    memset(stage->receiver->conns[0].gets[0]->local, 0x77, 5);
                }
                fake_got(stage->receiver, 0, 0, fails ? REGX_FAILED : REGX_OK);
                idle = 0;
            }
            if (deliver(stage, 0) || deliver(stage, 1)) {
                idle = 0;
            }
            regx_rndv_progress(stage->receiver->rndv);
            regx_rndv_progress(stage->sender->rndv);
        }
        run(stage);
        assert_read(stage);
        assert_bytes(stage, stage->sender->counters.bytes[REGX_PATH_read]);
        assert_int_equal(stage->receiver->counters.bytes[REGX_PATH_read], 0);
        assert_int_equal(malformed(stage), 0);
        end(stage);
        stage_close(stage);
    }
}

static void each_send_may_find_no_room(void **state)
{
    (void)state;
    for (unsigned refused = 0; refused < 3; refused++) { /* none, at the sender, at the receiver */
        for (unsigned number = 1; number <= 2 * CHUNKS + 3; number++) {
            for (int at_sender = 0; at_sender < 2; at_sender++) {
                stage_t *stage = stage_open();

                stage->answer.at = at_sender ? stage->sender : stage->receiver;
                stage->answer.call = FAKE_SEND;
                stage->answer.number = number;
                stage->answer.status = REGX_AGAIN;
                begin(stage);
                if (refused > 0) { /* the third */
                    stage->answer.at = refused == 1 ? stage->sender : stage->receiver;
                    stage->answer.call = FAKE_REG;
                    stage->answer.number = DEPTH + number % 3;
                    stage->answer.status = REGX_NO_MEMORY;
                    stage->again_percent = 50;
                }
                run(stage);
                assert_read(stage);
                assert_int_equal(malformed(stage), 0);
                end(stage);
                stage_close(stage);
            }
        }
    }
    for (unsigned seed = 0; seed < 100; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = 80;
        begin(stage);
        run(stage);
        assert_read(stage);
        assert_bytes(stage, LENGTH);
        end(stage);
        stage_close(stage);
    }
}

/* ---- who goes away ---- */

/* Lets so many things happen. */
static void some_steps(stage_t *stage, unsigned steps)
{
    for (unsigned i = 0; i < steps; i++) {
        const unsigned what = (unsigned)(unit_random(&stage->seed) % 3);

        if (what < 2) {
            deliver(stage, what);
        } else {
            fake_got(stage->receiver, 0, 0, REGX_OK);
        }
        regx_rndv_progress(stage->sender->rndv);
        regx_rndv_progress(stage->receiver->rndv);
    }
}

static void drop_frames(fake_t *from, unsigned to)
{
    fake_conn_t *conn = &from->conns[to];

    while (conn->head != NULL) {
        fake_frame_t *frame = conn->head;

        conn->head = frame->next;
        free(frame);
    }
    conn->tail = &conn->head;
}

static void a_peer_may_be_forgotten_at_any_time(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 400; seed++) {
        stage_t *stage = stage_open();

        stage->seed = seed;
        stage->again_percent = seed % 5 * 20;
        begin(stage);
        some_steps(stage, seed % 23);
        const bool was_done = stage->dones == 1;
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[2]); /* another */
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, was_done ? REGX_OK : REGX_FAILED);
        assert_int_equal(stage->sender->open_windows, 0);
        regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
        drop_frames(stage->sender, 1);
        drop_frames(stage->receiver, 0);
        if (seed % 2 == 0) { /* the MPI may close before its gets have ended, or after */
            end(stage);
        }
        while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
        }
        regx_rndv_progress(stage->receiver->rndv);
        if (seed % 2 != 0) {
            end(stage);
        }
        assert_null(stage->receiver->conns[0].head);
        stage_close(stage);
    }
}

/* A connection that breaks under a message ends the source, whose memory nobody reads any more. */
static void each_send_may_be_unreachable(void **state)
{
    (void)state;
    for (unsigned number = 1; number <= CHUNKS; number++) {
        stage_t *stage = stage_open();

        stage->answer.at = stage->sender;
        stage->answer.call = FAKE_SEND;
        stage->answer.number = number;
        stage->answer.status = REGX_UNREACHABLE;
        begin(stage);
        for (unsigned i = 0; i < 100 && stage->dones == 0; i++) {
            some_steps(stage, 1);
        }
        assert_int_equal(stage->dones, 1);
        assert_int_equal(stage->status, REGX_FAILED);
        assert_int_equal(stage->sender->open_windows, 0);
        regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
        while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
        }
        drop_frames(stage->sender, 1);
        drop_frames(stage->receiver, 0);
        end(stage);
        stage_close(stage);
    }
}

/* Closed too early, by a peer that lies: the memory stays registered for the gets that are under
 * way, and no longer; the next landing is another. */
static void gets_outlive_their_landing(void **state)
{
    (void)state;
    for (unsigned ended = 0; ended < DEPTH; ended++) {
        stage_t *stage = stage_open();
        unsigned dones = 0;

        begin(stage);
        while (deliver(stage, 1)) {
        }
        for (unsigned i = 0; i < ended; i++) {
            fake_got(stage->receiver, 0, 0, REGX_OK);
        }
        end(stage);
        assert_int_equal(stage->receiver->open_windows, DEPTH - ended);
        regx_landing_t *next = regx_landing_open(stage->receiver->rndv, &stage->receiver->peers[0],
                                                 stage->received.base, LENGTH);
        while (stage->receiver->conns[0].get_count > 0) {
            fake_got(stage->receiver, 0, 0, dones++ % 2 == 0 ? REGX_OK : REGX_FAILED);
        }
        assert_int_equal(stage->receiver->open_windows, 0);
        regx_landing_close(stage->receiver->rndv, next);
        while (deliver(stage, 0)) {
        }
        regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
        while (deliver(stage, 1)) {
        }
        stage_close(stage);
    }
}

/* A slot that fails ends the source, but not while the landing may read what is exposed. */
static void a_failure_waits_for_what_is_exposed(void **state)
{
    (void)state;
    stage_t *stage = stage_open();

    /* The second chunk is left, which goes by slots while the third is still being got. */
    stage->answer.at = stage->receiver;
    stage->answer.call = FAKE_REG;
    stage->answer.number = 2;
    stage->answer.status = REGX_NO_MEMORY;
    begin(stage);
    while (deliver(stage, 1)) {
    }
    stage->answer.at = stage->sender;
    stage->answer.call = FAKE_PUT;
    stage->answer.number = 1;
    stage->answer.status = REGX_FAILED;
    while (deliver(stage, 0)) {
    }
    assert_int_equal(stage->sender->calls[FAKE_PUT], 1);
    assert_int_equal(stage->sender->open_windows, 2);
    assert_int_equal(stage->dones, 0);
    fake_got(stage->receiver, 0, 0, REGX_OK);
    deliver(stage, 0);
    assert_int_equal(stage->dones, 0);
    fake_got(stage->receiver, 0, 0, REGX_OK);
    deliver(stage, 0);
    assert_int_equal(stage->dones, 1);
    assert_int_equal(stage->status, REGX_FAILED);
    end(stage);
    drop_frames(stage->sender, 1);
    while (deliver(stage, 0)) { /* slots that it does not need any more */
    }
    stage_close(stage);
}

/* ---- messages that are wrong ---- */

typedef struct change { /* `size` bytes from `at` on become, or are flipped by, value */
    size_t at, size;
    uint64_t value;
    bool flip;
} change_t;

static void mutate(uint8_t *bytes, size_t size, const change_t *change)
{
    for (size_t i = 0; i < change->size && change->at + i < size; i++) {
        const uint8_t value = (uint8_t)(change->value >> (8 * i));

        bytes[change->at + i] = change->flip ? bytes[change->at + i] ^ value : value;
    }
}

/* Whose turn is tried: the first exposure, a later one, the refusal of the rest, the first GOT, and
 * one that tells that it was not. */
typedef enum turn { FIRST, LATER, REST, GOT, UNREAD, TURNS } turn_t;

/* Brings a transfer to where the next frame to the process `to` is that message. */
static void bring_to(stage_t *stage, turn_t turn, unsigned *to)
{
    *to = turn < GOT ? 1 : 0;
    if (turn == REST || turn == UNREAD) {
        stage->answer.at = turn == REST ? stage->sender : stage->receiver;
        stage->answer.call = FAKE_REG;
        stage->answer.number = 2;
        stage->answer.status = REGX_NO_MEMORY;
    }
    begin(stage);
    if (turn == LATER || turn == REST) {
        assert_true(deliver(stage, 1));
    } else if (turn == GOT || turn == UNREAD) {
        while (deliver(stage, 1)) {
        }
        if (turn == GOT) {
            fake_got(stage->receiver, 0, 1, REGX_OK);
        }
    }
}

/* Whether the landing can take the message, by what it has taken before. */
static bool landing_takes(const stage_t *stage, const regx_control_t *control,
                          const regx_control_t *right, turn_t turn)
{
    const uint64_t granted = turn == FIRST ? 0 : PAGE;

    (void)stage;
    if (memcmp(&control->to, &right->to, sizeof(control->to)) != 0 ||
        (turn != FIRST && memcmp(&control->from, &right->from, sizeof(control->from)) != 0)) {
        return false;
    }
    switch (control->type) {
    case REGX_CONTROL_START:
        return true;
    case REGX_CONTROL_EXPOSED:
        return control->offset == granted && control->length > 0 && control->length <= PAGE;
    case REGX_CONTROL_REFUSED:
        return control->offset == granted && control->length == LENGTH - granted;
    default:
        return false;
    }
}

/* Whether the source can: it has exposed the first DEPTH chunks, and been told of none. */
static bool source_takes(const regx_control_t *control, const regx_control_t *right)
{
    return control->type == REGX_CONTROL_GOT &&
           memcmp(&control->to, &right->to, sizeof(control->to)) == 0 && control->length == PAGE &&
           control->offset % PAGE == 0 && control->offset < DEPTH * PAGE;
}

static void arrive(stage_t *stage, unsigned to, uint64_t from, const void *bytes, size_t size)
{
    uint8_t *copy = malloc(size); /* so that reading past the end is found */

    assert_non_null(copy);
    memcpy(copy, bytes, size);
    regx_rndv_control(to == 0 ? stage->sender->rndv : stage->receiver->rndv, from, copy, size);
    free(copy);
}

/* Ends what a lie has spoiled, and asserts that nothing else was. */
static void abandon(stage_t *stage)
{
    run(stage);
    regx_rndv_forget(stage->sender->rndv, &stage->sender->peers[1]);
    regx_rndv_forget(stage->receiver->rndv, &stage->receiver->peers[0]);
    while (fake_got(stage->receiver, 0, 0, REGX_FAILED)) {
    }
    drop_frames(stage->sender, 1);
    drop_frames(stage->receiver, 0);
    assert_int_equal(stage->dones, 1);
    end(stage);
    stage_close(stage);
}

/* The message is changed. If it cannot be one it is counted and has no effect: the right one is
 * then taken, and all ends well. Else it does what it says, to the memory of this transfer. */
static void try_message(turn_t turn, change_t change, uint64_t sender)
{
    stage_t *stage = stage_open();
    regx_control_t control = {0}, right = {0};
    uint8_t bytes[FAKE_FRAME];
    unsigned to;

    bring_to(stage, turn, &to);
    fake_t *from = to == 1 ? stage->sender : stage->receiver;
    const fake_frame_t *frame = from->conns[to].head;
    assert_non_null(frame);
    memcpy(bytes, frame->data, frame->length);
    assert_true(regx_control_unpack(bytes, frame->length, &right));
    mutate(bytes, frame->length, &change);
    const bool same = memcmp(bytes, frame->data, frame->length) == 0;
    const bool form = regx_control_unpack(bytes, frame->length, &control);
    const bool sound =
        form && sender == from->id &&
        (to == 1 ? landing_takes(stage, &control, &right, turn) : source_takes(&control, &right));
    const uint64_t regs = stage->receiver->counters.registrations;
    const unsigned windows = stage->sender->open_windows;

    arrive(stage, to, sender, bytes, frame->length);
    if (!sound) {
        assert_int_equal(malformed(stage), 1);
        assert_int_equal(stage->receiver->counters.registrations, regs);
        assert_int_equal(stage->sender->open_windows, windows);
        run(stage);
        assert_read(stage);
        assert_int_equal(malformed(stage), 1);
        end(stage);
        stage_close(stage);
        return;
    }
    if (same) {
        assert_int_equal(malformed(stage), 0);
    }
    deliver(stage, to); /* comes once more, or is right after another: taken or not */
    abandon(stage);
}

static void every_byte_may_be_wrong(void **state)
{
    static const uint8_t flips[] = {0, 1, 2, 4, 8, 16, 32, 64, 128, 255, 3, 7};

    (void)state;
    for (turn_t turn = FIRST; turn < TURNS; turn++) {
        for (size_t at = 0; at < REGX_CONTROL_MAX; at++) {
            for (size_t f = 0; f < sizeof(flips); f++) {
                try_message(turn, (change_t){at, 1, flips[f], true}, turn < GOT ? 0 : 1);
            }
        }
    }
}

static void every_field_may_be_wrong(void **state)
{
    static const uint64_t values[] = {0,
                                      1,
                                      2,
                                      PAGE - 1,
                                      PAGE,
                                      PAGE + 1,
                                      2 * PAGE,
                                      5 * PAGE + 7,
                                      LENGTH - 1,
                                      LENGTH,
                                      LENGTH + 1,
                                      INT32_MAX,
                                      UINT64_C(1) << 31,
                                      UINT32_MAX,
                                      UINT64_C(1) << 32,
                                      INT64_MAX,
                                      UINT64_C(1) << 63,
                                      UINT64_MAX - PAGE + 1,
                                      UINT64_MAX};

    (void)state;
    for (turn_t turn = FIRST; turn < TURNS; turn++) {
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            for (size_t at = 0; at < REGX_CONTROL_MAX; at += 4) {
                try_message(turn, (change_t){at, 4, values[v], false}, turn < GOT ? 0 : 1);
                try_message(turn, (change_t){at, 8, values[v], false}, turn < GOT ? 0 : 1);
            }
        }
    }
}

static void another_process_may_not_say_it(void **state)
{
    (void)state;
    for (turn_t turn = FIRST; turn < TURNS; turn++) {
        try_message(turn, (change_t){.size = 0}, 2);
        try_message(turn, (change_t){.size = 0}, 3);
        try_message(turn, (change_t){.size = 0}, UINT64_MAX);
    }
}

/* More than the CTS allows at once, or after the rest was refused. */
static void too_much_is_not_taken(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        stage_t *stage = stage_open();
        regx_control_t control = {0};
        uint8_t bytes[REGX_CONTROL_MAX];

        begin(stage);
        const fake_frame_t *frame = stage->sender->conns[1].head;
        assert_true(regx_control_unpack(frame->data, frame->length, &control));
        if (refused) {
            regx_control_t refusal = control;

            refusal.type = REGX_CONTROL_REFUSED;
            refusal.length = LENGTH;
            arrive(stage, 1, 0, bytes, regx_control_pack(&refusal, bytes));
            assert_int_equal(malformed(stage), 0);
            arrive(stage, 1, 0, bytes, regx_control_pack(&refusal, bytes));
            assert_int_equal(malformed(stage), 1);
        } else {
            while (deliver(stage, 1)) {
            }
            control.offset = DEPTH * PAGE;
        }
        arrive(stage, 1, 0, bytes, regx_control_pack(&control, bytes));
        assert_int_equal(malformed(stage), 1 + refused);
        assert_int_equal(stage->receiver->counters.registrations, refused ? 0 : DEPTH);
        abandon(stage);
    }
}

/* What is exposed, or still to be, is not granted as well; nor are chunks granted at all. */
static void a_grant_is_not_taken_beside(void **state)
{
    (void)state;
    for (int chunk = 0; chunk < 2; chunk++) {
        stage_t *stage = stage_open();
        regx_control_t exposed = {0};
        uint8_t bytes[REGX_CONTROL_MAX];

        begin(stage);
        const fake_frame_t *frame = stage->sender->conns[1].head;
        assert_true(regx_control_unpack(frame->data, frame->length, &exposed));
        regx_control_t grant = {.type = chunk ? REGX_CONTROL_CHUNK : REGX_CONTROL_SLOTS,
                                .to = exposed.from,
                                .offset = 5 * PAGE,
                                .length = 1};
        if (!chunk) {
            grant.slot_count = 1;
            grant.slots[0] = (regx_slot_grant_t){0, 1};
        }
        arrive(stage, 0, 1, bytes, regx_control_pack(&grant, bytes));
        assert_int_equal(malformed(stage), 1);
        assert_int_equal(stage->sender->calls[FAKE_PUT], 0);
        run(stage);
        assert_read(stage);
        end(stage);
        stage_close(stage);
    }
}

static void noise_is_survived(void **state)
{
    stage_t *stage = stage_open();
    regx_control_t exposed = {0};
    uint64_t seed = 31;

    (void)state;
    begin(stage);
    const fake_frame_t *frame = stage->sender->conns[1].head;
    assert_true(regx_control_unpack(frame->data, frame->length, &exposed));
    for (unsigned i = 0; i < 40000; i++) {
        uint64_t words[9];
        uint8_t *bytes = (uint8_t *)words;

        for (unsigned w = 0; w < 9; w++) {
            words[w] = unit_random(&seed);
        }
        if (i % 2 == 0) { /* of the right form, for the right addressee, with absurd numbers */
            const regx_name_t *to = i % 4 == 0 ? &exposed.to : &exposed.from;

            bytes[0] = REGX_CONTROL_VERSION;
            bytes[1] = i % 4 == 0 ? REGX_CONTROL_EXPOSED : REGX_CONTROL_GOT;
            bytes[2] = bytes[3] = 0;
            memcpy(bytes + 4, to, sizeof(*to));
            bytes[12] %= 3;
            memset(bytes + 13, 0, i % 4 == 0 ? 0 : 3);
            arrive(stage, i % 4 == 0, i % 4 != 0, bytes, i % 4 == 0 ? 64 : 32);
        } else {
            arrive(stage, i / 2 % 2, i / 4 % 3, bytes, unit_random(&seed) % 72 + 1);
        }
    }
    assert_int_equal(malformed(stage), 40000);
    assert_int_equal(stage->receiver->counters.registrations, 0);
    run(stage);
    assert_read(stage);
    assert_bytes(stage, LENGTH);
    end(stage);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_takes_its_chunks),
        cmocka_unit_test(no_more_at_once_than_both_allow),
        cmocka_unit_test(the_end_waits_for_the_last_get),
        cmocka_unit_test(chunks_lie_within_larger_regions),
        cmocka_unit_test(what_is_kept_serves_again),
        cmocka_unit_test(each_registration_may_be_refused),
        cmocka_unit_test(each_get_may_be_refused),
        cmocka_unit_test(each_get_may_fail),
        cmocka_unit_test(each_send_may_find_no_room),
        cmocka_unit_test(a_peer_may_be_forgotten_at_any_time),
        cmocka_unit_test(each_send_may_be_unreachable),
        cmocka_unit_test(gets_outlive_their_landing),
        cmocka_unit_test(a_failure_waits_for_what_is_exposed),
        cmocka_unit_test(every_byte_may_be_wrong),
        cmocka_unit_test(every_field_may_be_wrong),
        cmocka_unit_test(another_process_may_not_say_it),
        cmocka_unit_test(too_much_is_not_taken),
        cmocka_unit_test(a_grant_is_not_taken_beside),
        cmocka_unit_test(noise_is_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
