/* SPDX-License-Identifier: BSD-3-Clause
 *
 * One-sided operations: a process that offers two windows and asks a peer for something, and what
 * that peer sends it. The input is a sequence of steps.
 */
#include "fuzz.h"

#include "base/util.h"
#include "onesided/onesided.h"

enum { PEER = 7, STRANGER = 9, FRAME = 256, WINDOW = 200, REQUESTS = 8, LOCAL = 600 };

typedef enum step { STEP_DELIVER, STEP_ASK, STEP_PROGRESS, STEP_ROOM, STEP_FORGET, STEPS } step_t;

static unsigned room; /* frames that the wire still takes */
static unsigned pending, done;

static regx_status_t send_frame(regx_conn_t *conn, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t pack, void *payload,
                                size_t payload_length)
{
    uint8_t frame[FRAME];

    fuzz_check(tag == REGX_TAG_ONESIDED && pack == NULL &&
               header_length + payload_length <= conn->transport->max_frame);
    if (room == 0) {
        return REGX_AGAIN;
    }
    room--;
    memcpy(frame, header, header_length);
    if (payload_length > 0) {
        memcpy(frame + header_length, payload, payload_length); /* the sanitizer looks at it */
    }
    return REGX_OK;
}

static const regx_transport_ops_t ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "fuzz", .send = send_frame};

typedef struct asked { /* a request, and the memory that it is about */
    regx_onesided_request_t request;
    bool open;
    uint8_t *local;
} asked_t;

typedef struct process {
    regx_counters_t counters;
    _Atomic unsigned waiting, ended;
    regx_transport_t transport;
    regx_conn_t conn;
    regx_onesided_peer_t peer;
    regx_onesided_t *onesided;
    uint8_t *memory; /* of the window */
    regx_onesided_window_t window, empty;
    asked_t asked[REQUESTS];
} process_t;

static void ended(regx_onesided_request_t *request, regx_status_t status)
{
    asked_t *asked = REGX_CONTAINER_OF(request, asked_t, request);

    fuzz_check(asked->open &&
               (status == REGX_OK || status == REGX_INVALID || status == REGX_UNREACHABLE));
    asked->open = false;
    free(asked->local);
    done++;
}

static void unanswered(void *context, uint64_t peer)
{
    (void)context, (void)peer;
}

static void begin(process_t *process)
{
    const regx_onesided_config_t config = {.counters = &process->counters,
                                           .waiting = &process->waiting,
                                           .ended = &process->ended,
                                           .unanswered = unanswered};
    uint8_t name[REGX_ONESIDED_NAME_SIZE];

    memset(process, 0, sizeof(*process));
    room = 64;
    pending = done = 0;
    process->transport.ops = &ops;
    process->transport.max_frame = FRAME;
    process->conn.transport = &process->transport;
    process->onesided = regx_onesided_create(&config);
    process->memory = calloc(1, WINDOW);
    fuzz_check(process->onesided != NULL && process->memory != NULL);
    fuzz_check(
        regx_onesided_offer(process->onesided, &process->window, process->memory, WINDOW, name));
    fuzz_check(regx_onesided_offer(process->onesided, &process->empty, NULL, 0, name));
    regx_onesided_add(process->onesided, &process->peer, PEER, &process->conn);
}

/* An address counts from the start of the window, so that the fuzzer finds it. */
static void move_address(const process_t *process, uint8_t *frame, size_t length)
{
    uint64_t address;

    if (length < REGX_ONESIDED_HEADER || frame[1] < REGX_ONESIDED_PUT ||
        frame[1] > REGX_ONESIDED_ATOMIC) {
        return;
    }
    memcpy(&address, frame + 24, sizeof(address));
    address += (uintptr_t)process->memory;
    memcpy(frame + 24, &address, sizeof(address));
}

static void deliver(process_t *process, fuzz_input_t *input)
{
    const uint64_t sender = fuzz_number(input, 1) == STRANGER ? STRANGER : PEER;
    size_t length = fuzz_number(input, 1);
    uint8_t *frame = fuzz_take(input, &length);

    move_address(process, frame, length);
    regx_onesided_deliver(process->onesided, sender, frame, length);
    free(frame);
}

static void ask(process_t *process, fuzz_input_t *input)
{
    static const regx_onesided_type_t types[] = {REGX_ONESIDED_PUT, REGX_ONESIDED_GET,
                                                 REGX_ONESIDED_ATOMIC};
    const regx_onesided_type_t type = types[fuzz_number(input, 1) % 3];
    const size_t length = fuzz_number(input, 2) % (LOCAL + 1);
    asked_t *asked = NULL;

    for (unsigned i = 0; i < REQUESTS && asked == NULL; i++) {
        asked = process->asked[i].open ? NULL : &process->asked[i];
    }
    if (asked == NULL) {
        return;
    }
    *asked = (asked_t){.open = true, .local = calloc(1, length > 0 ? length : 1)};
    fuzz_check(asked->local != NULL);
    asked->request = (regx_onesided_request_t){
        .type = type, .local = asked->local, .length = length, .size = 8, .done = ended};
    pending++;
    fuzz_check(regx_onesided_ask(process->onesided, &process->peer, &asked->request) ==
               REGX_PENDING);
}

static void forget(process_t *process)
{
    regx_onesided_forget(process->onesided, &process->peer);
    fuzz_check(pending == done && process->waiting == 0);
}

static void finish(process_t *process)
{
    forget(process);
    regx_onesided_withdraw(process->onesided, &process->window);
    regx_onesided_withdraw(process->onesided, &process->empty);
    regx_onesided_destroy(process->onesided);
    free(process->memory);
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size};
    process_t process;
    unsigned delivered = 0;

    begin(&process);
    while (input.left > 0) {
        switch (fuzz_number(&input, 1) % STEPS) {
        case STEP_DELIVER:
            deliver(&process, &input);
            delivered++;
            break;
        case STEP_ASK:
            ask(&process, &input);
            break;
        case STEP_ROOM:
            room = (unsigned)fuzz_number(&input, 1) % 4;
            break;
        case STEP_FORGET:
            forget(&process);
            regx_onesided_add(process.onesided, &process.peer, PEER, &process.conn);
            break;
        default:
            regx_onesided_progress(process.onesided);
            regx_onesided_complete(process.onesided);
        }
    }
    const bool accepted = delivered > process.counters.malformed;
    finish(&process);
    return accepted;
}

/* A frame of the peer's, as a step. */
static size_t seed_frame(const regx_onesided_message_t *message, size_t data, uint8_t *to)
{
    const size_t length = REGX_ONESIDED_HEADER + data;

    regx_onesided_pack(message, to + 3);
    to[0] = STEP_DELIVER;
    to[1] = PEER;
    to[2] = (uint8_t)length;
    memset(to + 3 + length - data, 0x5a, data);
    return 3 + length;
}

size_t fuzz_seed(unsigned number, uint8_t *to)
{
    const regx_onesided_message_t requests[] = {
        {.type = REGX_ONESIDED_PUT, .address = 8, .detail = 1},
        {.type = REGX_ONESIDED_GET, .address = 8, .value = 100},
        {.type = REGX_ONESIDED_ATOMIC, .address = 16, .size = 8, .value = 5},
    };
    const regx_onesided_message_t answers[] = {
        {.type = REGX_ONESIDED_REPLY},
        {.type = REGX_ONESIDED_DATA},
        {.type = REGX_ONESIDED_REPLY, .value = 77},
    };
    regx_onesided_message_t message;
    process_t process;
    size_t size;

    if (number >= 6) {
        return 0;
    }
    /* The names that a process gives which has just begun. */
    begin(&process);
    if (number < 3) {
        message = requests[number];
        message.window = process.window.handle;
        size = seed_frame(&message, number == 0 ? 40 : 0, to);
        to[size++] = STEP_PROGRESS;
    } else {
        const uint8_t step[] = {STEP_ASK, (uint8_t)(number - 3), 60, 0};
        fuzz_input_t input = {step + 1, sizeof(step) - 1};

        ask(&process, &input);
        message = answers[number - 3];
        message.request = process.asked[0].request.handle;
        memcpy(to, step, sizeof(step));
        size = sizeof(step) + seed_frame(&message, number == 4 ? 60 : 0, to + sizeof(step));
        to[size++] = STEP_PROGRESS;
    }
    finish(&process);
    return size;
}
