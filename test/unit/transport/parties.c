/* SPDX-License-Identifier: BSD-3-Clause */
#include "parties.h"

const conformance_t *tested __attribute__((weak)); /* a program may begin with its own */
party_t one, two, three;
const uint64_t outside[OUTSIDE] = {REGION - 3, REGION, REGION + 1, UINT64_MAX, UINT64_MAX - 3};
const size_t op_lengths[LENGTHS] = {1,         7,         4095,    4096,        4097,
                                    16384,     16385,     65536,   128 << 10,   200001,
                                    512 << 10, MIB - 100, MIB + 1, 3 * MIB + 5, LONGEST};

/* ---- events ---- */

static void arrived(party_t *party, uint64_t sender)
{
    assert_true(sender >= ONE);
    party->last_sender = sender;
    party->delivered++;
    if (party->on_deliver != NULL) {
        party->on_deliver(party);
    }
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    party_t *party = context;

    assert_true(length <= sizeof(party->last));
    memcpy(party->last, data, length);
    party->last_length = length;
    party->last_tag = tag;
    party->last_immediate = 0;
    arrived(party, sender);
}

static void immediate(void *context, uint64_t sender, uint32_t value)
{
    party_t *party = context;

    party->last_immediate = value;
    arrived(party, sender);
}

static void broken(void *context, uint64_t peer, bool ended, const char *what)
{
    party_t *party = context;

    assert_true(peer >= ONE && what[0] != '\0');
    snprintf(party->what, sizeof(party->what), "%s", what);
    party->broken++;
}

static void silent(void *context, uint64_t peer)
{
    party_t *party = context;

    assert_true(peer >= ONE);
    party->silent++;
}

/* ---- parties ---- */

uint64_t party_fell_back(party_t *party, const char *reason)
{
    return regx_tally_find(party->counters.fallbacks, reason)->count;
}

void party_open(party_t *party, uint64_t self, bool threads)
{
    static regx_device_name_t names[REGX_DEVICES_MAX];
    regx_error_t error = "";
    regx_status_t status = REGX_OK;
    size_t count, near;

    memset(party, 0, sizeof(*party));
    party->self = self;
    party->counters.threads = threads;
    party->config = (regx_transport_config_t){.self = self,
                                              .pool_size = POOL,
                                              .pool_min = POOL,
                                              .owned_size = 16 * MIB,
                                              .neighbours = tested->neighbours,
                                              .threads = threads,
                                              .counters = &party->counters,
                                              .settings = tested->settings,
                                              .device = tested->devices[self == TWO     ? 1
                                                                        : self == THREE ? 2
                                                                                        : 0],
                                              .events = {.context = party,
                                                         .deliver = deliver,
                                                         .immediate = immediate,
                                                         .broken = broken,
                                                         .silent = silent}};
    if (tested->ops->devices != NULL && party->config.device == NULL) {
        status = tested->ops->devices(&party->config, error, names, &count, &near);
        party->config.device = names[0];
    }
    if (status == REGX_OK) {
        status = tested->ops->open(&party->config, error, &party->transport);
    }
    if (status == REGX_UNREACHABLE) {
        printf("not tried: %s\n", error);
        fflush(stdout);
        skip();
    }
    unit_expect(status == REGX_OK, "%s", error);
    assert_ptr_equal(party->transport->ops, tested->ops);
    assert_int_equal(party->transport->pool_size, POOL);
    assert_true(party->transport->max_frame >= 8192);
}

void party_connect(party_t *party, const party_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = tested->ops->address(to->transport, address);

    assert_in_range(length, 1, REGX_ADDRESS_MAX);
    assert_int_equal(
        tested->ops->connect(party->transport, to->self, address, length, &party->conn), REGX_OK);
    assert_true(party->conn->peer == to->self && party->conn->transport == party->transport);
}

void parties_open(bool threads)
{
    party_open(&one, ONE, threads);
    party_open(&two, TWO, threads);
    party_connect(&one, &two);
    party_connect(&two, &one);
}

static bool two_works; /* in a thread of its own */

int parties_progress(void)
{
    party_t *const all[] = {&one, &two, &three};
    int events = 0;

    for (size_t i = 0; i < 3; i++) {
        if (all[i]->transport != NULL && !(two_works && all[i] == &two)) {
            events += tested->ops->progress(all[i]->transport);
        }
    }
    return events;
}

static bool is_ending(void)
{
    const party_t *const all[] = {&one, &two, &three};
    bool ending = false;

    for (size_t i = 0; i < 3; i++) {
        ending = ending || (tested->is_ending != NULL && all[i]->transport != NULL &&
                            tested->is_ending(all[i]->transport));
    }
    return ending;
}

void parties_settle(void)
{
    while (parties_progress() > 0 || is_ending()) {
    }
}

void parties_await(const unsigned *count, unsigned value)
{
    until(*count >= value, parties_progress());
    assert_int_equal(*count, value);
}

static _Atomic bool closed;

static void *close_it(void *transport)
{
    tested->ops->close(transport);
    closed = true;
    return NULL;
}

void party_close(party_t *party)
{
    regx_transport_t *transport = party->transport;

    party->transport = NULL; /* no more progress for it */
    closed = false;
    const pthread_t closer = unit_thread(close_it, transport);
    until(closed, parties_progress());
    pthread_join(closer, NULL);
    assert_int_equal(party->counters.malformed, 0);
}

static _Atomic bool stop;
static pthread_t worker;

static void *work(void *nothing)
{
    until(stop, tested->ops->progress(two.transport));
    return nothing;
}

void two_works_begin(void)
{
    stop = false;
    two_works = true;
    worker = unit_thread(work, NULL);
}

void two_works_end(void)
{
    stop = true;
    pthread_join(worker, NULL);
    two_works = false;
}

void party_leave(party_t *party)
{
    if (party->conn != NULL) {
        tested->ops->disconnect(party->conn);
        party->conn = NULL;
    }
}

void parties_leave(void)
{
    party_leave(&one);
    party_leave(&two);
    parties_settle();
}

void party_end(party_t *party)
{
    party_leave(party);
    tested->ops->close(party->transport);
    party->transport = NULL;
}

void parties_close(void)
{
    parties_leave();
    party_close(&one);
    party_close(&two);
}

/* ---- frames ---- */

static void pack(void *context, void *to, size_t length)
{
    unit_fill(to, length, *(const uint64_t *)context, 0);
}

regx_status_t party_try(const party_t *from, uint8_t tag, uint64_t stream, size_t length)
{
    return tested->ops->send(from->conn, tag, NULL, 0, pack, &stream, length);
}

void party_send(const party_t *from, uint8_t tag, uint64_t stream, size_t length)
{
    regx_status_t status;

    until((status = party_try(from, tag, stream, length)) != REGX_AGAIN, parties_progress());
    assert_int_equal(status, REGX_OK);
}

void parties_exchange(void)
{
    const unsigned at_one = one.delivered, at_two = two.delivered;

    party_send(&one, 1, ONE, 100);
    party_send(&two, 2, TWO, 100);
    parties_await(&one.delivered, at_one + 1);
    parties_await(&two.delivered, at_two + 1);
    assert_true(one.last_length == 100 && unit_is_filled(one.last, 100, TWO));
    assert_true(two.last_length == 100 && unit_is_filled(two.last, 100, ONE));
    assert_int_equal(one.broken + two.broken, 0);
}

/* ---- operations ---- */

static void end_op(op_t *op, regx_status_t status)
{
    op->ended++;
    op->status = status;
    if (op->then != NULL) {
        op->then(op);
    }
}

static void zcopy_done(regx_zcopy_t *zcopy, regx_status_t status)
{
    end_op(zcopy->context, status);
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    end_op(put->context, status);
}

static void get_done(regx_get_t *get, regx_status_t status)
{
    end_op(get->context, status);
}

/* A transport finds in an operation what an earlier one left there. */
static void op_init(op_t *op)
{
    memset(op, 0xee, sizeof(*op));
    op->ended = 0;
    op->then = NULL;
}

void op_zcopy(op_t *op, const void *data, size_t length, uint8_t tag)
{
    op_init(op);
    op->zcopy.data = data;
    op->zcopy.length = length;
    op->zcopy.tag = tag;
    op->zcopy.done = zcopy_done;
    op->zcopy.context = op;
}

void op_put(op_t *op, const void *local, size_t length, regx_target_t target, uint64_t offset)
{
    op_init(op);
    op->put.local = local;
    op->put.length = length;
    op->put.region = NULL;
    op->put.target = target;
    op->put.offset = offset;
    op->put.immediate = 0;
    op->put.tag = 77;
    op->put.notice_length = REGX_NOTICE_MAX;
    unit_fill(op->put.notice, REGX_NOTICE_MAX, offset + length, 0);
    op->put.done = put_done;
    op->put.context = op;
}

void op_get(op_t *op, void *local, size_t length, const regx_mr_t *into, const regx_mr_t *from,
            uint64_t offset)
{
    op_init(op);
    op->get.local = local;
    op->get.length = length;
    op->get.region = into;
    op->get.offset = offset;
    op->get.key = from->key;
    op->get.staged = false;
    op->get.assisted = false;
    op->get.done = get_done;
    op->get.context = op;
}

void op_start_put(const party_t *from, op_t *op)
{
    regx_status_t status;

    until((status = tested->ops->put(from->conn, &op->put)) != REGX_AGAIN, parties_progress());
    assert_true(status == REGX_OK || status == REGX_PENDING);
    if (status == REGX_OK) {
        end_op(op, status);
    }
}

void op_start_get(const party_t *from, op_t *op)
{
    regx_status_t status;

    until((status = tested->ops->get(from->conn, &op->get)) != REGX_AGAIN, parties_progress());
    assert_int_equal(status, REGX_PENDING);
}

void op_await(const op_t *op)
{
    parties_await(&op->ended, 1);
    assert_int_equal(op->status, REGX_OK);
}

/* The notice that `two` gets must find these bytes there. */
static struct {
    const uint8_t *at;
    size_t length;
    uint64_t stream;
} awaited;

static void check_notice(party_t *party)
{
    assert_true(party->last_sender == ONE);
    assert_true(unit_is_filled(awaited.at, awaited.length, awaited.stream));
}

void op_put_to_two(op_t *op, const uint8_t *at, uint64_t stream)
{
    const unsigned before = two.delivered;

    awaited.at = at;
    awaited.length = op->put.length;
    awaited.stream = stream;
    two.on_deliver = check_notice;
    op_start_put(&one, op);
    parties_await(&two.delivered, before + 1);
    two.on_deliver = NULL;
    op_await(op);
    if (two.last_immediate != 0) {
        assert_int_equal(two.last_immediate, op->put.immediate);
        return;
    }
    assert_int_equal(two.last_tag, op->put.tag);
    assert_int_equal(two.last_length, op->put.notice_length);
    assert_memory_equal(two.last, op->put.notice, op->put.notice_length);
}

uint8_t *guarded_new(size_t length)
{
    uint8_t *memory = malloc(length + 2 * GUARD);

    assert_non_null(memory);
    memset(memory, 0xee, length + 2 * GUARD);
    return memory + GUARD;
}

void guarded_free(uint8_t *memory, size_t length)
{
    assert_true(unit_is_all(memory - GUARD, GUARD, 0xee));
    assert_true(unit_is_all(memory + length, GUARD, 0xee));
    free(memory - GUARD);
}

void party_reg(const party_t *party, void *base, size_t length, unsigned access, regx_mr_t *mr)
{
    memset(mr, 0xee, sizeof(*mr));
    assert_int_equal(tested->ops->reg(party->transport, base, length, access, mr), REGX_OK);
    assert_true(mr->base == base && mr->length == length && mr->access == access);
}

void readable_new(readable_t *readable)
{
    parties_exchange();
    readable->to = guarded_new(REGION);
    readable->from = malloc(REGION);
    unit_fill(readable->from, REGION, 1, 0);
    party_reg(&one, readable->to, REGION, REGX_ACCESS_LOCAL_WRITE, &readable->into);
    party_reg(&two, readable->from, REGION, REGX_ACCESS_REMOTE_READ, &readable->remote);
}

void readable_free(readable_t *readable)
{
    tested->ops->dereg(one.transport, &readable->into);
    tested->ops->dereg(two.transport, &readable->remote);
    guarded_free(readable->to, REGION);
    free(readable->from);
}

void assert_got(const readable_t *readable, size_t at, size_t length)
{
    assert_memory_equal(readable->to + at, readable->from + at, length);
}
