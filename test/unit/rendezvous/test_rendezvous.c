/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The whole rendezvous between processes in memory, in random order: what the MPI library does
 * around it (CTS and FIN are frames like all others), with a transport that is out of room, late
 * and refusing. Every message arrives whole, every end is told once, and nothing is left behind.
 */
#include "fake.h"

#include <stdio.h>

#include "rendezvous/engine.h"

enum { TAG_CTS = 1, TAG_FIN = 2, MESSAGES = 40, STUCK = 30000 };

typedef enum state { NEW, OPEN, CLOSED } state_t;

typedef struct message {
    fake_t *from, *to;
    guarded_t sent, received;
    uint64_t stream;
    state_t state;
    regx_rndv_recv_t *recv;
    unsigned dones;
    bool failed;
} message_t;

typedef struct chances { /* in percent */
    unsigned again, pending, no_registration, failing, cancelled;
    bool denied; /* regions cannot be written or read */
} chances_t;

typedef struct world {
    uint64_t seed;
    chances_t chances;
    unsigned count; /* of processes */
    fake_t *processes[FAKE_PROCESSES];
    guarded_t sent; /* what all messages are parts of */
    message_t messages[MESSAGES];
    unsigned opened, closed, cancelled, failures;
} world_t;

static unsigned below(world_t *world, unsigned limit)
{
    return (unsigned)(chance_next(&world->seed) % limit);
}

static bool happens(world_t *world, unsigned percent)
{
    return below(world, 100) < percent;
}

static regx_status_t rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    world_t *world = fake->context;

    if (call == FAKE_REG) {
        return happens(world, world->chances.no_registration) ? REGX_NO_MEMORY : REGX_OK;
    }
    if (happens(world, world->chances.again)) {
        return REGX_AGAIN;
    }
    if (call == FAKE_SEND) {
        return REGX_OK;
    }
    if (happens(world, world->chances.failing)) {
        return REGX_FAILED;
    }
    if (world->chances.denied && (put == NULL || put->target == REGX_TARGET_REGION)) {
        return REGX_DENIED;
    }
    return happens(world, world->chances.pending) ? REGX_PENDING : REGX_OK;
}

/* The FIN goes behind whatever was accepted before. */
static void done(void *context, regx_status_t status)
{
    message_t *message = context;
    world_t *world = message->from->context;
    const uint32_t index = (uint32_t)(message - world->messages);

    message->dones++;
    message->failed = status != REGX_OK;
    assert_true(status == REGX_OK || status == REGX_FAILED);
    fake_append(&message->from->conns[message->to->id], TAG_FIN, &index, sizeof(index), 0, NULL);
}

static void free_sent(const world_t *world, message_t *message)
{
    if (message->sent.mapped != world->sent.mapped) {
        guarded_free(&message->sent);
    }
}

static void close_message(world_t *world, message_t *message)
{
    regx_rndv_recv_close(message->to->rndv, message->recv);
    message->state = CLOSED;
    world->closed++;
}

static void deliver(fake_t *fake, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    world_t *world = fake->context;
    uint32_t index;

    assert_true(length >= sizeof(index));
    memcpy(&index, data, sizeof(index));
    message_t *message = &world->messages[index];
    if (tag == TAG_CTS) {
        assert_ptr_equal(message->from, fake);
        regx_rndv_send_open(fake->rndv, &fake->peers[sender], message->sent.base,
                            message->sent.length, (const uint8_t *)data + sizeof(index), done,
                            message);
        return;
    }
    assert_int_equal(tag, TAG_FIN);
    assert_int_equal(message->dones, 1);
    close_message(world, message);
    if (message->failed) {
        world->failures++;
    } else {
        assert_memory_equal(message->received.base, message->sent.base, message->sent.length);
    }
    guarded_free(&message->received); /* what still lands crashes */
    free_sent(world, message);
}

static size_t some_length(world_t *world)
{
    switch (below(world, 8)) {
    case 0:
        return 1 + below(world, 300000);
    case 1:
        return 4096 * (1 + below(world, 4)) + below(world, 3) - 1;
    default:
        return 1 + below(world, 20000);
    }
}

static void open_message(world_t *world)
{
    const uint32_t index = world->opened++;
    message_t *message = &world->messages[index];
    const unsigned to = below(world, world->count);
    const unsigned from = (to + 1 + below(world, world->count - 1)) % world->count;
    uint8_t frame[sizeof(index) + REGX_CTS_SIZE];

    message->from = world->processes[from];
    message->to = world->processes[to];
    const size_t length = some_length(world);
    if (happens(world, 50)) { /* a part of what others are parts of too */
        message->sent = world->sent;
        message->sent.base += below(world, (unsigned)(world->sent.length - length));
        message->sent.length = length;
    } else {
        message->sent = guarded_new(length);
        guarded_fill(&message->sent, chance_next(&world->seed));
    }
    message->received = guarded_new(length);
    message->recv = regx_rndv_recv_open(message->to->rndv, &message->to->peers[from],
                                        message->received.base, message->received.length);
    assert_non_null(message->recv);
    message->state = OPEN;
    if (happens(world, world->chances.cancelled)) {
        /* The MPI library could not send the CTS, and gives it back some time. */
        message->from = NULL;
        world->cancelled++;
        return;
    }
    memcpy(frame, &index, sizeof(index));
    memcpy(frame + sizeof(index), fake_cts(message->recv), REGX_CTS_SIZE);
    fake_append(&message->to->conns[from], TAG_CTS, frame, sizeof(frame), 0, NULL);
}

/* Gives back one CTS that never left. */
static bool cancel(world_t *world)
{
    const unsigned start = below(world, MESSAGES);

    for (unsigned i = 0; i < MESSAGES; i++) {
        message_t *message = &world->messages[(start + i) % MESSAGES];

        if (message->state == OPEN && message->from == NULL) {
            close_message(world, message);
            guarded_free(&message->received);
            free_sent(world, message);
            return true;
        }
    }
    return false;
}

/* Lets one thing happen; whether it did. */
static bool step(world_t *world)
{
    fake_t *fake = world->processes[below(world, world->count)];
    const unsigned other = below(world, world->count);

    switch (below(world, 10)) {
    case 0:
        if (world->opened < MESSAGES) {
            open_message(world);
            return true;
        }
        return false;
    case 1:
        return fake_complete(fake, other, below(world, 3),
                             happens(world, world->chances.failing) ? REGX_FAILED : REGX_OK);
    case 4:
        return fake_got(fake, other, below(world, 3),
                        happens(world, world->chances.failing) ? REGX_FAILED : REGX_OK);
    case 2:
        regx_rndv_progress(fake->rndv);
        return false;
    case 3:
        return happens(world, 5) && cancel(world);
    default:
        return fake_receive(fake, world->processes[other]);
    }
}

static void world_open(world_t *world, uint64_t seed, chances_t chances)
{
    static const char *const strategies[] = {"auto", "bounce", "pipeline", "direct", "read"};
    static const uint32_t slots[] = {2, 3, 8, 64, 300};
    static const size_t slot_sizes[] = {64, 1000, 4096, 16384};
    static const unsigned depths[] = {1, 2, 3, 64};
    static const uint64_t caches[] = {0, 0, 50000, REGX_UNLIMITED};

    memset(world, 0, sizeof(*world));
    world->seed = seed;
    world->chances = chances;
    world->count = 2 + below(world, FAKE_PROCESSES - 1);
    for (unsigned i = 0; i < world->count; i++) {
        const fake_config_t config = {.slots = slots[below(world, 5)],
                                      .slot_size = slot_sizes[below(world, 4)],
                                      .strategy = strategies[below(world, 5)],
                                      .chunk_size = 4096 * (1 + (size_t)below(world, 4)),
                                      .chunk_depth = depths[below(world, 4)],
                                      .verify = below(world, 3) == 0,
                                      .outer = below(world, 2) * 4096,
                                      .cache_bytes = caches[below(world, 4)]};

        world->processes[i] = fake_open(i, &config);
        world->processes[i]->context = world;
        world->processes[i]->rule = rule;
        world->processes[i]->deliver = deliver;
    }
    world->sent = guarded_new(310000);
    guarded_fill(&world->sent, seed);
    for (unsigned i = 0; i < world->count; i++) {
        for (unsigned j = 0; j < world->count; j++) {
            fake_connect(world->processes[i], world->processes[j], (i + j) % 2 == 0);
        }
    }
}

static void world_run(world_t *world)
{
    unsigned stuck = 0;

    while (world->closed < MESSAGES && stuck < STUCK) {
        stuck = step(world) ? 0 : stuck + 1;
    }
    /* Grants that a failed send does not need any more may still be under way. */
    for (unsigned i = 0; i < world->count * world->count; i++) {
        while (
            fake_receive(world->processes[i / world->count], world->processes[i % world->count])) {
        }
    }
}

/* Everything that was asked for was done and counted, and nothing is left. */
static void world_check(world_t *world)
{
    uint64_t arrived = 0; /* messages, not failed or cancelled */
    uint64_t bytes = 0;
    uint64_t copied_out = 0;
    uint64_t messages_counted = 0;
    uint64_t bytes_counted = 0;
    uint64_t bytes_bounced = 0;

    guarded_free(&world->sent); /* now nothing is registered, kept or not */
    for (unsigned i = 0; i < MESSAGES; i++) {
        const message_t *message = &world->messages[i];

        assert_int_equal(message->dones, message->from != NULL);
        if (message->from != NULL && !message->failed) {
            arrived++;
            bytes += message->sent.length;
        }
    }
    for (unsigned i = 0; i < world->count; i++) {
        const regx_counters_t *counters = &world->processes[i]->counters;

        fake_settle(world->processes[i]);
        fake_assert_idle(world->processes[i]);
        assert_int_equal(counters->mismatches + world->processes[i]->mismatches, 0);
        /* A grant that meets a send that failed before is refused like any unknown name. */
        if (world->chances.failing == 0) {
            assert_int_equal(counters->malformed, 0);
        }
        copied_out += counters->copied_out_bytes;
        for (int path = 0; path < REGX_PATH_fallback; path++) {
            messages_counted += counters->messages[path];
            bytes_counted += counters->bytes[path];
        }
        bytes_bounced += counters->bytes[REGX_PATH_bounce];
    }
    assert_int_equal(messages_counted, arrived);
    assert_int_equal(bytes_counted, bytes);
    if (world->failures == 0) {
        assert_int_equal(copied_out, bytes_bounced);
    }
}

static void world_close(world_t *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        fake_close(world->processes[i]);
    }
}

static void many_worlds(unsigned count, uint64_t first_seed, chances_t chances)
{
    static world_t world;

    fake_immediate_count = 0;
    for (unsigned i = 0; i < count; i++) {
        fake_immediates = i % 2 == 1;
        world_open(&world, first_seed + i, chances);
        world_run(&world);
        if (world.closed < MESSAGES) {
            fail_msg("seed %llu: stuck after %u of %u messages",
                     (unsigned long long)(first_seed + i), world.closed, world.opened);
        }
        world_check(&world);
        assert_int_equal(world.cancelled > 0, chances.cancelled > 0);
        world_close(&world);
    }
    assert_true(fake_immediate_count > 0);
}

static void messages_arrive_undisturbed(void **state)
{
    (void)state;
    many_worlds(100, 1000, (chances_t){.again = 0});
}

static void messages_arrive_where_the_wire_is_full_at_times(void **state)
{
    (void)state;
    many_worlds(100, 2000, (chances_t){.again = 30, .pending = 30});
}

static void messages_arrive_where_the_wire_is_mostly_full(void **state)
{
    (void)state;
    many_worlds(60, 3000, (chances_t){.again = 80, .pending = 50});
}

static void messages_arrive_where_all_completes_late(void **state)
{
    (void)state;
    many_worlds(60, 4000, (chances_t){.pending = 100});
}

static void messages_arrive_where_registrations_are_refused(void **state)
{
    (void)state;
    many_worlds(100, 5000, (chances_t){.again = 20, .pending = 30, .no_registration = 30});
    many_worlds(60, 6000, (chances_t){.again = 50, .pending = 30, .no_registration = 5});
    many_worlds(20, 7000, (chances_t){.again = 20, .no_registration = 100});
}

static void messages_arrive_where_regions_cannot_be_written(void **state)
{
    (void)state;
    many_worlds(60, 8000, (chances_t){.again = 20, .pending = 30, .denied = true});
}

static void receives_that_nobody_answers_can_be_closed(void **state)
{
    (void)state;
    many_worlds(100, 9000, (chances_t){.again = 20, .pending = 30, .cancelled = 30});
}

static void failed_puts_end_the_send_once(void **state)
{
    (void)state;
    many_worlds(100, 10000, (chances_t){.again = 20, .pending = 30, .failing = 10});
    many_worlds(
        60, 11000,
        (chances_t){
            .again = 40, .pending = 50, .failing = 3, .no_registration = 10, .cancelled = 20});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_undisturbed),
        cmocka_unit_test(messages_arrive_where_the_wire_is_full_at_times),
        cmocka_unit_test(messages_arrive_where_the_wire_is_mostly_full),
        cmocka_unit_test(messages_arrive_where_all_completes_late),
        cmocka_unit_test(messages_arrive_where_registrations_are_refused),
        cmocka_unit_test(messages_arrive_where_regions_cannot_be_written),
        cmocka_unit_test(receives_that_nobody_answers_can_be_closed),
        cmocka_unit_test(failed_puts_end_the_send_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
