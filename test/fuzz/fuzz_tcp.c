/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tcp: what a peer sends, frames and pieces of puts, and the address that it publishes. UCX is played
 * by an interface that reaches everybody. The input is a sequence of steps.
 */
#include "fuzz.h"

#include "transport/tcp/tcp_internal.h"

enum { SELF = 1, PEER = 7, POOL = 4096, REGION = 300, DEVICE = 6, IFACE = 2 };

typedef enum step {
    STEP_MESSAGE, /* as it is */
    STEP_KEYED,   /* with the key of the region */
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
} process_t;

static int is_reachable(uct_iface_h iface, const uct_device_addr_t *device,
                        const uct_iface_addr_t *address)
{
    (void)iface, (void)device, (void)address;
    return 1;
}

static uct_iface_t iface = {.ops = {.iface_is_reachable = is_reachable}};

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
    fuzz_check(process->pool != NULL && process->region != NULL);
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
    process->tcp.iface = &iface;
    process->tcp.device_address.length = DEVICE;
    process->tcp.iface_address.length = IFACE;
}

static void finish(process_t *process)
{
    regx_rkey_table_fini(&process->rkeys);
    regx_tcp_talkers_fini(&process->tcp.talkers);
    free(process->pool);
    free(process->region);
}

static void receive(process_t *process, fuzz_input_t *input, bool keyed)
{
    size_t length = fuzz_number(input, 2);
    uint8_t *message = fuzz_take(input, &length);

    if (keyed && length >= 48) {
        memcpy(message + 24, process->key.bytes, REGX_KEY_SIZE);
    }
    fuzz_check(regx_tcp_receive(&process->tcp, message, length, 0) == UCS_OK);
    free(message);
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
    unsigned received = 0;
    bool accepted = false;

    begin(&process);
    while (input.left > 0) {
        const step_t step = (step_t)(fuzz_number(&input, 1) % STEPS);

        if (step == STEP_ADDRESS) {
            accepted |= connect_to(&process, &input);
        } else if (step != STEP_TAKE_BACK) {
            receive(&process, &input, step == STEP_KEYED);
            received++;
        } else if (process.handle != NULL) {
            regx_rkey_table_remove(&process.rkeys, process.handle);
            process.handle = NULL;
        }
    }
    accepted |= received > process.counters.malformed;
    finish(&process);
    return accepted;
}

static size_t seed_message(unsigned number, uint8_t *to)
{
    static const regx_tcp_frame_t frames[] = {
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
    const size_t length = regx_tcp_encode(&frames[number], to + 3) + frames[number].length;

    to[0] = frames[number].target == REGX_TARGET_REGION ? STEP_KEYED : STEP_MESSAGE;
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
