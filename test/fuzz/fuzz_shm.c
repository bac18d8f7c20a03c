/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory: a process, and a neighbour that may write whatever it likes to all that both map.
 * That is the process's connect queue, claim cells and stages, its mailbox towards the neighbour,
 * and the neighbour's own memory: mailbox, stages, what it publishes. The input is a sequence of
 * steps.
 *
 * What is made of a segment's name is not looked at here (slabs.h). What a peer has this process
 * read for it is not looked at either: the kernel trusts it as far (assist.h).
 */
#include "fuzz.h"
#include "slabs.h"
#include "transport/shm/key.h"
#include "transport/shm/shm_internal.h"

enum {
    SELF = 1,
    PEER = 7,
    POOL = 65536,
    RING = REGX_MAILBOX_PAYLOAD_MIN,
    OPERATIONS = 8,
    LOCAL = 3 << 16
};

/* ---- the process and its neighbour ---- */

typedef enum step {
    STEP_PROGRESS,
    STEP_REQUEST,
    STEP_LINE,
    STEP_POST,
    STEP_SCRIBBLE,
    STEP_SEND,
    STEP_ZCOPY,
    STEP_PUT,
    STEP_GET,
    STEP_STAGE,
    STEP_UNSTAGE,
    STEP_CONNECT,
    STEPS
} step_t;

typedef struct operation {
    bool open;
    uint8_t *local;
    union {
        regx_zcopy_t zcopy;
        regx_put_t put;
        regx_get_t get;
    };
} operation_t;

typedef struct process {
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conn;
    regx_key_t staged;
    bool stages;
    uint8_t *exposed;
    operation_t operations[OPERATIONS];
    /* The neighbour's: */
    size_t main, boxes; /* numbers of slabs */
    regx_vm_cookie_t cookie;
    regx_mailbox_out_t out;
    unsigned delivered;
} process_t;

static regx_shm_main_t *main_of(size_t slab)
{
    return (regx_shm_main_t *)(void *)slab_base(slab);
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    process_t *process = context;
    uint8_t copy[REGX_SHM_MAX_FRAME + POOL];

    (void)sender, (void)tag;
    fuzz_check(length <= sizeof(copy));
    memcpy(copy, data, length); /* the sanitizer looks at it */
    process->delivered++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    (void)context, (void)peer, (void)what;
}

static void end_operation(operation_t *operation)
{
    fuzz_check(operation->open);
    operation->open = false;
    free(operation->local);
}

static void zcopy_done(regx_zcopy_t *zcopy, regx_status_t status)
{
    (void)status;
    end_operation(REGX_CONTAINER_OF(zcopy, operation_t, zcopy));
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    (void)status;
    end_operation(REGX_CONTAINER_OF(put, operation_t, put));
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    (void)status;
    end_operation(REGX_CONTAINER_OF(get, operation_t, get));
}

static void publish(const process_t *process, regx_shm_address_t *address)
{
    memset(address, 0, sizeof(*address));
    slab_name(process->main, &address->main);
    address->pool_offset = regx_shm_stage_offset() + REGX_STAGE_BYTES;
    address->pool_size = POOL;
    address->cookie = process->cookie;
    address->pid = PEER_PID;
}

static void begin(process_t *process)
{
    const regx_transport_config_t config = {
        .self = SELF,
        .pool_size = POOL,
        .pool_min = POOL,
        .counters = &process->counters,
        .events = {.context = process, .deliver = deliver, .broken = broken}};
    char error[256];

    memset(process, 0, sizeof(*process));
    process->cookie = (regx_vm_cookie_t){{0x1234, 0x5678}};
    fuzz_check(regx_shm_ops.open(&config, error, sizeof(error), &process->transport) == REGX_OK);
    process->main = slab_take(regx_shm_stage_offset() + REGX_STAGE_BYTES + POOL);
    process->boxes = slab_take(regx_mailbox_size(RING));
    fuzz_check(process->main < SLABS && process->boxes < SLABS);
    main_of(process->main)->queue.cookie = process->cookie;
    regx_mailbox_memory_t *box = (regx_mailbox_memory_t *)(void *)slab_base(process->boxes);
    memset(box, 0, sizeof(*box));
    box->owner = process->cookie;
    regx_mailbox_out_init(&process->out, box, RING);
}

/* Over what the steps have written so far. */
static void scribble(fuzz_input_t *input, void *to, size_t size)
{
    const size_t at = fuzz_number(input, 2) % size;
    size_t length = regx_min((size_t)fuzz_number(input, 1), size - at);
    uint8_t *bytes = fuzz_take(input, &length);

    memcpy((char *)to + at, bytes, length);
    free(bytes);
}

static void request(process_t *process, fuzz_input_t *input)
{
    regx_connect_request_t wanted = {.sender = PEER,
                                     .cookie = process->cookie,
                                     .pid = PEER_PID,
                                     .mailbox_ring = RING,
                                     .pool_offset = regx_shm_stage_offset() + REGX_STAGE_BYTES,
                                     .pool_size = POOL};

    slab_name(process->boxes, &wanted.mailboxes);
    slab_name(process->main, &wanted.pool);
    scribble(input, &wanted, sizeof(wanted));
    regx_connect_queue_request(regx_shm_of(process->transport)->queue, &wanted);
}

/* The neighbour's next line, of any kind. */
static void write_line(process_t *process, fuzz_input_t *input)
{
    const uint32_t head = (uint32_t)fuzz_number(input, 4);
    size_t length = fuzz_number(input, 1) % (REGX_MAILBOX_INLINE + 1);
    uint8_t *bytes = fuzz_take(input, &length);

    memcpy(regx_mailbox_next_line(&process->out)->data, bytes, length);
    regx_mailbox_publish(&process->out, (uint8_t)head, (uint16_t)(head >> 8),
                         (regx_frame_kind_t)(head >> 24));
    free(bytes);
}

/* The neighbour's next frame, well formed. */
static void post(process_t *process, fuzz_input_t *input)
{
    static uint8_t frame[REGX_MAILBOX_MAX];
    const size_t length = fuzz_number(input, 2) % (sizeof(frame) + 1);

    regx_mailbox_post(&process->out, 65, frame, 0, NULL, frame, length);
}

static void scribble_any(process_t *process, fuzz_input_t *input)
{
    regx_shm_t *shm = regx_shm_of(process->transport);
    const regx_shm_conn_t *conn = process->conn != NULL ? regx_shm_conn_of(process->conn) : NULL;
    const size_t after = offsetof(regx_shm_main_t, busy);

    switch (fuzz_number(input, 1) % 5) {
    case 0:
        scribble(input, shm->queue, sizeof(*shm->queue));
        break;
    case 1:
        scribble(input, (char *)regx_shm_main(shm) + after, sizeof(regx_shm_main_t) - after);
        break;
    case 2:
        scribble(input, slab_base(process->main) + after, sizeof(regx_shm_main_t) - after);
        break;
    case 3:
        scribble(input, process->out.memory, sizeof(*process->out.memory));
        break;
    default:
        if (conn != NULL && conn->box.memory != NULL) {
            scribble(input, conn->box.memory, sizeof(*conn->box.memory));
        }
    }
}

/* A free operation with memory of so many bytes; NULL: there is none. */
static operation_t *begin_operation(process_t *process, size_t length)
{
    for (unsigned i = 0; i < OPERATIONS && process->conn != NULL; i++) {
        operation_t *operation = &process->operations[i];

        if (!operation->open) {
            *operation = (operation_t){.open = true, .local = malloc(length > 0 ? length : 1)};
            fuzz_check(operation->local != NULL);
            memset(operation->local, 0x33, length);
            return operation;
        }
    }
    return NULL;
}

static size_t read_length(fuzz_input_t *input)
{
    return (fuzz_number(input, 2) << fuzz_number(input, 1) % 3) % (LOCAL + 1);
}

static void read_key(fuzz_input_t *input, size_t length, regx_key_t *key)
{
    regx_shm_key_t named = {fuzz_number(input, 2), length, {0, 0}};

    named.stage.id = (uint32_t)(UINT32_MAX - fuzz_number(input, 1));
    named.stage.generation = (uint32_t)fuzz_number(input, 1);
    regx_shm_key_pack(named, key);
}

static void send_frame(process_t *process, fuzz_input_t *input)
{
    static uint8_t payload[REGX_SHM_MAX_FRAME + 1];
    const size_t length = fuzz_number(input, 2) % (sizeof(payload) + 1);

    if (process->conn != NULL) {
        regx_shm_ops.send(process->conn, 65, NULL, 0, NULL, payload, length);
    }
}

static void send_zcopy(process_t *process, fuzz_input_t *input)
{
    const size_t length = fuzz_number(input, 2);
    operation_t *operation = begin_operation(process, 0);

    if (operation != NULL) {
        operation->zcopy = (regx_zcopy_t){
            .data = process->transport->pool_memory, .length = length, .done = zcopy_done};
        if (regx_shm_ops.send_zcopy(process->conn, &operation->zcopy) != REGX_PENDING) {
            end_operation(operation);
        }
    }
}

static void put(process_t *process, fuzz_input_t *input)
{
    const size_t length = read_length(input);
    operation_t *operation = begin_operation(process, length);

    if (operation != NULL) {
        operation->put = (regx_put_t){.local = operation->local,
                                      .length = length,
                                      .target = (regx_target_t)(fuzz_number(input, 1) % 2),
                                      .offset = fuzz_number(input, 2),
                                      .notice_length = 8,
                                      .done = put_done};
        read_key(input, length, &operation->put.key);
        if (regx_shm_ops.put(process->conn, &operation->put) != REGX_PENDING) {
            end_operation(operation);
        }
    }
}

static void get(process_t *process, fuzz_input_t *input)
{
    const size_t length = read_length(input);
    const uint64_t bits = fuzz_number(input, 1);
    operation_t *operation = begin_operation(process, length);

    if (operation != NULL) {
        operation->get = (regx_get_t){.local = operation->local,
                                      .length = length,
                                      .staged = (bits & 1) != 0,
                                      .assisted = (bits & 2) != 0,
                                      .done = get_done};
        read_key(input, length, &operation->get.key);
        if (regx_shm_ops.get(process->conn, &operation->get) != REGX_PENDING) {
            end_operation(operation);
        }
    }
}

static void unstage(process_t *process)
{
    if (process->stages) {
        regx_shm_ops.unstage(process->transport, &process->staged);
        process->stages = false;
        free(process->exposed);
    }
}

static void stage(process_t *process, fuzz_input_t *input)
{
    const size_t length = 1 + fuzz_number(input, 2);

    unstage(process);
    if (process->conn != NULL) {
        process->exposed = calloc(1, length);
        fuzz_check(process->exposed != NULL);
        regx_shm_expose(process->exposed, length, &process->staged);
        process->stages =
            regx_shm_ops.stage(process->conn, process->exposed, length, &process->staged);
        if (!process->stages) {
            free(process->exposed);
        }
    }
}

static void disconnect(process_t *process)
{
    if (process->conn != NULL) {
        regx_shm_ops.disconnect(process->conn);
        process->conn = NULL;
    }
}

static void connect_to(process_t *process, fuzz_input_t *input)
{
    regx_shm_address_t address;

    disconnect(process);
    publish(process, &address);
    scribble(input, &address, sizeof(address));
    regx_shm_ops.connect(process->transport, PEER, &address, sizeof(address), &process->conn);
}

static void take_step(process_t *process, fuzz_input_t *input)
{
    switch ((step_t)(fuzz_number(input, 1) % STEPS)) {
    case STEP_REQUEST:
        request(process, input);
        break;
    case STEP_LINE:
        write_line(process, input);
        break;
    case STEP_POST:
        post(process, input);
        break;
    case STEP_SCRIBBLE:
        scribble_any(process, input);
        break;
    case STEP_SEND:
        send_frame(process, input);
        break;
    case STEP_ZCOPY:
        send_zcopy(process, input);
        break;
    case STEP_PUT:
        put(process, input);
        break;
    case STEP_GET:
        get(process, input);
        break;
    case STEP_STAGE:
        stage(process, input);
        break;
    case STEP_UNSTAGE:
        unstage(process);
        break;
    case STEP_CONNECT:
        connect_to(process, input);
        break;
    default:
        regx_shm_ops.progress(process->transport);
    }
}

/* All ends, whatever the neighbour has written. */
static void finish(process_t *process)
{
    unstage(process);
    main_of(process->main)->queue.closed = 1; /* it reads nothing more */
    disconnect(process);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        fuzz_check(!process->operations[i].open);
    }
    regx_shm_ops.close(process->transport);
    slab_give_back(process->main);
    slab_give_back(process->boxes);
    fuzz_check(slab_mappings() == 0);
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size};
    process_t process;

    begin(&process);
    while (input.left > 0) {
        take_step(&process, &input);
    }
    const bool accepted =
        process.counters.malformed == 0 &&
        (process.delivered > 0 || process.counters.transport[REGX_COUNTER_bytes_shm] > 0);
    finish(&process);
    return accepted;
}

/* Nothing is scribbled over. */
#define PLAIN 0, 0, 0
#define CONNECT STEP_CONNECT, PLAIN
#define REQUEST STEP_REQUEST, PLAIN
#define P STEP_PROGRESS

size_t fuzz_seed(unsigned number, uint8_t *to)
{
    static const fuzz_seed_t seeds[] = {
        FUZZ_SEED(REQUEST, STEP_POST, 8, 0, P, P),
        FUZZ_SEED(REQUEST, STEP_POST, 200, 0, STEP_POST, 0, 8, P, STEP_POST, 0, 16, P, P),
        FUZZ_SEED(REQUEST, STEP_LINE, 65, 0, 0, REGX_FRAME_ZCOPY, 20, 0, 0, 0, 0, 0, 0, 0, 0, 100,
                  0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, P),
        FUZZ_SEED(REQUEST, STEP_LINE, 0, sizeof(regx_assist_frame_t), 0, REGX_FRAME_ASSIST,
                  sizeof(regx_assist_frame_t), 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0,
                  0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, P, P, P),
        FUZZ_SEED(CONNECT, STEP_SEND, 8, 0, STEP_SEND, 0, 8, P),
        FUZZ_SEED(CONNECT, STEP_ZCOPY, 8, 0, P, STEP_PUT, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, P),
        FUZZ_SEED(CONNECT, STEP_PUT, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, P, P),
        FUZZ_SEED(CONNECT, STEP_GET, 0, 128, 2, 0, 0, 0, 0, 0, P, P, P),
        FUZZ_SEED(CONNECT, STEP_GET, 0, 128, 2, 2, 0, 0, 0, 0, P, P, P, P),
        FUZZ_SEED(CONNECT, STEP_SEND, 8, 0, STEP_GET, 0, 1, 0, 1, 0, 0, 16, 1, STEP_SCRIBBLE, 2, 0,
                  0, 0, P, STEP_STAGE, 100, 0, P, STEP_UNSTAGE),
        FUZZ_SEED(CONNECT, STEP_SEND, 8, 0, STEP_STAGE, 0, 16, P, STEP_UNSTAGE),
    };

    return fuzz_seed_of(seeds, sizeof(seeds) / sizeof(seeds[0]), number, to);
}
