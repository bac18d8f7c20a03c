/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rendezvous with threads, for the thread sanitizer: in each process one thread makes
 * progress, others open receives, open sends and close receives, all at once; with a cache of
 * registrations, which is told of changes meanwhile.
 */
#include "fake.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/rendezvous.h"

enum {
    PROCESSES = FAKE_PROCESSES,
    RECEIVERS = 2,
    EACH = 50,
    OUTSTANDING = 6,
    TAG_CTS = 1,
    TAG_FIN = 2
};
enum { MESSAGES = PROCESSES * RECEIVERS * EACH };

/* cmocka's assertions are for the thread of the test alone. */
static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "threads: not so: %s\n", what);
        abort();
    }
}

typedef struct message {
    fake_t *from, *to;
    uint8_t *sent, *received;
    size_t length;
    regx_rndv_recv_t *recv;
    uint8_t cts[REGX_CTS_SIZE];
    _Atomic unsigned dones;
    _Atomic bool arrived; /* the FIN */
    bool closed;          /* the thread that closes it */
    struct message *next; /* sends to be opened */
} message_t;

typedef struct process {
    fake_t *fake;
    uint64_t seed; /* of the rule's answers: under the wire's lock */
    pthread_mutex_t lock;
    message_t *to_send; /* by the thread that sends */
} process_t;

static process_t processes[PROCESSES];
static message_t messages[MESSAGES];
static _Atomic unsigned open_messages;

static regx_status_t rule(fake_t *fake, fake_call_t call)
{
    process_t *process = fake->context;
    const uint64_t chance = chance_next(&process->seed) % 100;

    if (call == FAKE_REG) {
        return chance < 5 ? REGX_NO_MEMORY : REGX_OK;
    }
    if (chance < 20) {
        return REGX_AGAIN;
    }
    return call == FAKE_PUT && chance < 50 ? REGX_PENDING : REGX_OK;
}

static void done(void *context, regx_status_t status)
{
    message_t *message = context;
    const uint32_t index = (uint32_t)(message - messages);

    require(status == REGX_OK, "the transfer is well");
    require(atomic_fetch_add(&message->dones, 1) == 0, "told once");
    fake_send(message->from, message->to, TAG_FIN, &index, sizeof(index));
}

static void send_message(message_t *message)
{
    regx_rndv_send_open(message->from->rndv, &message->from->peers[message->to->id], message->sent,
                        message->length, message->cts, done, message);
}

static void close_message(message_t *message)
{
    regx_rndv_recv_close(message->to->rndv, message->recv);
    require(memcmp(message->received, message->sent, message->length) == 0, "all is there");
    message->closed = true;
    atomic_fetch_sub(&open_messages, 1);
}

/* Half of the sends are opened from here, and half of the receives closed. */
static void deliver(fake_t *fake, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    process_t *process = fake->context;
    uint32_t index;

    (void)sender;
    memcpy(&index, data, sizeof(index));
    message_t *message = &messages[index];
    if (tag == TAG_FIN) {
        if (index % 4 < 2) {
            close_message(message);
        }
        atomic_store(&message->arrived, true);
        return;
    }
    require(length == sizeof(index) + REGX_CTS_SIZE, "a CTS");
    memcpy(message->cts, (const uint8_t *)data + sizeof(index), REGX_CTS_SIZE);
    if (index % 2 == 0) {
        send_message(message);
        return;
    }
    pthread_mutex_lock(&process->lock);
    message->next = process->to_send;
    process->to_send = message;
    pthread_mutex_unlock(&process->lock);
}

/* Ends gets in any order, some of them badly. */
static bool end_gets(const process_t *process, unsigned other, uint64_t *seed)
{
    const uint64_t chance = chance_next(seed) % 16;

    return fake_got(process->fake, other, chance % 2, chance == 0 ? REGX_FAILED : REGX_OK) ||
           fake_got(process->fake, other, 0, REGX_OK);
}

static void *make_progress(void *argument)
{
    process_t *process = argument;
    uint64_t seed = process->fake->id;

    while (atomic_load(&open_messages) > 0) {
        bool any = regx_rndv_progress(process->fake->rndv) > 0;

        regx_registry_progress(&process->fake->registry);

        for (unsigned other = 0; other < PROCESSES; other++) {
            any |= fake_receive(process->fake, processes[other].fake);
            any |= fake_complete(process->fake, other, 1);
            any |= fake_complete(process->fake, other, 0);
            any |= end_gets(process, other, &seed);
        }
        if (!any) {
            sched_yield();
        }
    }
    return NULL;
}

static void *send_some(void *argument)
{
    process_t *process = argument;

    while (atomic_load(&open_messages) > 0) {
        pthread_mutex_lock(&process->lock);
        message_t *message = process->to_send;
        if (message != NULL) {
            process->to_send = message->next;
        }
        pthread_mutex_unlock(&process->lock);
        if (message != NULL) {
            send_message(message);
            /* So it is said, and nothing moves: some of it is in use, some kept. */
            fake_changed(message->received, message->length / 2);
            fake_changed(message->sent, message->length);
        } else {
            sched_yield();
        }
    }
    return NULL;
}

/* Opens the messages from `argument` on, a few at a time, and closes what is left to it. */
static void *receive_some(void *argument)
{
    message_t *first = argument;
    unsigned opened = 0;
    unsigned arrived = 0;

    while (arrived < EACH) {
        if (opened < EACH && opened < arrived + OUTSTANDING) {
            message_t *message = &first[opened++];
            const uint32_t index = (uint32_t)(message - messages);
            uint8_t frame[sizeof(index) + REGX_CTS_SIZE];

            message->recv =
                regx_rndv_recv_open(message->to->rndv, &message->to->peers[message->from->id],
                                    message->received, message->length);
            require(message->recv != NULL, "a receive opens");
            memcpy(frame, &index, sizeof(index));
            memcpy(frame + sizeof(index), message->recv, REGX_CTS_SIZE);
            fake_send(message->to, message->from, TAG_CTS, frame, sizeof(frame));
        } else if (atomic_load(&first[arrived].arrived)) {
            message_t *message = &first[arrived++];

            if ((message - messages) % 4 >= 2) {
                close_message(message);
            }
        } else {
            sched_yield();
        }
    }
    return NULL;
}

typedef struct kind {
    const char *name, *strategy;
    uint32_t slots;
    uint64_t cache_bytes;
    regx_granting_t grant;
} kind_t;

static const kind_t kinds[] = {
    {"bounce", "bounce", 64, 0, REGX_GRANT_FINAL},
    {"bounce, two slots", "bounce", 2, 0, REGX_GRANT_FINAL},
    {"pipeline", "pipeline", 64, 0, REGX_GRANT_FINAL},
    {"direct", "direct", 3, 0, REGX_GRANT_FINAL},
    {"read", "read", 64, 0, REGX_GRANT_FINAL},
    {"pipeline, with a cache", "pipeline", 64, 300000, REGX_GRANT_FINAL},
    {"direct, with a cache", "direct", 3, 1000000, REGX_GRANT_FINAL},
    {"read, with a cache", "read", 64, 300000, REGX_GRANT_FINAL},
    {"pipeline, revoked", "pipeline", 64, 300000, REGX_GRANT_SYNCHRONOUS},
    {"pipeline, granted again", "pipeline", 64, 300000, REGX_GRANT_OPTIMISTIC},
};

static void make_messages(uint64_t seed)
{
    memset(messages, 0, sizeof(messages));
    for (unsigned i = 0; i < MESSAGES; i++) {
        message_t *message = &messages[i];
        const unsigned to = i / EACH / RECEIVERS;

        message->to = processes[to].fake;
        message->from = processes[(to + 1 + i % (PROCESSES - 1)) % PROCESSES].fake;
        message->length = 1 + chance_next(&seed) % 40000;
        message->sent = malloc(message->length);
        message->received = calloc(message->length, 1);
        assert_true(message->sent != NULL && message->received != NULL);
        for (size_t at = 0; at < message->length; at++) {
            message->sent[at] = unit_stamp(i, at);
        }
    }
    atomic_store(&open_messages, MESSAGES);
}

static void run_threads(void)
{
    pthread_t threads[PROCESSES * (2 + RECEIVERS)];
    unsigned count = 0;

    for (unsigned i = 0; i < PROCESSES; i++) {
        pthread_create(&threads[count++], NULL, make_progress, &processes[i]);
        pthread_create(&threads[count++], NULL, send_some, &processes[i]);
        for (unsigned r = 0; r < RECEIVERS; r++) {
            pthread_create(&threads[count++], NULL, receive_some,
                           &messages[(i * RECEIVERS + r) * EACH]);
        }
    }
    while (count > 0) {
        pthread_join(threads[--count], NULL);
    }
}

static void close_messages(void)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        assert_true(messages[i].closed);
        assert_int_equal(messages[i].dones, 1);
        assert_memory_equal(messages[i].received, messages[i].sent, messages[i].length);
        fake_changed(messages[i].sent, messages[i].length);
        fake_changed(messages[i].received, messages[i].length);
        free(messages[i].sent);
        free(messages[i].received);
    }
}

static void messages_of_threads_arrive(void **state)
{
    const kind_t *kind = *state;
    uint64_t kept = 0, invalidations = 0, regrants = 0;
    const regx_rndv_config_t config = {.strategy = regx_strategy_find(kind->strategy),
                                       .chunk_size = 4096,
                                       .chunk_depth = 3,
                                       .revocable = kind->grant != REGX_GRANT_FINAL,
                                       .optimistic = kind->grant == REGX_GRANT_OPTIMISTIC};

    for (unsigned i = 0; i < PROCESSES; i++) {
        fake_t *fake = fake_open(i, kind->slots, &config, kind->cache_bytes);

        processes[i] = (process_t){.fake = fake, .seed = i};
        pthread_mutex_init(&processes[i].lock, NULL);
        fake->context = &processes[i];
        fake->rule = rule;
        fake->deliver = deliver;
    }
    for (unsigned i = 0; i < PROCESSES * PROCESSES; i++) {
        fake_connect(processes[i / PROCESSES].fake, processes[i % PROCESSES].fake);
    }
    make_messages(kind->slots);
    run_threads();
    close_messages();
    for (unsigned i = 0; i < PROCESSES; i++) {
        kept += processes[i].fake->counters.misses;
        invalidations += processes[i].fake->counters.invalidations;
        regrants += processes[i].fake->counters.regrants;
        fake_close(processes[i].fake);
        pthread_mutex_destroy(&processes[i].lock);
    }
    assert_int_equal(kept > 0, kind->cache_bytes > 0); /* hits come by chance here */
    assert_int_equal(invalidations > 0, kind->cache_bytes > 0);
    assert_int_equal(regrants > 0, kind->grant != REGX_GRANT_FINAL);
}

int main(void)
{
    struct CMUnitTest tests[sizeof(kinds) / sizeof(kinds[0])];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        tests[i] = (struct CMUnitTest){.name = kinds[i].name,
                                       .test_func = messages_of_threads_arrive,
                                       .initial_state = (void *)(uintptr_t)&kinds[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
