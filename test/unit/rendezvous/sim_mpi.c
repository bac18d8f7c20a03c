/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The MPI library of the simulator, as ob1 is (btl/rdma.c): RTS, perhaps with an exposure; a get of
 * the whole, or a CTS and a put; FIN.
 *
 * A buffer that is given back is overwritten at once: what still read it then would send wrong
 * bytes, and what still wrote to it is found at the end.
 */
#include "sim.h"

#include "base/util.h"
#include "rendezvous/control.h"

enum { RTS = 1, CTS, FIN };                                   /* frames of the MPI library, … */
enum { AT_BYTES = 3, FRAME_SIZE = AT_BYTES + REGX_CTS_SIZE }; /* … and what is in them */
enum { OPEN = 0x11, GIVEN_BACK = 0xcc, GUARD = 0xee, GUARD_SIZE = 64 };

/* ---- buffers ---- */

static unsigned number_of(const sim_message_t *message)
{
    return (unsigned)(message - sim.messages);
}

/* The memory beside the buffer, of which nothing may be written. */
static void check_guards(const sim_message_t *message)
{
    for (unsigned i = 0; i < GUARD_SIZE; i++) {
        sim_check(message->target[-1 - (int)i] == GUARD);
        sim_check(message->target[message->length + i] == GUARD);
    }
}

static void check_content(const sim_message_t *message)
{
    size_t at = 0;

    if (sim.hostile || sim.corrupt) {
        return;
    }
    sim_memory_excuse(message);
    if (memcmp(message->target, message->content, message->length) != 0) {
        while (message->target[at] == message->content[at]) {
            at++;
        }
        sim_fail("message %u: byte %zu of %zu is wrong (%02x)", number_of(message), at,
                 message->length, message->target[at]);
    }
    check_guards(message);
}

static void give_back_target(sim_message_t *message)
{
    const uintptr_t start = (uintptr_t)message->target;

    message->recv = NULL;
    message->closed = true;
    message->rank = ++sim.closed;
    sim_memory_come_back(message);
    memset(message->target, GIVEN_BACK, message->length);
    if (sim.scenario->changes) {
        sim_memory_replaced(start, start + message->length);
        sim_memory_report(start, start + message->length);
    }
}

static void give_back_source(sim_message_t *message, regx_status_t status)
{
    sim_process_t *process = &sim.process[message->from];

    if (message->exposed) {
        regx_rndv_unexpose(process->rndv, &message->exposure);
        message->exposed = false;
    }
    sim_check(!message->sent);
    message->sent = true;
    message->status = status;
    memset(message->source, GIVEN_BACK, message->length);
}

void sim_mpi_check(void)
{
    for (unsigned i = 0; i < sim.message_count && !sim.hostile; i++) {
        const sim_message_t *message = &sim.messages[i];

        if (message->closed && !(sim.scenario->reuses && i + 2 < sim.message_count)) {
            sim_check(unit_is_all(message->target, message->length, GIVEN_BACK));
        }
    }
}

/* ---- the protocol ---- */

static void frame(unsigned from, uint8_t type, const sim_message_t *message, const uint8_t *bytes)
{
    uint8_t data[FRAME_SIZE] = {type, (uint8_t)number_of(message), bytes != NULL};

    if (bytes != NULL) {
        memcpy(data + AT_BYTES, bytes, REGX_CTS_SIZE);
    }
    sim_append(&sim.process[from], SIM_TAG_MPI, data, sizeof(data), 0, false);
}

void sim_mpi_begin(sim_message_t *message)
{
    sim_process_t *process = &sim.process[message->from];

    memcpy(message->source, message->content, message->length);
    message->begun = true;
    message->exposed = regx_rndv_expose(process->rndv, &process->peer, message->source,
                                        message->length, &message->exposure);
    frame(message->from, RTS, message, message->exposed ? message->exposure.bytes : NULL);
}

/* A byte of what the MPI library carries is not what the peer's regx made. */
static void forge(sim_occasion_t at, uint8_t bytes[REGX_CTS_SIZE])
{
    if (sim_strikes(at)) {
        sim.hostile = true;
        bytes[sim_chance(56)] ^= (uint8_t)(1u << sim_chance(8));
    }
}

static void send_cts(sim_message_t *message)
{
    const regx_cts_t *cts = (const regx_cts_t *)message->recv; /* which it begins with */

    message->watched = (cts->bits & REGX_CTS_REVOCABLE) != 0;
    if (sim.process[1 - message->from].link == SIM_UP) {
        frame(1 - message->from, CTS, message, (const uint8_t *)message->recv);
    }
}

static void got(void *context, regx_status_t status)
{
    sim_message_t *message = context;
    sim_process_t *process = &sim.process[1 - message->from];

    sim_check(message->reading && message->recv != NULL);
    message->reading = false;
    if (status != REGX_OK) {
        send_cts(message);
        return;
    }
    regx_rndv_recv_close(process->rndv, message->recv);
    check_content(message);
    give_back_target(message);
    frame(process->number, FIN, message, NULL);
}

static void open_receive(sim_message_t *message)
{
    sim_process_t *process = &sim.process[1 - message->from];
    uint8_t *target = message->target;

    memset(target - GUARD_SIZE, GUARD, GUARD_SIZE);
    memset(target, OPEN, message->length);
    memset(target + message->length, GUARD, GUARD_SIZE);
    message->recv = regx_rndv_recv_open(process->rndv, &process->peer, target, message->length,
                                        message->has_exposure);
    sim_check(message->recv != NULL);
    memcpy(message->recv_handle, (const uint8_t *)message->recv + 4, 8);
    if (message->has_exposure) {
        message->reading = true;
        forge(SIM_AT_EXPOSURE, message->rts);
        regx_rndv_recv_get(process->rndv, message->recv, message->rts, got, message);
    } else {
        send_cts(message);
    }
}

void sim_mpi_post(sim_message_t *message)
{
    message->posted = true;
    if (message->arrived) {
        open_receive(message);
    }
}

static void sent(void *context, regx_status_t status)
{
    sim_message_t *message = context;
    const sim_process_t *process = &sim.process[message->from];

    sim_check(message->sending);
    sim_check(status == REGX_OK || sim.may_fail || sim.hostile || process->link != SIM_UP);
    give_back_source(message, status);
    if (status == REGX_OK) {
        frame(message->from, FIN, message, NULL);
    } else { /* ends the job */
        sim_break(0);
        sim_break(1);
    }
}

static void take_cts(sim_message_t *message, const uint8_t *data)
{
    sim_process_t *process = &sim.process[message->from];
    uint8_t cts[REGX_CTS_SIZE];

    memcpy(cts, data, REGX_CTS_SIZE);
    forge(SIM_AT_CTS, cts);
    sim_check(!message->sending && !message->sent);
    message->sending = true;
    regx_rndv_send_open(process->rndv, &process->peer, message->source, message->length, cts, sent,
                        message);
}

void sim_mpi_deliver(unsigned to, const uint8_t *data)
{
    sim_message_t *message = &sim.messages[data[1]];

    switch (data[0]) {
    case RTS:
        message->arrived = true;
        message->has_exposure = data[2] != 0;
        memcpy(message->rts, data + AT_BYTES, REGX_CTS_SIZE);
        if (message->posted) {
            open_receive(message);
        }
        break;
    case CTS:
        take_cts(message, data + AT_BYTES);
        break;
    default:
        if (to == message->from) {
            give_back_source(message, REGX_OK);
            break;
        }
        sim_check(message->recv != NULL);
        regx_rndv_recv_close(sim.process[to].rndv, message->recv);
        check_content(message);
        give_back_target(message);
    }
}

void sim_mpi_abandon(sim_message_t *message, unsigned process)
{
    if (process == message->from) {
        give_back_source(message, REGX_UNREACHABLE);
    } else {
        regx_rndv_recv_close(sim.process[process].rndv, message->recv);
        give_back_target(message);
    }
}

static bool has_sent(const sim_message_t *message)
{
    return message->sent ||
           (sim.process[message->from].link == SIM_DOWN && !message->sending && !message->exposed);
}

static bool has_received(const sim_message_t *message)
{
    return message->closed ||
           (sim.process[1 - message->from].link == SIM_DOWN && message->recv == NULL);
}

bool sim_mpi_has_ended(const sim_message_t *message)
{
    return has_sent(message) && has_received(message);
}

/* Whether all before it, or of its buffers, have ended. */
static bool is_its_turn(const sim_message_t *message)
{
    const unsigned step = sim.scenario->one_by_one ? 1 : sim.scenario->reuses ? 2 : 0;

    if (sim.scenario->deep && number_of(message) > 0) {
        return sim.messages[0].met;
    }
    return step == 0 || number_of(message) < step || sim_mpi_has_ended(message - step);
}

bool sim_mpi_can_begin(const sim_message_t *message)
{
    return !message->begun && sim.process[message->from].link == SIM_UP && is_its_turn(message);
}

bool sim_mpi_can_post(const sim_message_t *message)
{
    return !message->posted && sim.process[1 - message->from].link == SIM_UP &&
           is_its_turn(message) && (!sim.scenario->unexpected || message->arrived);
}

bool sim_mpi_can_abandon(const sim_message_t *message, unsigned process)
{
    return sim.process[process].link == SIM_DOWN &&
           (process == message->from ? !message->sent && message->exposed && !message->sending
                                     : message->recv != NULL && !message->reading);
}
