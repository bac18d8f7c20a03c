/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp: what a peer sends, frames and pieces of puts, however they are cut; what a stranger says who
 * connects; and the address that a peer publishes. The network is a pair of sockets. The input is a
 * sequence of steps.
 */
#include "fuzz.h"

#include <netinet/in.h>
#include <unistd.h>

#include "transport/tcp/tcp_internal.h"

enum { SELF = 1, PEER = 7, POOL = 4096, REGION = 300 };
#define TOKEN UINT64_C(0x1122334455667788)

typedef enum step {
    STEP_BYTES, /* as they are, behind those before */
    STEP_KEYED, /* with the key of the region */
    STEP_STRANGER,
    STEP_TAKE_BACK,
    STEP_ADDRESS,
    STEPS
} step_t;

typedef struct process {
    regx_tcp_t tcp;
    regx_counters_t counters;
    regx_rkey_table_t rkeys;
    uint8_t *pool, *region;
    regx_key_t key;
    void *handle; /* of the key; NULL: taken back */
    int peer;     /* the other end of the link that bytes come by; -1: there is none */
    bool greeted;
} process_t;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    uint8_t copy[65536];

    (void)context, (void)sender, (void)tag;
    fuzz_check(length <= sizeof(copy));
    memcpy(copy, data, length); /* the sanitizer looks at it */
}

static void begin(process_t *process)
{
    memset(process, 0, sizeof(*process));
    process->pool = calloc(1, POOL);
    process->region = calloc(1, REGION);
    process->tcp.incoming = malloc(REGX_TCP_STAGING);
    fuzz_check(process->pool != NULL && process->region != NULL && process->tcp.incoming != NULL);
    regx_rkey_table_init(&process->rkeys, false);
    fuzz_check(regx_rkey_table_add(&process->rkeys, process->region, REGION,
                                   REGX_ACCESS_REMOTE_WRITE, &process->key,
                                   &process->handle) == REGX_OK);
    process->tcp.super.pool_memory = process->pool;
    process->tcp.super.pool_size = POOL;
    process->tcp.config.self = SELF;
    process->tcp.config.rkeys = &process->rkeys;
    process->tcp.config.counters = &process->counters;
    process->tcp.config.events.deliver = deliver;
    process->tcp.at.ss_family = AF_INET;
    process->tcp.at_length = sizeof(struct sockaddr_in);
    process->tcp.token = TOKEN;
    process->peer = -1;
}

static void hang_up(process_t *process)
{
    if (process->peer >= 0) {
        close(process->peer);
        process->peer = -1;
    }
}

static void finish(process_t *process)
{
    hang_up(process);
    for (regx_tcp_link_t *link = process->tcp.links; link != NULL; link = link->next) {
        regx_tcp_link_end(link);
    }
    regx_tcp_sweep(&process->tcp);
    regx_rkey_table_fini(&process->rkeys);
    free(process->tcp.incoming);
    free(process->pool);
    free(process->region);
}

/* A link to the process; `peer` is its other end. */
static regx_tcp_link_t *make_link(process_t *process, regx_tcp_link_state_t state, int *peer)
{
    regx_tcp_link_t *link = calloc(1, sizeof(*link));
    int ends[2];

    fuzz_check(link != NULL && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    *link = (regx_tcp_link_t){.tcp = &process->tcp,
                              .next = process->tcp.links,
                              .peer = PEER,
                              .fd = ends[0],
                              .state = state,
                              .expects = REGX_TCP_SHORT_READ};
    process->tcp.links = link;
    process->tcp.link_count++;
    *peer = ends[1];
    return link;
}

/* Has the link read what its other end writes. */
static void hand_over(regx_tcp_link_t *link, int peer, const uint8_t *bytes, size_t length)
{
    fuzz_check(length == 0 || write(peer, bytes, length) == (ssize_t)length);
    while (link->state != REGX_TCP_LINK_ENDED && regx_tcp_link_read(link)) {
    }
}

static void receive(process_t *process, fuzz_input_t *input, bool keyed)
{
    size_t length = fuzz_number(input, 2);
    uint8_t *bytes = fuzz_take(input, &length);
    regx_tcp_link_t *link = process->tcp.links;

    if (process->peer < 0) {
        link = make_link(process, REGX_TCP_LINK_OPEN, &process->peer);
    }
    if (keyed && length >= 48) {
        memcpy(bytes + 24, process->key.bytes, REGX_KEY_SIZE);
    }
    hand_over(link, process->peer, bytes, length);
    if (link->state == REGX_TCP_LINK_ENDED) {
        hang_up(process);
    }
    regx_tcp_sweep(&process->tcp);
    free(bytes);
}

static void knock(process_t *process, fuzz_input_t *input)
{
    size_t length = fuzz_number(input, 2);
    uint8_t *bytes = fuzz_take(input, &length);
    int peer;
    regx_tcp_link_t *link = make_link(process, REGX_TCP_LINK_STRANGER, &peer);

    hand_over(link, peer, bytes, length);
    process->greeted |= link->state == REGX_TCP_LINK_OPEN;
    regx_tcp_link_end(link);
    regx_tcp_sweep(&process->tcp);
    close(peer);
    free(bytes);
}

/* Whether the address was accepted. */
static bool connect_to(process_t *process, fuzz_input_t *input)
{
    size_t length = fuzz_number(input, 2);
    uint8_t *address = fuzz_take(input, &length);
    regx_conn_t *conn = NULL;
    const bool accepted =
        regx_tcp_connect(&process->tcp.super, PEER, false, address, length, &conn) == REGX_OK;

    free(address);
    if (accepted) {
        regx_tcp_disconnect(conn);
    }
    return accepted;
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size};
    process_t process;
    bool accepted = false;

    begin(&process);
    while (input.left > 0) {
        const step_t step = (step_t)(fuzz_number(&input, 1) % STEPS);

        if (step == STEP_ADDRESS) {
            accepted |= connect_to(&process, &input);
        } else if (step == STEP_STRANGER) {
            knock(&process, &input);
        } else if (step != STEP_TAKE_BACK) {
            receive(&process, &input, step == STEP_KEYED);
        } else if (process.handle != NULL) {
            regx_rkey_table_remove(&process.rkeys, process.handle);
            process.handle = NULL;
        }
    }
    accepted |= process.greeted || (uint64_t)process.tcp.events > process.counters.malformed;
    finish(&process);
    return accepted;
}

static size_t seed_message(unsigned number, uint8_t *to)
{
    static const regx_tcp_frame_t frames[] = {
        {.kind = REGX_TCP_CONNECT, .sender = PEER, .length = sizeof(uint64_t)},
        {.kind = REGX_TCP_HELLO, .sender = PEER},
        {.kind = REGX_TCP_FRAME, .tag = 65, .sender = PEER, .length = 100},
        {.kind = REGX_TCP_PIECE, .sender = PEER, .offset = 1024, .length = 64},
        {.kind = REGX_TCP_PIECE,
         .sender = PEER,
         .target = REGX_TARGET_REGION,
         .offset = 100,
         .length = 200},
        {.kind = REGX_TCP_LAST,
         .tag = 40,
         .sender = PEER,
         .target = REGX_TARGET_REGION,
         .length = 200,
         .notice = "a notice",
         .notice_length = 8},
    };
    if (number >= sizeof(frames) / sizeof(frames[0])) {
        return 0;
    }
    const uint64_t token = TOKEN;
    const size_t head = regx_tcp_encode(&frames[number], to + 3);
    const size_t length = head + frames[number].length;

    to[0] = frames[number].target == REGX_TARGET_REGION ? STEP_KEYED : STEP_BYTES;
    if (frames[number].kind == REGX_TCP_CONNECT) {
        to[0] = STEP_STRANGER;
        memcpy(to + 3 + head, &token, sizeof(token));
    }
    to[1] = (uint8_t)length;
    to[2] = (uint8_t)(length >> 8);
    return 3 + length;
}

size_t fuzz_seed(unsigned number, uint8_t *to)
{
    process_t process;

    memset(to, 0, FUZZ_SEED_MAX);
    if (number > 0) {
        return seed_message(number - 1, to);
    }
    begin(&process);
    const size_t length = regx_tcp_address(&process.tcp.super, to + 3);
    finish(&process);
    to[0] = STEP_ADDRESS;
    to[1] = (uint8_t)length;
    return 3 + length;
}
