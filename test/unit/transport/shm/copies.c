/* SPDX-License-Identifier: BSD-3-Clause */
#include "copies.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* This process's memory: what others get, and what they put to; and the keys of both, and of the
 * other's. */
uint8_t *zone;
static uint8_t *target;
static regx_key_t own_zone, own_target, its_zone, its_target;
unsigned notices[2];
unsigned orders;

static void end_op(op_t *op, regx_status_t status)
{
    op->ended++;
    op->order = orders++;
    op->status = status;
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    end_op(get->context, status);
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    end_op(put->context, status);
}

/* The bytes of a zone of the process, or those that it puts. */
static bool is_of(const uint8_t *bytes, uint64_t stream, uint64_t offset, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != unit_stamp(stream, offset + i)) {
            return false;
        }
    }
    return true;
}

op_t op_new(regx_conn_t *conn, bool get, uint64_t offset, size_t length)
{
    op_t op = {.conn = conn, .get = get, .offset = offset, .length = length};

    op.local = malloc(length + 2 * GUARD);
    REQUIRE(op.local != NULL);
    memset(op.local, 0xee, length + 2 * GUARD);
    if (!get) {
        unit_fill(op.local + GUARD, length, PARENT + CHILD, offset);
    }
    return op;
}

op_t assisted_op(side_t *side, uint64_t offset, size_t length)
{
    op_t op = op_new(side->conn, true, offset, length);

    op.assisted = true;
    return op;
}

void op_free(op_t *op)
{
    for (size_t i = 0; i < GUARD; i++) {
        REQUIRE(op->local[i] == 0xee && op->local[GUARD + op->length + i] == 0xee);
    }
    free(op->local);
}

regx_status_t post(op_t *op)
{
    const bool own = op->conn->peer == regx_shm_of(op->conn->transport)->config.self;

    op->get_op = (regx_get_t){.local = op->local + GUARD,
                              .length = op->length,
                              .offset = op->offset,
                              .key = own ? own_zone : its_zone,
                              .assisted = op->assisted,
                              .done = get_done,
                              .context = op};
    op->put_op = (regx_put_t){.local = op->local + GUARD,
                              .length = op->length,
                              .target = REGX_TARGET_REGION,
                              .offset = op->offset,
                              .key = own ? own_target : its_target,
                              .tag = PUT_TAG,
                              .notice_length = 16,
                              .done = put_done,
                              .context = op};
    memset(op->get_op.scratch, 0xee, sizeof(op->get_op.scratch)); /* as of one used before */
    memset(op->put_op.scratch, 0xee, sizeof(op->put_op.scratch));
    memcpy(op->put_op.notice, &op->offset, 8);
    memcpy(op->put_op.notice + 8, &op->length, 8);
    return op->get ? regx_shm_get(op->conn, &op->get_op) : regx_shm_put(op->conn, &op->put_op);
}

void await(side_t *side, const op_t *op)
{
    while (op->ended == 0) {
        progress(side);
    }
}

void assert_got(const op_t *op)
{
    REQUIRE(op->ended == 1 && op->status == REGX_OK);
    REQUIRE(!op->get || is_of(op->local + GUARD, op->conn->peer, op->offset, op->length));
}

/* Frames of no bytes are none; what a notice tells of is there. */
static void take_notice(void *context, uint64_t sender, uint8_t tag, const void *data,
                        size_t length)
{
    side_t *side = context;
    uint64_t range[2];

    side->delivered++;
    if (tag != PUT_TAG) {
        return;
    }
    REQUIRE(length == sizeof(range));
    memcpy(range, data, sizeof(range));
    REQUIRE(is_of(target + range[0], PARENT + CHILD, range[0], range[1]));
    notices[sender != side->config.self]++;
}

void begin(side_t *side)
{
    zone = mmap(NULL, ZONE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    target = calloc(1, ZONE);
    REQUIRE(zone != MAP_FAILED && target != NULL);
    unit_fill(zone, ZONE, side->config.self, 0);
    notices[0] = notices[1] = orders = 0;
    regx_shm_expose(zone, ZONE, &own_zone);
    regx_shm_expose(target, ZONE, &own_target);
    pair_tell(side->socket, &own_zone, sizeof(own_zone));
    pair_tell(side->socket, &own_target, sizeof(own_target));
    pair_hear(side->socket, &its_zone, sizeof(its_zone));
    pair_hear(side->socket, &its_target, sizeof(its_target));
    attach(side);
    side->shm->config.events.deliver = take_notice;
}

void finish(side_t *side)
{
    meet(side); /* nobody copies any more */
    finish_alone();
}

void finish_alone(void)
{
    munmap(zone, ZONE);
    free(target);
}

void serve(side_t *side)
{
    char byte;

    begin(side);
    while (recv(side->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        REQUIRE(errno == EAGAIN || errno == EINTR);
        progress(side);
    }
    finish(side);
}

void work_alone(side_t *side)
{
    while (regx_shm_progress(side->transport) > 0) {
    }
}
