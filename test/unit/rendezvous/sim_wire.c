/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulated wire. Over a device puts are written, and end, in their order, and a notice keeps
 * its place among the frames. On a node the kernel copies: puts to a buffer end in any order, and
 * their notices follow then.
 */
#include "sim.h"

#include "rendezvous/control.h"

/* In the place of a window's number: what was exposed. Base and length follow. */
#define EXPOSED UINT32_MAX
/* In the place of its generation: it is staged. */
#define STAGED 1u
#define STAGED_MAX 100000u /* bytes: of two lengths the one */

static sim_process_t *of_conn(regx_conn_t *conn)
{
    return (sim_process_t *)conn->transport;
}

static sim_process_t *other(const sim_process_t *process)
{
    return &sim.process[1 - process->number];
}

static regx_status_t answer(const sim_process_t *process, sim_occasion_t occasion)
{
    sim_check(process->link != SIM_DOWN);
    if (process->link != SIM_UP) {
        return REGX_UNREACHABLE;
    }
    const sim_fault_t *fault = sim_strikes(occasion);

    if (fault != NULL && fault->status == REGX_UNREACHABLE) {
        sim_break(process->number);
    }
    return fault != NULL ? fault->status : REGX_OK;
}

void sim_append(sim_process_t *from, uint8_t tag, const void *data, size_t length,
                uint32_t immediate, bool held)
{
    sim_frame_t *frame = &from->frames[from->end++];

    sim_check(from->end < SIM_FRAMES && length <= SIM_FRAME);
    frame->held = held;
    frame->dropped = false;
    frame->tag = tag;
    frame->immediate = immediate;
    frame->length = length;
    memcpy(frame->data, data, length);
}

unsigned sim_given_back;

static void note_of_receiver(sim_message_t *message, uint8_t type)
{
    const bool grants = type == REGX_CONTROL_CTS_CHUNK || type == REGX_CONTROL_CTS_SLOTS;

    sim_check(!message->outdated || !grants || sim.always != NULL);
    message->outdated &= type != REGX_CONTROL_RESUME;
    message->revoked |= type == REGX_CONTROL_REVOKE;
    message->revoked &= type != REGX_CONTROL_RESUME;
    sim.changes[0].due |= type == REGX_CONTROL_REVOKE || type == REGX_CONTROL_RESUME;
    if (type == REGX_CONTROL_ARRIVED) {
        message->looked = ++sim.tick;
    }
}

/* Which send and receive belong together, and when a receiver looked for the last time. */
static void note_control(const sim_process_t *from, const uint8_t *bytes)
{
    for (unsigned i = 0; i < sim.message_count; i++) {
        sim_message_t *message = &sim.messages[i];
        const bool sender = message->from == from->number;

        if (sender && bytes[1] <= REGX_CONTROL_DIFFERS && message->recv != NULL &&
            memcmp(bytes + 4, message->recv_handle, 8) == 0) {
            memcpy(message->send_handle, bytes + offsetof(regx_control_t, from), 8);
            sim_given_back += message->revoked && bytes[1] == REGX_CONTROL_NACK && bytes[2] == 0;
        } else if (!sender && message->recv != NULL &&
                   memcmp(bytes + 4, message->send_handle, 8) == 0) {
            note_of_receiver(message, bytes[1]);
        }
    }
}

static regx_status_t wire_send(regx_conn_t *conn, uint8_t tag, const void *header,
                               size_t header_length, regx_pack_t pack, void *context, size_t length)
{
    sim_process_t *from = of_conn(conn);
    const regx_status_t status = answer(from, SIM_AT_SEND);

    sim_check(pack == NULL && length == 0 && header_length <= REGX_CONTROL_MAX);
    if (status == REGX_OK) {
        note_control(from, header);
        sim_append(from, tag, header, header_length, 0, false);
    }
    return status;
}

/* ---- what a key gives the right to ---- */

static char *exposed(const sim_process_t *process, const regx_key_t *key, uint64_t offset,
                     size_t length)
{
    size_t all;
    uint8_t *base;

    memcpy(&base, key->bytes + 8, sizeof(base));
    memcpy(&all, key->bytes + 16, sizeof(all));
    for (unsigned i = 0; i < sim.message_count; i++) {
        const sim_message_t *message = &sim.messages[i];

        if (message->exposed && message->from == process->number && message->source == base &&
            message->length == all && offset <= all && length <= all - offset) {
            return (char *)base + offset;
        }
    }
    return NULL;
}

/* Memory of that process; NULL: the key gives no right to it. */
static char *keyed(sim_process_t *process, const regx_key_t *key, unsigned access, uint64_t offset,
                   size_t length, sim_window_t **window)
{
    uint32_t number, generation;

    *window = NULL;
    memcpy(&number, key->bytes, sizeof(number));
    memcpy(&generation, key->bytes + 4, sizeof(generation));
    if (number == EXPOSED && access == REGX_ACCESS_REMOTE_READ) {
        return exposed(process, key, offset, length);
    }
    if (number >= SIM_WINDOWS) {
        return NULL;
    }
    *window = &process->windows[number];
    return (*window)->open && (*window)->generation == generation &&
                   ((*window)->access & access) != 0 && offset <= (*window)->length &&
                   length <= (*window)->length - offset
               ? (*window)->base + offset
               : NULL;
}

static char *target_of(sim_process_t *from, const regx_put_t *put, sim_window_t **window)
{
    sim_process_t *to = other(from);

    if (put->target == REGX_TARGET_REGION) {
        return keyed(to, &put->key, REGX_ACCESS_REMOTE_WRITE, put->offset, put->length, window);
    }
    *window = NULL;
    return put->offset <= to->transport.pool_size &&
                   put->length <= to->transport.pool_size - put->offset
               ? (char *)to->pool_memory + put->offset
               : NULL;
}

/* Local memory is registered for that, if it has to be. */
static void check_local(const regx_mr_t *region, const void *local, size_t length, unsigned access,
                        bool needed)
{
    const sim_window_t *window = region != NULL ? region->handle : NULL;
    const char *start = local;

    sim_check(window != NULL || !needed);
    sim_check(window == NULL ||
              (window->open && (window->access & access) != 0 && start >= window->base &&
               length <= window->length && start + length <= window->base + window->length));
}

/* ---- puts and gets ---- */

static void push(sim_process_t *process, const sim_op_t *op)
{
    sim_check(process->op_count < SIM_OPEN);
    process->ops[process->op_count++] = *op;
}

static void append_notice(sim_process_t *from, const regx_put_t *put, bool held)
{
    note_control(from, put->notice);
    sim_append(from, put->tag, put->notice, put->notice_length,
               sim.scenario->immediates ? put->immediate : 0, held);
}

/* Bytes to memory of a window: those of pages that were replaced since it was registered go to the
 * old pages. */
static void copy_to(const sim_window_t *window, char *to, const char *from, size_t length)
{
    for (size_t at = 0, piece; at < length; at += piece) {
        uint8_t *page = (uint8_t *)to + at;

        piece = SIM_PAGE - (uintptr_t)page % SIM_PAGE;
        piece = piece < length - at ? piece : length - at;
        if (window == NULL || !sim_is_stale(window, page)) {
            memcpy(page, from + at, piece);
        }
    }
}

/* No more is to be written at once than the transport wants, but two writes. */
static void check_put_inflight(const sim_process_t *process)
{
    const size_t max = process->transport.put_inflight_max;
    size_t bytes = 0, writes = 0;

    for (unsigned i = 0; i < process->op_count; i++) {
        const regx_put_t *put = process->ops[i].put;
        const bool chunk = put != NULL && put->target == REGX_TARGET_REGION;

        bytes += chunk ? put->length : 0;
        writes += chunk;
    }
    sim_check(max == 0 || writes < 2 || bytes < max);
}

static regx_status_t wire_put(regx_conn_t *conn, regx_put_t *put)
{
    sim_process_t *from = of_conn(conn);
    const bool chunk = put->target == REGX_TARGET_REGION;
    regx_status_t status = answer(from, SIM_AT_PUT);
    sim_window_t *window;

    if (chunk) {
        check_put_inflight(from);
        status = status == REGX_OK ? answer(from, SIM_AT_CHUNK) : status;
    }
    char *to = target_of(from, put, &window);
    if (to == NULL && (status == REGX_OK || status == REGX_AGAIN)) {
        sim_check(sim.hostile || other(from)->link != SIM_UP);
        return REGX_INVALID;
    }
    check_local(put->region, put->local, put->length, REGX_ACCESS_LOCAL,
                chunk && from->transport.registers);
    if (status == REGX_AGAIN) { /* bytes may have been written */
        copy_to(window, to, put->local, put->length / 2);
    }
    if (status != REGX_OK) {
        return status;
    }
    if (!chunk && sim_chance(2) == 0) {
        copy_to(window, to, put->local, put->length);
        append_notice(from, put, false);
        from->puts++;
        return REGX_OK;
    }
    sim_op_t op = {.put = put};
    if (!conn->shares_pool) {
        append_notice(from, put, true);
        op.notice = &from->frames[from->end - 1];
    }
    push(from, &op);
    return REGX_PENDING;
}

static regx_status_t wire_get(regx_conn_t *conn, regx_get_t *get)
{
    sim_process_t *process = of_conn(conn);
    const regx_status_t status = answer(process, SIM_AT_GET);
    sim_window_t *window;
    uint32_t staged;

    if (status != REGX_OK) {
        return status;
    }
    sim_check(get->assisted == (sim.scenario->path == REGX_PATH_together) ||
              sim.scenario->path == REGX_PATH_eager);
    memcpy(&staged, get->key.bytes + 4, sizeof(staged));
    if (keyed(other(process), &get->key, REGX_ACCESS_REMOTE_READ, get->offset, get->length,
              &window) == NULL) {
        sim_check(sim.hostile || other(process)->link != SIM_UP);
        return REGX_INVALID;
    }
    if (get->staged && (window != NULL || staged != STAGED)) {
        return REGX_AGAIN;
    }
    push(process, &(sim_op_t){.get = get});
    return REGX_PENDING;
}

static regx_status_t outcome(const sim_process_t *process, const sim_op_t *op)
{
    const bool chunk = op->put != NULL && op->put->target == REGX_TARGET_REGION;
    regx_status_t status = answer(process, op->put != NULL ? SIM_AT_WRITTEN : SIM_AT_GOT);

    if (status == REGX_OK && chunk) {
        status = answer(process, SIM_AT_CHUNK_WRITTEN);
    }
    return status;
}

/* How many bytes go. */
static size_t part(size_t length, regx_status_t status)
{
    return status == REGX_OK ? length : status == REGX_FAILED ? length / 2 : 0;
}

static void make_put(sim_process_t *process, sim_op_t *op, char *to, const sim_window_t *window)
{
    const regx_put_t *put = op->put;

    check_local(put->region, put->local, put->length, REGX_ACCESS_LOCAL, false);
    copy_to(window, to, put->local, part(put->length, op->status));
    if (op->notice != NULL) {
        op->notice->held = false;
        op->notice->dropped = op->status != REGX_OK;
    } else if (op->status == REGX_OK) {
        append_notice(process, put, false);
    }
    process->puts += op->status == REGX_OK;
}

static void make_get(sim_process_t *process, const sim_op_t *op, const char *from)
{
    const regx_get_t *get = op->get;

    check_local(get->region, get->local, get->length, REGX_ACCESS_ANY_WRITE,
                !process->conn.single_copy);
    copy_to(get->region != NULL ? get->region->handle : NULL, get->local, from,
            part(get->length, op->status));
    process->gets += op->status == REGX_OK;
}

void sim_make(sim_process_t *process, unsigned index)
{
    sim_op_t *op = &process->ops[index];
    sim_window_t *window;
    char *remote = op->put != NULL ? target_of(process, op->put, &window)
                                   : keyed(other(process), &op->get->key, REGX_ACCESS_REMOTE_READ,
                                           op->get->offset, op->get->length, &window);
    char *local = op->put != NULL ? (char *)(uintptr_t)op->put->local : op->get->local;
    const size_t length = op->put != NULL ? op->put->length : op->get->length;

    op->made = true;
    op->status = outcome(process, op);
    sim_check(remote != NULL || sim.hostile || other(process)->link != SIM_UP ||
              process->link != SIM_UP);
    /* The kernel finds no memory there. A device has the old pages. */
    if (remote == NULL || (process->conn.single_copy &&
                           (sim_is_gone(remote, length) || sim_is_gone(local, length)))) {
        op->status = op->status == REGX_OK ? REGX_FAILED : op->status;
        remote = NULL;
    }
    const bool corrupt = op->status == REGX_OK && sim_strikes(SIM_AT_BYTES) != NULL;

    if (remote == NULL) {
        if (op->notice != NULL) {
            op->notice->held = false;
            op->notice->dropped = true;
        }
    } else if (op->put != NULL) {
        make_put(process, op, remote, window);
    } else {
        make_get(process, op, remote);
    }
    if (corrupt) {
        sim.corrupt = true;
        (op->put != NULL ? remote : local)[sim_chance((unsigned)length)] ^= 0x10;
    }
}

void sim_end(sim_process_t *process, unsigned index, regx_status_t otherwise)
{
    const sim_op_t op = process->ops[index];

    process->op_count--;
    memmove(&process->ops[index], &process->ops[index + 1],
            (process->op_count - index) * sizeof(op));
    if (!op.made && op.notice != NULL) {
        op.notice->held = false;
        op.notice->dropped = true;
    }
    if (op.put != NULL) {
        op.put->done(op.put, op.made ? op.status : otherwise);
    } else {
        op.get->done(op.get, op.made ? op.status : otherwise);
    }
}

/* ---- memory ---- */

/* Either copy, in steps that are the same on any processor. */
static bool wire_has_next(const regx_transport_t *transport)
{
    return sim.time % 2 == 0;
}

static void wire_expose(regx_transport_t *transport, const void *base, size_t length,
                        regx_key_t *key)
{
    const uint32_t number = EXPOSED;

    memset(key, 0, sizeof(*key));
    memcpy(key->bytes, &number, sizeof(number));
    memcpy(key->bytes + 8, &base, sizeof(base));
    memcpy(key->bytes + 16, &length, sizeof(length));
}

static bool wire_stage(regx_conn_t *conn, const void *base, size_t length, regx_key_t *key)
{
    const uint32_t staged = STAGED;

    if (!sim.scenario->stages || length > STAGED_MAX) {
        return false;
    }
    memcpy(key->bytes + 4, &staged, sizeof(staged));
    of_conn(conn)->staged++;
    return true;
}

static void wire_unstage(regx_transport_t *transport, const regx_key_t *key)
{
    sim_check(((sim_process_t *)transport)->staged > 0);
    ((sim_process_t *)transport)->staged--;
}

static regx_status_t wire_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    sim_process_t *process = (sim_process_t *)transport;
    uint32_t number = 0;

    const sim_fault_t *fault = sim_strikes(SIM_AT_REG);
    if (fault != NULL) {
        return fault->status;
    }
    if (sim_is_gone(base, length)) {
        return REGX_DENIED;
    }
    if (sim.scenario->longest > 0 && length > sim.scenario->longest) {
        return REGX_NO_MEMORY;
    }
    while (number < SIM_WINDOWS - 1 && process->windows[number].open) {
        number++;
    }
    sim_check(!process->windows[number].open);
    sim_window_t *window = &process->windows[number];
    window->base = base;
    window->length = length;
    window->access = access;
    window->generation++;
    window->tick = ++sim.tick;
    window->open = true;
    process->open_windows++;
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = window};
    memcpy(mr->key.bytes, &number, sizeof(number));
    memcpy(mr->key.bytes + 4, &window->generation, sizeof(window->generation));
    return REGX_OK;
}

static void wire_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    sim_window_t *window = mr->handle;

    sim_check(window->open);
    window->open = false;
    ((sim_process_t *)transport)->open_windows--;
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
}

const regx_transport_ops_t sim_ops = {.abi = REGX_TRANSPORT_ABI,
                                      .name = "sim",
                                      .send = wire_send,
                                      .put = wire_put,
                                      .get = wire_get,
                                      .node = {.has_next = wire_has_next,
                                               .expose = wire_expose,
                                               .stage = wire_stage,
                                               .unstage = wire_unstage},
                                      .reg = wire_reg,
                                      .dereg = wire_dereg};
