/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rendezvous with threads, for the thread sanitizer: in each process, over shared memory, one
 * thread makes progress, others open receives, open sends and close receives, all at once; with a
 * cache of registrations, which is told of changes meanwhile. The simulator (sim.h) has one thread,
 * and checks more.
 */
#include "../transport/shm/shm_parties.h"

#include "rendezvous/rendezvous.h"

enum { PROCESSES = 3, RECEIVERS = 2, EACH = 25, MESSAGES = PROCESSES * RECEIVERS * EACH };
enum { OUTSTANDING = 6, SLOT = 1024 };
enum { TAG_CTS = 1, TAG_FIN = 2 };

/* cmocka's assertions are for the thread of the test alone. */
static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "threads: not so: %s\n", what);
        abort();
    }
}

typedef struct process process_t;

typedef struct message {
    process_t *from, *to;
    uint8_t *sent, *received;
    size_t length;
    regx_rndv_recv_t *_Atomic recv; /* the sanitizer does not see the order of two mappings */
    uint8_t cts[REGX_CTS_SIZE];
    _Atomic unsigned dones;
    _Atomic bool arrived; /* the FIN */
    bool closed;          /* the thread that closes it */
    struct message *next; /* sends to be opened */
} message_t;

struct process {
    party_t *party;
    regx_pool_t pool;
    regx_registry_t registry;
    regx_rndv_t *rndv;
    regx_peer_t peers[PROCESSES]; /* by number */
    pthread_mutex_t lock;
    message_t *to_send; /* by the thread that sends */
};

static process_t processes[PROCESSES];
static message_t messages[MESSAGES];
static _Atomic unsigned open_messages;

/* All processes live in one address space, so they share what reports its changes. */
static regx_monitor_t monitor;

static void changed(const void *start, size_t length)
{
    regx_inval_log_write(monitor.log, (uintptr_t)start, (uintptr_t)start + length);
}

/* ---- the transport, of which some calls are refused ---- */

static regx_transport_ops_t refusing;

static bool is_refused(unsigned percent)
{
    static _Atomic uint64_t calls;
    uint64_t seed = atomic_fetch_add(&calls, 1);

    return chance_next(&seed) % 100 < percent;
}

static regx_status_t put_or_not(regx_conn_t *conn, regx_put_t *put)
{
    return is_refused(20) ? REGX_AGAIN : regx_shm_ops.put(conn, put);
}

static regx_status_t get_or_not(regx_conn_t *conn, regx_get_t *get)
{
    return is_refused(20) ? REGX_AGAIN : is_refused(5) ? REGX_DENIED : regx_shm_ops.get(conn, get);
}

static regx_status_t reg_or_not(regx_transport_t *transport, void *base, size_t length,
                                unsigned access, regx_mr_t *mr)
{
    return is_refused(5) ? REGX_NO_MEMORY : regx_shm_ops.reg(transport, base, length, access, mr);
}

/* ---- messages ---- */

static void send_frame(const process_t *from, const process_t *to, uint8_t tag, const void *data,
                       size_t length)
{
    regx_conn_t *conn = from->peers[to - processes].conn;

    await(regx_shm_ops.send(conn, tag, data, length, NULL, NULL, 0) != REGX_AGAIN);
}

static void done(void *context, regx_status_t status)
{
    message_t *message = context;
    const uint32_t index = (uint32_t)(message - messages);

    require(status == REGX_OK, "the transfer is well");
    require(atomic_fetch_add(&message->dones, 1) == 0, "told once");
    send_frame(message->from, message->to, TAG_FIN, &index, sizeof(index));
}

static void send_message(message_t *message)
{
    regx_rndv_send_open(message->from->rndv, &message->from->peers[message->to - processes],
                        message->sent, message->length, message->cts, done, message);
}

static void close_message(message_t *message)
{
    regx_rndv_recv_close(message->to->rndv, message->recv);
    require(memcmp(message->received, message->sent, message->length) == 0, "all is there");
    message->closed = true;
    atomic_fetch_sub(&open_messages, 1);
}

/* Half of the sends are opened from here, and half of the receives closed. */
static void take_frame(process_t *process, uint8_t tag, const uint8_t *data)
{
    uint32_t index;

    memcpy(&index, data, sizeof(index));
    message_t *message = &messages[index];
    if (tag == TAG_FIN) {
        if (index % 4 < 2) {
            close_message(message);
        }
        atomic_store(&message->arrived, true);
        return;
    }
    memcpy(message->cts, data + sizeof(index), REGX_CTS_SIZE);
    if (index % 2 == 0) {
        send_message(message);
        return;
    }
    pthread_mutex_lock(&process->lock);
    message->next = process->to_send;
    process->to_send = message;
    pthread_mutex_unlock(&process->lock);
}

static void deliver(party_t *party)
{
    process_t *process = &processes[party == &one ? 0 : party == &two ? 1 : 2];

    if (party->last_immediate != 0) {
        regx_rndv_immediate(process->rndv, party->last_sender, party->last_immediate);
    } else if (party->last_tag == REGX_TAG_CONTROL) {
        regx_rndv_control(process->rndv, party->last_sender, party->last, party->last_length);
    } else {
        take_frame(process, party->last_tag, party->last);
    }
}

static int progress(process_t *process)
{
    const int events = regx_shm_progress(process->party->transport);

    regx_registry_progress(&process->registry);
    return events + regx_rndv_progress(process->rndv);
}

static void *make_progress(void *process)
{
    while (atomic_load(&open_messages) > 0) {
        if (progress(process) == 0) {
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
            changed(message->received, message->length / 2);
            changed(message->sent, message->length);
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

            message->recv = regx_rndv_recv_open(message->to->rndv,
                                                &message->to->peers[message->from - processes],
                                                message->received, message->length, false);
            require(message->recv != NULL, "a receive opens");
            memcpy(frame, &index, sizeof(index));
            memcpy(frame + sizeof(index), message->recv, REGX_CTS_SIZE);
            send_frame(message->to, message->from, TAG_CTS, frame, sizeof(frame));
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
    {"pipeline, revoked", "pipeline", 64, 300000, REGX_GRANT_REVOCABLE},
};

static void make_messages(uint64_t seed)
{
    memset(messages, 0, sizeof(messages));
    for (unsigned i = 0; i < MESSAGES; i++) {
        message_t *message = &messages[i];
        const unsigned to = i / EACH / RECEIVERS;

        message->to = &processes[to];
        message->from = &processes[(to + 1 + i % (PROCESSES - 1)) % PROCESSES];
        message->length = 1 + chance_next(&seed) % 40000;
        message->sent = malloc(message->length);
        message->received = calloc(message->length, 1);
        assert_true(message->sent != NULL && message->received != NULL);
        unit_fill(message->sent, message->length, i, 0);
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
        changed(messages[i].sent, messages[i].length);
        changed(messages[i].received, messages[i].length);
        free(messages[i].sent);
        free(messages[i].received);
    }
}

static void open_process(process_t *process, const kind_t *kind)
{
    static regx_flow_t flow = {.threads = true};
    const regx_transport_t *transport = process->party->transport;
    regx_counters_t *counters = &process->party->counters;
    const regx_cache_config_t cache = {.bytes = kind->cache_bytes, .count = REGX_UNLIMITED};
    const regx_rndv_config_t config = {.strategy = regx_strategy_find(kind->strategy),
                                       .chunk_size = 4096,
                                       .chunk_depth = 3,
                                       .threads = true,
                                       .grant = kind->grant,
                                       .flow = &flow};

    process->party->on_deliver = deliver;
    assert_int_equal(regx_pool_init(&process->pool, transport->pool_memory,
                                    (size_t)kind->slots * SLOT, SLOT, true, counters),
                     REGX_OK);
    assert_int_equal(regx_registry_open(&process->registry, kind->cache_bytes > 0 ? &monitor : NULL,
                                        &cache, process->party->transport, counters),
                     REGX_OK);
    process->rndv = regx_rndv_create(&config, &process->pool, &process->registry, counters);
    assert_non_null(process->rndv);
    pthread_mutex_init(&process->lock, NULL);
}

static void open_processes(const kind_t *kind)
{
    static const conformance_t shm = {.name = "shm", .ops = &regx_shm_ops};
    party_t *const parties[PROCESSES] = {&one, &two, &three};

    tested = &shm;
    memset(processes, 0, sizeof(processes));
    for (unsigned i = 0; i < PROCESSES; i++) {
        party_open(parties[i], ONE + i, true);
        parties[i]->transport->ops = &refusing;
        processes[i].party = parties[i];
        open_process(&processes[i], kind);
    }
    for (unsigned i = 0; i < PROCESSES * PROCESSES; i++) {
        party_t *from = parties[i / PROCESSES];
        const unsigned to = i % PROCESSES;

        if (from != parties[to]) {
            party_connect(from, parties[to]);
            processes[i / PROCESSES].peers[to] = (regx_peer_t){.id = ONE + to, .conn = from->conn};
        }
    }
}

/* Nothing is left, in any layer. */
static void close_process(process_t *process)
{
    const regx_counters_t *counters = &process->party->counters;

    for (unsigned i = 0; i < 100; i++) {
        regx_registry_progress(&process->registry);
    }
    regx_registry_count(&process->registry);
    assert_int_equal(process->pool.unused, process->pool.slots);
    assert_int_equal(counters->registrations, counters->deregistrations);
    assert_int_equal(counters->registered_bytes, 0);
    for (unsigned i = 0; i < PROCESSES; i++) {
        assert_int_equal(process->peers[i].granted, 0);
        assert_int_equal(process->peers[i].writes, 0);
        if (process->peers[i].conn != NULL) {
            regx_shm_ops.disconnect(process->peers[i].conn);
        }
    }
    regx_rndv_destroy(process->rndv);
    regx_registry_close(&process->registry);
    regx_pool_fini(&process->pool);
    pthread_mutex_destroy(&process->lock);
    process->party->on_deliver = NULL;
}

static void messages_of_threads_arrive(void **state)
{
    const kind_t *kind = *state;
    uint64_t kept = 0, invalidations = 0, regrants = 0;
    int events = 0;

    open_processes(kind);
    make_messages(kind->slots);
    run_threads();
    do {
        events = progress(&processes[0]) + progress(&processes[1]) + progress(&processes[2]);
    } while (events > 0);
    close_messages();
    for (unsigned i = 0; i < PROCESSES; i++) {
        close_process(&processes[i]);
        kept += processes[i].party->counters.misses;
        invalidations += processes[i].party->counters.invalidations;
        regrants += processes[i].party->counters.regrants;
    }
    parties_settle();
    for (unsigned i = 0; i < PROCESSES; i++) {
        party_close(processes[i].party);
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
    monitor.log = regx_inval_log_open();
    refusing = regx_shm_ops;
    refusing.put = put_or_not;
    refusing.get = get_or_not;
    refusing.reg = reg_or_not;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
