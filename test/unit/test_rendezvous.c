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
    regx_landing_t *landing;
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
    return (unsigned)(unit_random(&world->seed) % limit);
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
    fake_append(&message->from->conns[message->to->id], TAG_FIN, &index, sizeof(index), NULL);
}

static void free_sent(const world_t *world, message_t *message)
{
    if (message->sent.mapped != world->sent.mapped) {
        guarded_free(&message->sent);
    }
}

static void close_message(world_t *world, message_t *message)
{
    regx_landing_close(message->to->rndv, message->landing);
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
        regx_source_open(fake->rndv, &fake->peers[sender], message->sent.base, message->sent.length,
                         (const uint8_t *)data + sizeof(index), done, message);
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
        guarded_fill(&message->sent, unit_random(&world->seed));
    }
    message->received = guarded_new(length);
    message->landing = regx_landing_open(message->to->rndv, &message->to->peers[from],
                                         message->received.base, message->received.length);
    assert_non_null(message->landing);
    message->state = OPEN;
    if (happens(world, world->chances.cancelled)) {
        /* The MPI library could not send the CTS, and gives it back some time. */
        message->from = NULL;
        world->cancelled++;
        return;
    }
    memcpy(frame, &index, sizeof(index));
    memcpy(frame + sizeof(index), regx_landing_cts(message->landing), REGX_CTS_SIZE);
    fake_append(&message->to->conns[from], TAG_CTS, frame, sizeof(frame), NULL);
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
    /* Grants that a failed source does not need any more may still be under way. */
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
        /* A grant that meets a source that failed before is refused like any unknown name. */
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

    for (unsigned i = 0; i < count; i++) {
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
}

static void nothing_disturbs(void **state)
{
    (void)state;
    many_worlds(100, 1000, (chances_t){.again = 0});
}

static void out_of_room_at_times(void **state)
{
    (void)state;
    many_worlds(100, 2000, (chances_t){.again = 30, .pending = 30});
}

static void out_of_room_mostly(void **state)
{
    (void)state;
    many_worlds(60, 3000, (chances_t){.again = 80, .pending = 50});
}

static void everything_is_late(void **state)
{
    (void)state;
    many_worlds(60, 4000, (chances_t){.pending = 100});
}

static void registrations_are_refused(void **state)
{
    (void)state;
    many_worlds(100, 5000, (chances_t){.again = 20, .pending = 30, .no_registration = 30});
    many_worlds(60, 6000, (chances_t){.again = 50, .pending = 30, .no_registration = 5});
    many_worlds(20, 7000, (chances_t){.again = 20, .no_registration = 100});
}

static void regions_cannot_be_written(void **state)
{
    (void)state;
    many_worlds(60, 8000, (chances_t){.again = 20, .pending = 30, .denied = true});
}

static void landings_are_given_back(void **state)
{
    (void)state;
    many_worlds(100, 9000, (chances_t){.again = 20, .pending = 30, .cancelled = 30});
}

static void puts_fail(void **state)
{
    (void)state;
    many_worlds(100, 10000, (chances_t){.again = 20, .pending = 30, .failing = 10});
    many_worlds(
        60, 11000,
        (chances_t){
            .again = 40, .pending = 50, .failing = 3, .no_registration = 10, .cancelled = 20});
}

/* ---- cases that chance would take long to find: two processes, one message ---- */

typedef struct pair {
    fake_t *sender, *receiver;
    unsigned dones;
    regx_status_t status;
    regx_status_t puts;      /* what puts and gets are answered */
    unsigned refused_region; /* the number of the receiver's registration that is refused */
} pair_t;

static regx_status_t pair_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    pair_t *pair = fake->context;

    (void)put;
    if (call == FAKE_PUT || call == FAKE_GET) {
        return pair->puts;
    }
    return call == FAKE_REG && fake == pair->receiver &&
                   fake->calls[FAKE_REG] == pair->refused_region
               ? REGX_NO_MEMORY
               : REGX_OK;
}

static void pair_done(void *context, regx_status_t status)
{
    pair_t *pair = context;

    pair->dones++;
    pair->status = status;
}

static pair_t *pair_open(const fake_config_t *sender, const fake_config_t *receiver)
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

/* Lets everything happen that can; how many frames that were. */
static unsigned pair_run(pair_t *pair)
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

static void pair_close(pair_t *pair)
{
    fake_assert_idle(pair->sender);
    fake_assert_idle(pair->receiver);
    assert_int_equal(pair->sender->counters.malformed, 0);
    assert_int_equal(pair->receiver->counters.malformed, 0);
    fake_close(pair->sender);
    fake_close(pair->receiver);
    free(pair);
}

/* The sender has no room while the receiver grants all that it may: as many chunks as can be in
 * flight, and, for one that could not be registered, as many slots. */
static void all_grants_wait_at_once(void **state)
{
    enum { CHUNK = 4096 };

    (void)state;
    for (unsigned depth = 1; depth <= REGX_CHUNK_DEPTH_MAX;
         depth = depth < 8 ? depth + 1 : 2 * depth) {
        for (unsigned refused = 2; refused <= depth; refused += 1 + refused / 4) {
            const fake_config_t config = {.slots = 300,
                                          .slot_size = 64,
                                          .strategy = "pipeline",
                                          .chunk_size = CHUNK,
                                          .chunk_depth = depth};
            pair_t *pair = pair_open(&config, &config);
            guarded_t sent = guarded_new((REGX_CHUNK_DEPTH_MAX + 3) * CHUNK + 5);
            guarded_t received = guarded_new(sent.length);

            guarded_fill(&sent, refused);
            pair->refused_region = refused;
            pair->puts = REGX_AGAIN;
            regx_landing_t *landing = regx_landing_open(
                pair->receiver->rndv, &pair->receiver->peers[0], received.base, received.length);
            regx_source_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, sent.length,
                             regx_landing_cts(landing), pair_done, pair);
            pair_run(pair);
            assert_int_equal(pair->dones, 0);
            pair->puts = REGX_PENDING;
            pair_run(pair);
            if (pair->dones != 1) {
                fail_msg("depth %u, registration %u refused: stuck; %llu messages refused", depth,
                         refused, (unsigned long long)pair->sender->counters.malformed);
            }
            assert_int_equal(pair->status, REGX_OK);
            regx_landing_close(pair->receiver->rndv, landing);
            assert_memory_equal(received.base, sent.base, sent.length);
            guarded_free(&sent);
            guarded_free(&received);
            pair_close(pair);
        }
    }
}

/* ---- a cache ---- */

typedef struct kept { /* a pair whose receiver keeps registrations, and one of its buffers */
    pair_t *pair;
    guarded_t sent, received;
} kept_t;

static kept_t kept_open(const char *strategy, size_t length)
{
    const fake_config_t config = {.slots = 20,
                                  .slot_size = 4096,
                                  .strategy = strategy,
                                  .chunk_size = 8192,
                                  .chunk_depth = 2,
                                  .cache_bytes = REGX_UNLIMITED};
    kept_t kept = {.pair = pair_open(&config, &config),
                   .sent = guarded_new(length),
                   .received = guarded_new(length)};

    guarded_fill(&kept.sent, 9);
    kept.pair->puts = REGX_PENDING;
    return kept;
}

static regx_landing_t *kept_begin(const kept_t *kept, size_t offset, size_t length)
{
    regx_landing_t *landing =
        regx_landing_open(kept->pair->receiver->rndv, &kept->pair->receiver->peers[0],
                          kept->received.base + offset, length);

    memset(kept->received.base + offset, 0, length);
    regx_source_open(kept->pair->sender->rndv, &kept->pair->sender->peers[1],
                     kept->sent.base + offset, length, regx_landing_cts(landing), pair_done,
                     kept->pair);
    return landing;
}

static void kept_end(const kept_t *kept, regx_landing_t *landing, size_t offset, size_t length)
{
    kept->pair->dones = 0;
    pair_run(kept->pair);
    assert_int_equal(kept->pair->dones, 1);
    assert_int_equal(kept->pair->status, REGX_OK);
    regx_landing_close(kept->pair->receiver->rndv, landing);
    assert_memory_equal(kept->received.base + offset, kept->sent.base + offset, length);
}

static void kept_close(kept_t *kept)
{
    guarded_free(&kept->sent);
    guarded_free(&kept->received);
    fake_settle(kept->pair->sender);
    fake_settle(kept->pair->receiver);
    pair_close(kept->pair);
}

/* Once the whole was registered, its parts are written by the same key, at either end from the same
 * registration. */
static void an_outer_region_serves_its_parts(void **state)
{
    static const char *const names[] = {"pipeline", "direct"};

    (void)state;
    for (unsigned n = 0; n < 2; n++) {
        kept_t kept = kept_open("direct", 70001);
        const regx_counters_t *counters = &kept.pair->receiver->counters;
        uint64_t seed = n;

        kept_end(&kept, kept_begin(&kept, 0, 70001), 0, 70001);
        kept.pair->receiver->rndv->config.strategy = regx_strategy_find(names[n]);
        for (unsigned i = 0; i < 200; i++) {
            const size_t offset = unit_random(&seed) % 70001;
            const size_t length = 1 + unit_random(&seed) % (70001 - offset);

            kept_end(&kept, kept_begin(&kept, offset, length), offset, length);
        }
        fake_settle(kept.pair->sender);
        fake_settle(kept.pair->receiver);
        assert_int_equal(counters->registrations, 1);
        assert_int_equal(counters->misses, 1);
        assert_in_range(counters->hits, 200, 2000);
        assert_int_equal(kept.pair->sender->counters.registrations, 1);
        assert_int_equal(counters->messages[REGX_PATH_fallback], 0);
        kept_close(&kept);
    }
}

/* What is granted when the buffer changes is written and drained as granted; a later grant is of a
 * new registration. */
static void a_dead_region_is_granted_no_more(void **state)
{
    kept_t kept = kept_open("pipeline", 10 * 8192);
    const size_t length = kept.received.length;
    fake_t *receiver = kept.pair->receiver;
    const regx_counters_t *counters = &receiver->counters;

    (void)state;
    kept_end(&kept, kept_begin(&kept, 0, length), 0, length); /* ten regions */
    regx_landing_t *landing = kept_begin(&kept, 0, length);
    fake_settle(receiver);
    assert_int_equal(counters->registrations, 10);
    assert_int_equal(counters->hits, 1);
    fake_changed(kept.received.base, length); /* not really: nothing moves */
    fake_settle(receiver);
    assert_int_equal(counters->invalidations, 10);
    assert_int_equal(receiver->open_windows, 1); /* what is granted stays */
    kept_end(&kept, landing, 0, length);
    fake_settle(receiver);
    assert_int_equal(counters->inuse_changes, 1);
    assert_int_equal(counters->registrations, 19);
    assert_int_equal(counters->deregistrations, 10);
    assert_int_equal(counters->hits, 1);
    kept_close(&kept);
}

/* ---- a buffer that goes while it is in use ---- */

static regx_status_t no_region_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    (void)fake;
    return call == FAKE_PUT && put->target == REGX_TARGET_REGION ? REGX_FAILED : REGX_OK;
}

static regx_status_t no_registration_rule(fake_t *fake, fake_call_t call, const regx_put_t *put)
{
    (void)fake, (void)put;
    return call == FAKE_REG ? REGX_DENIED : REGX_OK;
}

/* Unmaps a few pages in the middle of memory of that length. */
static size_t punch(const guarded_t *memory, size_t *length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t middle = memory->length / 2;
    uint8_t *at = (uint8_t *)(((uintptr_t)memory->base + middle) & ~(uintptr_t)(page - 1));

    *length = 3 * page;
    assert_int_equal(munmap(at, *length), 0);
    return (size_t)(at - memory->base);
}

/* A chunk could not be written or registered because part of the buffer has been unmapped, at
 * either end. What goes by slots instead ends well, and what is still mapped arrives. */
static void a_buffer_with_a_hole_is_no_crash(void **state)
{
    static const char *const names[] = {"pipeline", "direct"};

    (void)state;
    for (unsigned which = 0; which < 32; which++) {
        /* Denied at the receiver, the sender is asked for slots alone, and warned by nothing. */
        const bool at_receiver = which & 2, at_sender = which & 1 && !(which >= 16 && at_receiver);
        const fake_config_t config = {.slots = 20,
                                      .slot_size = 4000,
                                      .strategy = names[which / 4 % 2],
                                      .chunk_size = 8192,
                                      .chunk_depth = 2,
                                      .verify = which / 8 % 2 != 0};
        pair_t *pair = pair_open(&config, &config);
        guarded_t sent = guarded_new(70001), received = guarded_new(70001);
        size_t hole = 0, length = 0;

        if (which < 16) {
            pair->sender->rule = no_region_rule;
        } else {
            pair->sender->rule = at_sender ? no_registration_rule : NULL;
            pair->receiver->rule = at_receiver ? no_registration_rule : NULL;
        }
        guarded_fill(&sent, 3);
        regx_landing_t *landing = regx_landing_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                    received.base, received.length);
        regx_source_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, sent.length,
                         regx_landing_cts(landing), pair_done, pair);
        /* The chunk of the CTS has been refused by now, and nothing has arrived. */
        hole = at_sender ? punch(&sent, &length) : hole;
        hole = at_receiver ? punch(&received, &length) : hole;
        pair_run(pair);
        assert_int_equal(pair->dones, 1);
        assert_int_equal(pair->status, REGX_OK);
        assert_int_equal(pair->receiver->mismatches, 0);
        for (size_t i = 0; i < received.length; i++) {
            if (i < hole || i >= hole + length) {
                assert_int_equal(received.base[i], unit_stamp(3, i));
            } else if (!at_receiver) {
                assert_int_equal(received.base[i], 0); /* nothing foreign was read */
            }
        }
        assert_int_equal(pair->sender->counters.fallbacks[0].state != 0, at_sender);
        assert_int_equal(pair->receiver->counters.fallbacks[0].state != 0, at_receiver);
        regx_landing_close(pair->receiver->rndv, landing);
        guarded_free(&sent);
        guarded_free(&received);
        pair_close(pair);
    }
}

/* ---- verify ---- */

enum { SPOILED_LENGTH = 50000 };

typedef struct spoiler { /* flips a bit of byte `at` of the message that is at `base` */
    const uint8_t *base;
    size_t at;
    unsigned times;
} spoiler_t;

static spoiler_t spoiler;

static void flip(fake_t *fake, const void *from, size_t length, char *written)
{
    const size_t offset = (size_t)((const uint8_t *)from - spoiler.base);

    (void)fake;
    if (spoiler.at >= offset && spoiler.at - offset < length) {
        written[spoiler.at - offset] ^= 4;
        spoiler.times++;
    }
}

/* One message whose byte `at` the wire flips (SIZE_MAX: none), sent and received with verify or
 * without. */
static void spoil_one(const char *strategy, bool at_sender, bool at_receiver, size_t at)
{
    fake_config_t config = {
        .slots = 20, .slot_size = 4096, .strategy = strategy, .chunk_size = 8192, .chunk_depth = 2};
    const bool verify = at_sender || at_receiver;
    const bool spoiled = at < SPOILED_LENGTH;
    const uint64_t pieces = strcmp(strategy, "direct") == 0 ? 1 : 5;
    unsigned long long from = 0, to = 0, length = 0;
    char path[16] = "";
    void *base = NULL;

    config.verify = at_receiver;
    fake_config_t sending = config;
    sending.verify = at_sender;
    pair_t *pair = pair_open(&sending, &config);
    guarded_t sent = guarded_new(SPOILED_LENGTH), received = guarded_new(SPOILED_LENGTH);
    const regx_counters_t *counters = &pair->receiver->counters;

    guarded_fill(&sent, 3);
    pair->puts = REGX_OK;
    spoiler = (spoiler_t){.base = sent.base, .at = at};
    pair->sender->spoil = pair->receiver->spoil = flip;
    regx_landing_t *landing = regx_landing_open(pair->receiver->rndv, &pair->receiver->peers[0],
                                                received.base, SPOILED_LENGTH);
    regx_source_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, SPOILED_LENGTH,
                     regx_landing_cts(landing), pair_done, pair);
    pair_run(pair);
    assert_int_equal(spoiler.times, spoiled);
    assert_int_equal(memcmp(sent.base, received.base, SPOILED_LENGTH) != 0, spoiled);
    assert_int_equal(counters->mismatches, verify && spoiled);
    assert_int_equal(pair->receiver->mismatches, verify && spoiled);
    assert_int_equal(pair->sender->mismatches, 0);
    if (verify) {
        assert_in_range(counters->verified, pieces, 100);
    } else {
        assert_int_equal(counters->verified, 0);
    }
    if (verify && spoiled) {
        assert_int_equal(pair->receiver->mismatch_peer, 0);
        assert_int_equal(sscanf(pair->receiver->mismatch,
                                "bytes %llu to %llu of %llu at %p by %15s arrived", &from, &to,
                                &length, &base, path),
                         5);
        assert_in_range(at, from, to);
        assert_in_range(to - from, 0, SPOILED_LENGTH - (pieces > 1));
        assert_int_equal(length, SPOILED_LENGTH);
        assert_ptr_equal(base, received.base);
        assert_string_equal(path, strategy);
    }
    regx_landing_close(pair->receiver->rndv, landing);
    guarded_free(&sent);
    guarded_free(&received);
    pair_close(pair);
}

static void a_flipped_bit_is_found_where_either_end_verifies(void **state)
{
    static const char *const names[] = {"bounce", "pipeline", "direct", "read"};
    static const size_t places[] = {
        0, 1, 4095, 4096, 8191, 8192, 20001, 40959, 40960, SPOILED_LENGTH - 1, SIZE_MAX};

    (void)state;
    for (size_t n = 0; n < 4; n++) {
        for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
            for (unsigned ends = 0; ends < 4; ends++) {
                spoil_one(names[n], ends & 1, ends & 2, places[p]);
            }
        }
    }
}

static void flip_all(fake_t *fake, const void *from, size_t length, char *written)
{
    (void)fake, (void)from;
    written[length - 1] ^= 1;
}

/* Each range that is wrong is counted; the transfer is told of once. */
static void a_spoiled_transfer_is_told_of_once(void **state)
{
    static const char *const names[] = {"pipeline", "read"};

    (void)state;
    for (size_t n = 0; n < 2; n++) {
        const fake_config_t config = {.slots = 20,
                                      .slot_size = 4096,
                                      .strategy = names[n],
                                      .chunk_size = 8192,
                                      .chunk_depth = 2,
                                      .verify = true};
        pair_t *pair = pair_open(&config, &config);
        guarded_t sent = guarded_new(SPOILED_LENGTH), received = guarded_new(SPOILED_LENGTH);

        pair->sender->spoil = pair->receiver->spoil = flip_all;
        for (unsigned told = 1; told <= 3; told++) {
            regx_landing_t *landing = regx_landing_open(
                pair->receiver->rndv, &pair->receiver->peers[0], received.base, SPOILED_LENGTH);

            regx_source_open(pair->sender->rndv, &pair->sender->peers[1], sent.base, SPOILED_LENGTH,
                             regx_landing_cts(landing), pair_done, pair);
            pair_run(pair);
            assert_int_equal(pair->dones, told);
            assert_int_equal(pair->receiver->mismatches, told);
            assert_int_equal(pair->receiver->counters.mismatches, 7 * told);
            assert_int_equal(pair->receiver->counters.verified, 7 * told);
            regx_landing_close(pair->receiver->rndv, landing);
        }
        guarded_free(&sent);
        guarded_free(&received);
        pair_close(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_disturbs),
        cmocka_unit_test(out_of_room_at_times),
        cmocka_unit_test(out_of_room_mostly),
        cmocka_unit_test(everything_is_late),
        cmocka_unit_test(registrations_are_refused),
        cmocka_unit_test(regions_cannot_be_written),
        cmocka_unit_test(landings_are_given_back),
        cmocka_unit_test(puts_fail),
        cmocka_unit_test(all_grants_wait_at_once),
        cmocka_unit_test(an_outer_region_serves_its_parts),
        cmocka_unit_test(a_dead_region_is_granted_no_more),
        cmocka_unit_test(a_buffer_with_a_hole_is_no_crash),
        cmocka_unit_test(a_flipped_bit_is_found_where_either_end_verifies),
        cmocka_unit_test(a_spoiled_transfer_is_told_of_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
