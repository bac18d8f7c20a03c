/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Gets on the node, alone and in one queue with puts: what the kernel copies between two processes.
 */
#include "node.h"
#include "process.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "transport/uct/window.h"

/* More than one call of progress copies at once is STEP; a zone is several. */
enum { STEP = 512 << 10, ZONE = 4 * STEP, GUARD = 64, PUT_TAG = 9, OPS = 24 };

/* This process's memory: what others get, and what they put to. What the other's is, and its own.
 */
static uint8_t *zone, *target;
static regx_key_t own_zone, own_target, its_zone, its_target;
static regx_windows_t windows;
static unsigned notices[2]; /* from this process, from the other */
static unsigned orders;     /* operations that have ended */

typedef struct op {
    regx_node_conn_t *conn;
    bool get;
    uint64_t offset;
    size_t length;
    uint8_t *local; /* guard, bytes, guard */
    regx_get_t get_op;
    regx_put_t put_op;
    unsigned ended; /* so often, … */
    unsigned order; /* … lastly as that one … */
    regx_status_t status;
} op_t;

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

/* The operation moves these bytes of the other's, or of its own if that is who `conn` leads to. */
static op_t op_new(regx_node_conn_t *conn, bool get, uint64_t offset, size_t length)
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

static void op_free(op_t *op)
{
    for (size_t i = 0; i < GUARD; i++) {
        REQUIRE(op->local[i] == 0xee && op->local[GUARD + op->length + i] == 0xee);
    }
    free(op->local);
}

static regx_status_t post(op_t *op)
{
    const bool own = op->conn->peer == op->conn->node->config.self;

    op->get_op = (regx_get_t){.local = op->local + GUARD,
                              .length = op->length,
                              .offset = op->offset,
                              .key = own ? own_zone : its_zone,
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
    return op->get ? regx_node_get(op->conn, &op->get_op) : regx_node_put(op->conn, &op->put_op);
}

static void assert_got(const op_t *op)
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

static void begin(side_t *side)
{
    void *handle;

    zone = mmap(NULL, ZONE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    target = calloc(1, ZONE);
    REQUIRE(zone != MAP_FAILED && target != NULL);
    unit_fill(zone, ZONE, side->config.self, 0);
    notices[0] = notices[1] = orders = 0;
    regx_windows_init(&windows, false);
    REQUIRE(regx_windows_add(&windows, zone, ZONE, REGX_ACCESS_REMOTE_READ, &own_zone, &handle) ==
            REGX_OK);
    REQUIRE(regx_windows_add(&windows, target, ZONE, REGX_ACCESS_REMOTE_WRITE, &own_target,
                             &handle) == REGX_OK);
    pair_tell(side->socket, &own_zone, sizeof(own_zone));
    pair_tell(side->socket, &own_target, sizeof(own_target));
    pair_hear(side->socket, &its_zone, sizeof(its_zone));
    pair_hear(side->socket, &its_target, sizeof(its_target));
    attach(side);
    side->node->config.events.deliver = take_notice;
}

static void finish(side_t *side)
{
    meet(side); /* nobody copies any more */
    regx_windows_fini(&windows);
    munmap(zone, ZONE);
    free(target);
}

/* Makes progress until the other comes to meet it. */
static void serve(side_t *side)
{
    char byte;

    begin(side);
    while (recv(side->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        REQUIRE(errno == EAGAIN || errno == EINTR);
        progress(side);
    }
    finish(side);
}

/* ---- what they bring ---- */

static void get_each_length(side_t *side)
{
    static const size_t lengths[] = {1,        63,   4095,     4096,        4097,
                                     STEP - 1, STEP, STEP + 1, 2 * STEP + 5};

    begin(side);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint64_t offset = 0; offset <= ZONE - lengths[i]; offset += ZONE / 3 + 7) {
            const uint64_t before = side->counters.bytes_shm;
            op_t op = op_new(side->conn, true, offset, lengths[i]);

            REQUIRE(post(&op) == REGX_PENDING);
            REQUIRE(op.ended == 0);
            while (op.ended == 0) {
                progress(side);
            }
            assert_got(&op);
            REQUIRE(side->counters.bytes_shm - before == lengths[i]);
            op_free(&op);
        }
    }
    REQUIRE(side->delivered == 1); /* nobody is told */
    finish(side);
}

static void each_length_is_got(void **state)
{
    (void)state;
    run_pair(false, get_each_length, get_each_length);
}

static void get_and_put(side_t *side)
{
    static op_t ops[OPS];

    begin(side);
    for (unsigned i = 0; i < OPS; i++) {
        ops[i] = op_new(side->conn, i % 3 != 0, i * (ZONE / OPS), i % 5 == 2 ? ZONE / OPS : 1 + i);
        if (i % 7 == 1) { /* in steps */
            op_free(&ops[i]);
            ops[i] = op_new(side->conn, true, i, STEP + STEP / 2);
        }
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < OPS) {
        progress(side);
    }
    for (unsigned i = 0; i < OPS; i++) {
        assert_got(&ops[i]);
        REQUIRE(ops[i].order == i);
        op_free(&ops[i]);
    }
    while (notices[1] < OPS / 3 - 1) { /* those of the other; 15 is a get */
        progress(side);
    }
    REQUIRE(notices[1] == OPS / 3 - 1);
    finish(side);
}

static void gets_and_puts_end_in_their_order(void **state)
{
    (void)state;
    run_pair(false, get_and_put, get_and_put);
}

/* ---- a neighbour that does not read ---- */

static void get_past_puts(side_t *side)
{
    op_t ops[] = {op_new(side->conn, false, 0, STEP + 1), op_new(side->conn, true, 5, STEP + 1),
                  op_new(side->conn, true, 6, 7), op_new(side->conn, false, ZONE - 9, 9),
                  op_new(side->conn, true, 8, STEP)};

    begin(side);
    while (regx_node_send(side->conn, 1, "", 0, NULL, NULL, 0) == REGX_OK) {
    }
    for (unsigned i = 0; i < 5; i++) {
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < 3) {
        progress(side);
    }
    for (unsigned i = 0; i < 100; i++) {
        progress(side);
    }
    REQUIRE(orders == 3 && ops[0].ended == 0 && ops[3].ended == 0);
    meet(side); /* now it reads */
    while (orders < 5) {
        progress(side);
    }
    for (unsigned i = 0; i < 5; i++) {
        assert_got(&ops[i]);
        op_free(&ops[i]);
    }
    finish(side);
}

static void read_late(side_t *side)
{
    begin(side);
    meet(side);
    while (notices[1] < 2) {
        progress(side);
    }
    finish(side);
}

/* A put that is copied, and whose notice finds no room, lets those behind it go on. */
static void gets_do_not_wait_for_a_full_mailbox(void **state)
{
    (void)state;
    run_pair(false, get_past_puts, read_late);
}

/* ---- what cannot be got ---- */

static void get_outside(side_t *side)
{
    const uint64_t offsets[] = {ZONE - 3, ZONE, ZONE + 1, UINT64_MAX, UINT64_MAX - 3};

    begin(side);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        op_t op = op_new(side->conn, true, offsets[i], 4);

        REQUIRE(post(&op) == REGX_INVALID);
        REQUIRE(atomic_load(&side->node->copy_count) == 0);
        for (size_t at = 0; at < 4; at++) {
            REQUIRE(op.local[GUARD + at] == 0xee);
        }
        REQUIRE(op.ended == 0);
        op_free(&op);
    }
    op_t last = op_new(side->conn, true, ZONE - 4, 4);
    REQUIRE(post(&last) == REGX_PENDING);
    while (last.ended == 0) {
        progress(side);
    }
    assert_got(&last);
    op_free(&last);
    finish(side);
}

static void nothing_is_got_outside_of_what_the_key_names(void **state)
{
    (void)state;
    run_pair(false, get_outside, serve);
}

static void get_what_is_not_there(side_t *side)
{
    op_t ops[] = {op_new(side->conn, true, 0, ZONE), op_new(side->conn, true, ZONE / 2, 1),
                  op_new(side->conn, true, ZONE / 2 - 5, 10),
                  op_new(side->conn, true, 0, ZONE / 2)};

    begin(side);
    meet(side); /* unmapped */
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    while (orders < 4) {
        progress(side);
    }
    for (unsigned i = 0; i < 4; i++) {
        REQUIRE(ops[i].ended == 1 && ops[i].order == i);
        REQUIRE(i == 3 || ops[i].status == REGX_FAILED);
        op_free(&ops[i]);
    }
    REQUIRE(ops[3].status == REGX_OK);
    finish(side);
}

static void unmap_half(side_t *side)
{
    begin(side);
    REQUIRE(munmap(zone + ZONE / 2, ZONE / 2) == 0);
    meet(side);
    finish(side);
}

static void what_is_not_there_cannot_be_got(void **state)
{
    (void)state;
    run_pair(false, get_what_is_not_there, unmap_half);
}

/* The kernel allows it, then does not any more. */
static void get_while_allowed(side_t *side)
{
    op_t ops[] = {op_new(side->conn, true, 0, STEP + 1), op_new(side->conn, true, 0, 1)};

    begin(side);
    REQUIRE(post(&ops[0]) == REGX_PENDING && post(&ops[1]) == REGX_PENDING);
    regx_node_progress(side->node);
    REQUIRE(orders == 0);
    if (process_deny(SYS_process_vm_readv, EPERM)) {
        while (orders < 2) {
            progress(side);
        }
        REQUIRE(ops[0].status == REGX_DENIED && ops[1].status == REGX_DENIED);
    } else {
        printf("not tried: the kernel cannot be told to refuse\n");
        while (orders < 2) {
            progress(side);
        }
    }
    op_free(&ops[0]);
    op_free(&ops[1]);
    finish(side);
}

static void get_while_another_is_meant(side_t *side)
{
    begin(side);
    side->conn->vm.cookie.words[1] ^= 1;
    for (int i = 0; i < 2; i++) {
        op_t op = op_new(side->conn, true, 0, 1);

        REQUIRE(post(&op) == REGX_DENIED);
        REQUIRE(atomic_load(&side->node->copy_count) == 0);
        REQUIRE(op.ended == 0);
        op_free(&op);
    }
    REQUIRE(strcmp(side->counters.fallbacks[0].reason, "process_vm: another process name space") ==
            0);
    finish(side);
}

static void the_kernel_may_refuse(void **state)
{
    (void)state;
    run_pair(false, serve, get_while_allowed);
    run_pair(false, get_while_another_is_meant, serve);
}

/* ---- disconnecting ---- */

enum { MIXED = 6 };

/* Connects, and makes sure that there is a mailbox. */
static regx_node_conn_t *connect_to(side_t *side, uint64_t peer, const regx_node_address_t *address)
{
    regx_node_conn_t *conn;
    regx_status_t status;

    REQUIRE(regx_node_connect(side->node, peer, address, sizeof(*address), &conn) == REGX_OK);
    while ((status = regx_node_send(conn, 1, "", 0, NULL, NULL, 0)) == REGX_AGAIN) {
        progress(side);
    }
    REQUIRE(status == REGX_OK);
    return conn;
}

/* Queues operations, those of the mask's bits by the one connection, drops that after some
 * progress, and lets the others come to their end. Returns how many puts went by the other. */
static unsigned drop_one(side_t *side, unsigned mask, regx_node_conn_t *dropped,
                         regx_node_conn_t *kept)
{
    op_t ops[MIXED];
    unsigned ended[MIXED], puts = 0;

    orders = 0;
    for (unsigned i = 0; i < MIXED; i++) {
        const bool large = i == mask % MIXED; /* in steps */

        ops[i] = op_new((mask >> i & 1) != 0 ? dropped : kept, (i + mask / 8) % 2 == 0,
                        i * (ZONE / 8), large ? STEP + 9 : 99);
        REQUIRE(post(&ops[i]) == REGX_PENDING);
    }
    for (unsigned i = 0; i < mask % 4; i++) {
        regx_node_progress(side->node);
    }
    for (unsigned i = 0; i < MIXED; i++) {
        ended[i] = ops[i].ended;
    }
    regx_node_disconnect(dropped);
    for (unsigned i = 0; i < MIXED; i++) {
        const bool drops = (mask >> i & 1) != 0;

        REQUIRE(ops[i].ended == (drops ? 1 : ended[i]));
        REQUIRE(!drops || ended[i] == 1 || ops[i].status == REGX_FAILED);
    }
    while (orders < MIXED) {
        progress(side);
    }
    REQUIRE(atomic_load(&side->node->copy_count) == 0);
    for (unsigned i = 0, last = 0; i < MIXED; i++) {
        if ((mask >> i & 1) == 0) {
            assert_got(&ops[i]);
            REQUIRE(ops[i].order >= last);
            last = ops[i].order;
            puts += !ops[i].get;
        } else {
            REQUIRE(ops[i].ended == 1);
        }
        op_free(&ops[i]);
    }
    return puts;
}

static void drop_and_go_on(side_t *side)
{
    const regx_node_address_t other = side->conn->address;
    regx_node_address_t own;

    begin(side);
    REQUIRE(regx_node_address(side->node, &own, sizeof(own)) == sizeof(own));
    regx_node_conn_t *self = connect_to(side, PARENT, &own);
    for (unsigned mask = 1; mask < 1 << MIXED; mask++) {
        if (mask % 2 == 0) {
            drop_one(side, mask, self, side->conn);
            self = connect_to(side, PARENT, &own);
            continue;
        }
        notices[0] = 0;
        const unsigned puts = drop_one(side, mask, side->conn, self);
        side->conn = connect_to(side, CHILD, &other);
        while (notices[0] < puts) {
            progress(side);
        }
        REQUIRE(notices[0] == puts);
    }
    regx_node_disconnect(self);
    finish(side);
}

static void disconnecting_ends_those_of_that_connection(void **state)
{
    (void)state;
    run_pair(false, drop_and_go_on, serve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_length_is_got),
        cmocka_unit_test(gets_and_puts_end_in_their_order),
        cmocka_unit_test(gets_do_not_wait_for_a_full_mailbox),
        cmocka_unit_test(nothing_is_got_outside_of_what_the_key_names),
        cmocka_unit_test(what_is_not_there_cannot_be_got),
        cmocka_unit_test(the_kernel_may_refuse),
        cmocka_unit_test(disconnecting_ends_those_of_that_connection),
    };

    return cmocka_run_group_tests_name("node_gets", tests, NULL, NULL);
}
