/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rendezvous engine: a process with receives and sends open, and a peer that sends it control
 * messages, CTS, exposures and immediate data as it likes. Puts and gets end when a step says so,
 * in any order and any way. The first byte of the input chooses strategy and wire, the rest is
 * steps.
 */
#include "fuzz.h"

#include "base/util.h"
#include "rendezvous/send.h"

/* Of the first byte: the strategy; bits, of which ON_NODE says that the kernel copies to the peer. */
enum { READ = 3, REMAP = 5 };
enum { ON_NODE = 0x80, VERIFY = 0x40, REVOCABLE = 0x20 };
enum { TO_GET = 0x80 }; /* of the byte that names a receive to be opened */
enum { PEER = 7, STRANGER = 9 };
enum { PAGE = 4096, SLOTS = 8, SLOT = 4096, CHUNK = 8192, LENGTH_MAX = 3 << 16 };

typedef enum step {
    STEP_PROGRESS,
    STEP_RECV,
    STEP_CLOSE,
    STEP_GET,
    STEP_SEND,
    STEP_CONTROL,
    STEP_IMMEDIATE,
    STEP_RULE,
    STEP_PUT_DONE,
    STEP_GET_DONE,
    STEP_CHANGE,
    STEPS
} step_t;

static regx_monitor_t monitor; /* of all processes, one after the other */

/* ---- steps ---- */

static void lost(void *context, const regx_peer_t *peer, const char *what, bool may_be_longer)
{
}

static size_t read_length(fuzz_input_t *input)
{
    return 1 + (fuzz_number(input, 2) << fuzz_number(input, 1) % 3) % LENGTH_MAX;
}

static void open_recv(fuzz_input_t *input)
{
    const unsigned which = (unsigned)fuzz_number(input, 1);
    receive_t *receive = &process->receives[which % OPEN];
    const size_t length = read_length(input);

    if (receive->recv == NULL) {
        /* By remap it matters where in its page a buffer begins. */
        const size_t skew = (size_t)(receive - process->receives) * 1000;

        fuzz_check(posix_memalign(&receive->memory, PAGE, skew + length) == 0);
        receive->recv =
            regx_rndv_recv_open(process->rndv, &process->peer, (char *)receive->memory + skew,
                                length, (which & TO_GET) != 0);
        fuzz_check(receive->recv != NULL);
    }
}

static void close_recv(receive_t *receive)
{
    if (receive->recv != NULL && !receive->getting) {
        regx_rndv_recv_close(process->rndv, receive->recv);
        receive->recv = NULL;
        if (process->grave_count == sizeof(process->graves) / sizeof(process->graves[0])) {
            exit(1); /* no input is that long */
        }
        process->graves[process->grave_count++] = receive->memory;
    }
}

static void got(void *context, regx_status_t status)
{
    receive_t *receive = context;

    fuzz_check(receive->getting);
    receive->getting = false;
    if (status == REGX_OK) {
        process->heard++;
    }
}

static void get_exposed(fuzz_input_t *input)
{
    receive_t *receive = &process->receives[fuzz_number(input, 1) % OPEN];
    size_t length = REGX_CTS_SIZE;
    uint8_t *exposure = fuzz_take(input, &length);

    if (length == REGX_CTS_SIZE && receive->recv != NULL && !receive->getting &&
        receive->recv->phase == REGX_RECV_OPENED) {
        receive->getting = true;
        regx_rndv_recv_get(process->rndv, receive->recv, exposure, got, receive);
    }
    free(exposure);
}

static void sent(void *context, regx_status_t status)
{
    sending_t *sending = context;

    fuzz_check(sending->open); /* told once */
    sending->open = false;
    free(sending->buffer);
}

static void open_send(fuzz_input_t *input)
{
    sending_t *sending = &process->sendings[fuzz_number(input, 1) % OPEN];
    const size_t size = read_length(input);
    size_t length = REGX_CTS_SIZE;
    uint8_t *cts = fuzz_take(input, &length);

    if (length == REGX_CTS_SIZE && !sending->open) {
        *sending = (sending_t){.open = true, .buffer = calloc(1, size)};
        fuzz_check(sending->buffer != NULL);
        regx_rndv_send_open(process->rndv, &process->peer, sending->buffer, size, cts, sent,
                            sending);
    }
    free(cts);
}

static void hear(fuzz_input_t *input)
{
    const uint64_t sender = fuzz_number(input, 1) == STRANGER ? STRANGER : PEER;
    size_t length = fuzz_number(input, 1);
    uint8_t *message = fuzz_take(input, &length);
    regx_control_t control;

    if (regx_control_unpack(message, length, &control)) {
        fuzz_check(control.version == REGX_CONTROL_VERSION &&
                   process_is_well_formed(&control, length) &&
                   memcmp(&control, message, length) == 0);
    }
    process->heard++;
    regx_rndv_control(process->rndv, sender, message, length);
    free(message);
}

static void set_rule(fuzz_input_t *input)
{
    static const regx_status_t of_sends[] = {REGX_OK, REGX_AGAIN};
    static const regx_status_t of_puts[] = {REGX_OK, REGX_PENDING, REGX_AGAIN, REGX_DENIED,
                                            REGX_INVALID};
    static const regx_status_t of_gets[] = {REGX_OK, REGX_AGAIN, REGX_DENIED, REGX_INVALID};
    static const regx_status_t of_registers[] = {REGX_OK, REGX_NO_MEMORY, REGX_DENIED};

    process->sends = of_sends[fuzz_number(input, 1) % 2];
    process->puts = of_puts[fuzz_number(input, 1) % 5];
    process->gets = of_gets[fuzz_number(input, 1) % 4];
    process->registers = of_registers[fuzz_number(input, 1) % 3];
}

static regx_status_t read_status(fuzz_input_t *input)
{
    return fuzz_number(input, 1) % 4 == 3 ? REGX_FAILED : REGX_OK;
}

/* So it is said: nothing moves. */
static void tell_of_change(fuzz_input_t *input)
{
    const receive_t *receive = &process->receives[fuzz_number(input, 1) % OPEN];
    const uintptr_t first = (uintptr_t)receive->memory + fuzz_number(input, 1) * PAGE;

    if (receive->recv != NULL && process->registry.monitor != NULL) {
        regx_inval_log_write(monitor.log, first, first + PAGE);
    }
}

static void take_step(fuzz_input_t *input)
{
    unsigned which;

    switch ((step_t)(fuzz_number(input, 1) % STEPS)) {
    case STEP_RECV:
        open_recv(input);
        break;
    case STEP_CLOSE:
        close_recv(&process->receives[fuzz_number(input, 1) % OPEN]);
        break;
    case STEP_GET:
        get_exposed(input);
        break;
    case STEP_SEND:
        open_send(input);
        break;
    case STEP_CONTROL:
        hear(input);
        break;
    case STEP_IMMEDIATE:
        process->heard++;
        regx_rndv_immediate(process->rndv, PEER, (uint32_t)fuzz_number(input, 3));
        break;
    case STEP_RULE:
        set_rule(input);
        break;
    case STEP_PUT_DONE:
        which = (unsigned)fuzz_number(input, 1);
        if (process->put_count > 0) {
            process_end_put(which % process->put_count, read_status(input));
        }
        break;
    case STEP_GET_DONE:
        which = (unsigned)fuzz_number(input, 1);
        if (process->get_count > 0) {
            process_end_get(which % process->get_count, read_status(input));
        }
        break;
    case STEP_CHANGE:
        tell_of_change(input);
        break;
    default:
        regx_rndv_progress(process->rndv);
    }
}

/* ---- its beginning and its end ---- */

static void begin(uint64_t how)
{
    static const char *const names[] = {
        "bounce", "pipeline", "direct", [READ] = "read", "together", [REMAP] = "remap"};
    static regx_flow_t flow;
    const char *name = names[(how & 0x0f) % (REMAP + 1)];
    const regx_rndv_config_t config = {.strategy = regx_strategy_find(name),
                                       .chunk_size = CHUNK,
                                       .chunk_depth = 4,
                                       .verify = (how & VERIFY) != 0,
                                       .grant = (how & REVOCABLE) != 0 ? REGX_GRANT_REVOCABLE
                                                                       : REGX_GRANT_FINAL,
                                       .lost = lost,
                                       .flow = &flow};

    process = calloc(1, sizeof(*process));
    fuzz_check(process != NULL);
    process->pool_memory = calloc(SLOTS, SLOT);
    fuzz_check(process->pool_memory != NULL);
    process->transport = (regx_transport_t){.ops = &process_wire,
                                            .pool_memory = process->pool_memory,
                                            .pool_size = (size_t)SLOTS * SLOT,
                                            .max_frame = 256,
                                            .registers = (how & ON_NODE) == 0};
    process->conn = (regx_conn_t){.transport = &process->transport,
                                  .peer = PEER,
                                  .shares_pool = (how & ON_NODE) != 0,
                                  .single_copy = (how & ON_NODE) != 0};
    process->peer = (regx_peer_t){.id = PEER, .conn = &process->conn};
    fuzz_check(regx_registry_open(&process->registry, NULL, &(regx_cache_config_t){.bytes = 0},
                                  &process->transport, &process->counters) == REGX_OK);
    if (config.grant != REGX_GRANT_FINAL) { /* only now: else the registry would have a cache */
        monitor.log = monitor.log != NULL ? monitor.log : regx_inval_log_open();
        fuzz_check(monitor.log != NULL);
        process->registry.monitor = &monitor;
    }
    fuzz_check(regx_pool_init(&process->pool, process->pool_memory, (size_t)SLOTS * SLOT, SLOT,
                              false, &process->counters) == REGX_OK);
    process->rndv =
        regx_rndv_create(&config, &process->pool, &process->registry, &process->counters);
    fuzz_check(process->rndv != NULL);
}

/* The peer goes, and the MPI closes what is open. All that the engine has taken it gives back. */
static void finish(void)
{
    process->sends = process->puts = process->gets = REGX_UNREACHABLE;
    while (process->put_count > 0) {
        process_end_put(0, REGX_FAILED);
    }
    while (process->get_count > 0) {
        process_end_get(0, REGX_FAILED);
    }
    regx_rndv_forget(process->rndv, &process->peer);
    for (unsigned i = 0; i < OPEN; i++) {
        fuzz_check(!process->sendings[i].open && !process->receives[i].getting);
        close_recv(&process->receives[i]);
    }
    regx_rndv_progress(process->rndv);
    fuzz_check(process->registered == 0 && regx_pool_unused(&process->pool) == SLOTS);
    regx_rndv_destroy(process->rndv);
    regx_registry_close(&process->registry);
    regx_pool_fini(&process->pool);
    for (unsigned i = 0; i < process->grave_count; i++) {
        free(process->graves[i]);
    }
    free(process->pool_memory);
    free(process);
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size};

    begin(fuzz_number(&input, 1));
    while (input.left > 0) {
        take_step(&input);
    }
    const bool accepted = process->counters.malformed == 0 &&
                          (process->heard > 0 || process->said.type != 0 || process->get_count > 0);
    finish();
    return accepted;
}

/* ---- seeds ---- */

static size_t put_bytes(uint8_t *to, size_t at, const void *bytes, size_t length)
{
    memcpy(to + at, bytes, length);
    return at + length;
}

static size_t put_control(uint8_t *to, size_t at, const regx_control_t *control)
{
    uint8_t message[REGX_CONTROL_MAX];
    const size_t length = regx_control_pack(control, message);
    const uint8_t step[] = {STEP_CONTROL, PEER, (uint8_t)length};

    return put_bytes(to, put_bytes(to, at, step, sizeof(step)), message, length);
}

static const uint8_t end_of_receive[] = {STEP_GET_DONE, 0, 0, STEP_CLOSE, 0};

static regx_handle_t first_receive; /* of a process */

/* A receive of 12 KiB, and what its sender says. */
static size_t seed_recv(unsigned how, regx_control_type_t type, uint8_t *to)
{
    const uint8_t step[] = {(uint8_t)how, STEP_RECV, 0, 0xff, 0x2f, 0};
    fuzz_input_t input = {step + 2, sizeof(step) - 2};

    begin(how);
    open_recv(&input);
    const regx_rndv_recv_t *recv = process->receives[0].recv;
    first_receive = recv->cts.recv;
    regx_control_t control = {.to = first_receive,
                              .from = {1, 1},
                              .length = type == REGX_CONTROL_ATP_SLOT ? SLOT : CHUNK};
    if (how == (ON_NODE | REMAP) && recv->path != REGX_PATH_remap) {
        type = REGX_CONTROL_READY; /* no pages can be moved on this machine */
    }
    control.type = (uint8_t)type;
    if (type == REGX_CONTROL_ATP_SLOT && recv->path == REGX_PATH_bounce) {
        control.slot = recv->cts.slots[0].slot;
        control.length = recv->cts.slots[0].length;
    }
    finish();
    size_t at = put_bytes(to, 0, step, sizeof(step));
    at = put_control(to, at, &control);
    return put_bytes(to, at, end_of_receive, sizeof(end_of_receive));
}

/* A receive of 12 KiB of which the first byte changes, and what its sender says then. */
static size_t seed_revoked(uint8_t *to)
{
    const uint8_t changed[] = {STEP_CHANGE, 0, 0, STEP_PROGRESS};
    size_t at = seed_recv(REVOCABLE | 1, REGX_CONTROL_READY, to) - sizeof(end_of_receive);
    regx_control_t control = {.type = REGX_CONTROL_ATP_CHUNK, .from = {1, 1}, .length = CHUNK};

    at = put_bytes(to, at, changed, sizeof(changed));
    control.to = first_receive;
    at = put_control(to, at, &control);
    return put_bytes(to, at, end_of_receive, sizeof(end_of_receive));
}

/* A send of 12 KiB, and what its receiver says. */
static size_t seed_send(regx_path_t path, regx_control_type_t type, uint8_t *to)
{
    const uint8_t step[] = {ON_NODE | READ, STEP_SEND, 0, 0xff, 0x2f, 0};
    regx_cts_t cts = {.version = REGX_CONTROL_VERSION,
                      .why = REGX_WHY_asked,
                      .path = (uint8_t)path,
                      .count = 1,
                      .recv = {1, 1},
                      .length = 12288};
    uint8_t bytes[5 + REGX_CTS_SIZE];

    if (type == REGX_CONTROL_RESUME || type == REGX_CONTROL_REVOKE ||
        type == REGX_CONTROL_ARRIVED) {
        cts.bits = REGX_CTS_REVOCABLE;
    }
    if (path == REGX_PATH_bounce) {
        cts.slots[0] = (regx_slot_grant_t){SLOT, SLOT};
    } else {
        cts.chunk_length = CHUNK;
    }
    memcpy(bytes, step + 2, 4);
    memcpy(bytes + 4, &cts, sizeof(cts));
    begin(step[0]);
    fuzz_input_t input = {bytes, 4 + REGX_CTS_SIZE};
    open_send(&input);
    fuzz_check(process->sendings[0].open);
    regx_control_t control = {.type = (uint8_t)type};
    for (uint32_t id = 0; id < process->rndv->sends.count; id++) {
        const regx_rndv_send_t *send = regx_handle_table_at(&process->rndv->sends, id);

        if (send != NULL) {
            control.to = send->handle;
        }
    }
    finish();
    if (type == REGX_CONTROL_CTS_SLOTS) {
        control.offset = SLOT;
        control.slot_count = 1;
        control.slots[0] = (regx_slot_grant_t){0, SLOT};
    } else if (type == REGX_CONTROL_CTS_CHUNK) {
        control.offset = CHUNK;
        control.length = 12288 - CHUNK;
    } else {
        control.length = CHUNK;
        control.bits = type == REGX_CONTROL_ARRIVED ? REGX_CONTROL_CHECKSUM : 0;
    }
    size_t at = put_bytes(to, 0, step, 2);
    at = put_bytes(to, at, bytes, 4 + REGX_CTS_SIZE);
    at = put_control(to, at, &control);
    to[at++] = STEP_PROGRESS;
    return at;
}

static size_t seed_exposed(uint8_t *to)
{
    const uint8_t step[] = {ON_NODE | READ, STEP_RECV, TO_GET, 0xff, 0x2f, 0, STEP_GET, 0};
    const regx_exposure_t exposure = {
        .version = REGX_CONTROL_VERSION, .path = REGX_EXPOSURE, .length = 12288};
    uint8_t bytes[REGX_CTS_SIZE] = {0};

    memcpy(bytes, &exposure, sizeof(exposure));
    size_t at = put_bytes(to, 0, step, sizeof(step));
    at = put_bytes(to, at, bytes, sizeof(bytes));
    return put_bytes(to, at, end_of_receive, sizeof(end_of_receive));
}

size_t fuzz_seed(unsigned number, uint8_t *to)
{
    static const struct {
        unsigned how;
        regx_control_type_t type;
    } received[] = {{0, REGX_CONTROL_READY},
                    {0, REGX_CONTROL_ATP_SLOT},
                    {1, REGX_CONTROL_ATP_CHUNK},
                    {1, REGX_CONTROL_NACK},
                    {ON_NODE | REMAP, REGX_CONTROL_ATP_CHUNK},
                    {ON_NODE | REMAP, REGX_CONTROL_NACK},
                    {REVOCABLE | 1, REGX_CONTROL_ATP_CHUNK},
                    {REVOCABLE | 1, REGX_CONTROL_NACK}};
    static const struct {
        regx_path_t path;
        regx_control_type_t type;
    } sent[] = {{REGX_PATH_bounce, REGX_CONTROL_CTS_SLOTS},
                {REGX_PATH_pipeline, REGX_CONTROL_CTS_CHUNK},
                {REGX_PATH_pipeline, REGX_CONTROL_REVOKE},
                {REGX_PATH_pipeline, REGX_CONTROL_ARRIVED},
                {REGX_PATH_pipeline, REGX_CONTROL_RESUME}};
    enum { RECEIVED = sizeof(received) / sizeof(received[0]) };
    enum { SENT = sizeof(sent) / sizeof(sent[0]) };

    if (number < RECEIVED) {
        return seed_recv(received[number].how, received[number].type, to);
    }
    number -= RECEIVED;
    return number < SENT        ? seed_send(sent[number].path, sent[number].type, to)
           : number == SENT     ? seed_exposed(to)
           : number == SENT + 1 ? seed_revoked(to)
                                : 0;
}
