/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What only the pinned device does: it reaches the pages that were registered, wherever their
 * addresses lead by now; it serves the keys of what is registered, and no others.
 */
#include "../../process.h"
#include "../parties.h"

#include <sys/resource.h>

#include "../pair.h"
#include "ring.h"
#include "transport/pinned/pinned.h"

enum {
    NOBODY = 65534,
    ALL = REGX_ACCESS_LOCAL | REGX_ACCESS_LOCAL_WRITE | REGX_ACCESS_REMOTE_WRITE |
          REGX_ACCESS_REMOTE_READ
};

static const conformance_t device = {.name = "pinned", .ops = &regx_pinned_ops};

static uint8_t *mine, *its; /* REGION bytes of `one` and of `two` */
static regx_mr_t local, remote;

/* Both, which have registered so much of that memory. */
static void open_both(size_t length)
{
    parties_open(false);
    parties_exchange();
    party_reg(&one, mine, length, ALL, &local);
    party_reg(&two, its, length, ALL, &remote);
}

static void close_both(void)
{
    device.ops->dereg(one.transport, &local);
    device.ops->dereg(two.transport, &remote);
    parties_close();
}

static int setup(void **state)
{
    tested = &device;
    mine = unit_map(NULL, REGION);
    its = unit_map(NULL, REGION);
    open_both(REGION);
    return 0;
}

static int teardown(void **state)
{
    close_both();
    munmap(mine, REGION);
    munmap(its, REGION);
    return 0;
}

static void put(op_t *op, size_t length, uint64_t offset, const regx_key_t *key)
{
    op_put(op, mine, length, REGX_TARGET_REGION, offset);
    op->put.region = &local;
    op->put.key = *key;
}

static regx_status_t put_and_await(size_t length, uint64_t offset, const regx_key_t *key)
{
    op_t op;

    put(&op, length, offset, key);
    op_start_put(&one, &op);
    parties_await(&op.ended, 1);
    parties_settle();
    return op.status;
}

static regx_status_t get_and_await(size_t length, uint64_t offset, const regx_key_t *key)
{
    regx_mr_t from = {.key = *key};
    op_t op;

    op_get(&op, mine, length, &local, &from, offset);
    op_start_get(&one, &op);
    parties_await(&op.ended, 1);
    parties_settle();
    return op.status;
}

#define PINNED_TEST(test) UNIT_TEST_BETWEEN(test, setup, teardown)

/* What an adapter does with a registration that nobody gave up: old bytes are sent, and what is
 * received does not arrive. */
PINNED_TEST(a_region_leads_to_the_pages_that_were_registered)
{
    unit_fill(its, REGION, 1, 0);
    assert_int_equal(munmap(its, REGION), 0);
    its = unit_map(its, REGION);
    unit_fill(its, REGION, 2, 0);
    assert_int_equal(get_and_await(MIB, 0, &remote.key), REGX_OK);
    assert_true(unit_is_filled(mine, MIB, 1));
    unit_fill(mine, MIB, 3, 0);
    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_OK);
    assert_true(unit_is_filled(its, REGION, 2));
    assert_int_equal(get_and_await(MIB, 0, &remote.key), REGX_OK);
    assert_true(unit_is_filled(mine, MIB, 3));

    /* The same of the initiator's own. */
    device.ops->dereg(two.transport, &remote);
    party_reg(&two, its, REGION, ALL, &remote);
    assert_int_equal(munmap(mine, REGION), 0);
    mine = unit_map(mine, REGION);
    unit_fill(mine, REGION, 4, 0);
    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_OK);
    assert_true(unit_is_filled(its, MIB, 3));
    assert_int_equal(get_and_await(MIB, MIB, &remote.key), REGX_OK);
    assert_true(unit_is_filled(mine, REGION, 4));
}

static regx_key_t forge(uint32_t slot, uint32_t generation, uint64_t length)
{
    const regx_pinned_key_t key = {.slot = slot, .generation = generation, .length = length};
    regx_key_t packed;

    memcpy(packed.bytes, &key, sizeof(key));
    return packed;
}

static regx_pinned_key_t of(const regx_mr_t *mr)
{
    regx_pinned_key_t key;

    memcpy(&key, mr->key.bytes, sizeof(key));
    return key;
}

/* Refused, counted, nothing written and nothing read, and no notice comes of it. */
static void assert_refused(const regx_key_t *key, size_t length, uint64_t offset)
{
    const uint64_t before = two.counters.pinned_refused;
    const unsigned delivered = two.delivered;

    unit_fill(mine, REGION, 5, 0);
    unit_fill(its, REGION, 6, 0);
    assert_int_equal(put_and_await(length, offset, key), REGX_FAILED);
    assert_true(two.counters.pinned_refused > before);
    const uint64_t between = two.counters.pinned_refused;
    assert_int_equal(get_and_await(length, offset, key), REGX_FAILED);
    assert_true(two.counters.pinned_refused > between);
    assert_true(unit_is_filled(mine, REGION, 5) && unit_is_filled(its, REGION, 6));
    assert_int_equal(two.delivered, delivered);
    assert_int_equal(two.counters.malformed, 0);
}

PINNED_TEST(a_key_of_no_registration_is_refused)
{
    const regx_pinned_key_t good = of(&remote);
    const uint64_t much = UINT64_MAX / 2;
    regx_key_t key = forge(good.slot + 1, good.generation, REGION); /* nothing is there */

    assert_refused(&key, MIB, 0);
    key = forge(UINT32_MAX, good.generation, REGION);
    assert_refused(&key, 5, 0);
    key = forge(good.slot, good.generation + 1, REGION);
    assert_refused(&key, MIB, 0);
    key =
        forge(good.slot, good.generation, much); /* behind the region's end, and before its start */
    assert_refused(&key, 5, REGION - 4);
    assert_refused(&key, MIB, REGION - 4096);
    assert_refused(&key, 5, much - 5);
    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_OK);
}

/* The slot is another region's by now. */
PINNED_TEST(a_key_that_was_given_up_is_refused)
{
    regx_key_t old = remote.key;

    device.ops->dereg(two.transport, &remote);
    assert_refused(&old, MIB, 0);
    party_reg(&two, its, REGION, ALL, &remote);
    assert_int_equal(of(&remote).slot, of(&(regx_mr_t){.key = old}).slot);
    assert_refused(&old, MIB, 0);
}

PINNED_TEST(rights_that_were_not_given_are_refused)
{
    device.ops->dereg(two.transport, &remote);
    party_reg(&two, its, REGION, REGX_ACCESS_REMOTE_READ, &remote);
    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_FAILED);
    assert_int_equal(get_and_await(MIB, 0, &remote.key), REGX_OK);
    device.ops->dereg(two.transport, &remote);
    party_reg(&two, its, REGION, REGX_ACCESS_REMOTE_WRITE, &remote);
    assert_int_equal(get_and_await(MIB, 0, &remote.key), REGX_FAILED);
    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_OK);
    assert_int_equal(two.counters.pinned_refused, 2);
}

/* Whichever piece is the first that finds no region, no notice tells of the put. */
PINNED_TEST(a_region_given_up_in_the_middle_of_a_put_gives_no_notice)
{
    unsigned failed = 0;

    for (unsigned steps = 0; steps < 40; steps++) {
        const unsigned before = two.delivered;
        op_t op;

        put(&op, LONGEST, 0, &remote.key);
        op_start_put(&one, &op);
        for (unsigned i = 0; i < steps; i++) {
            device.ops->progress(i % 2 == 0 ? one.transport : two.transport);
        }
        device.ops->dereg(two.transport, &remote);
        memset(its, 0xee, REGION);
        parties_await(&op.ended, 1);
        parties_settle();
        assert_int_equal(two.delivered, before + (op.status == REGX_OK));
        assert_true(unit_is_all(its, REGION, 0xee)); /* since the deregistration */
        failed += op.status == REGX_FAILED;
        party_reg(&two, its, REGION, ALL, &remote);
    }
    assert_true(failed > 10);
}

/* A file that the owner cannot open. What was asked for ends only when all of it is answered. */
PINNED_TEST(a_peer_that_cannot_open_the_file_has_all_denied)
{
    op_t ops[2];

    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_OK);
    regx_pinned_conn_of(one.conn)->name.descriptor = INT32_MAX;
    regx_file_close(&regx_pinned_of(two.transport)->shm->inbound[0]->cells);
    put(&ops[0], MIB, 0, &remote.key);
    put(&ops[1], 5, 0, &remote.key);
    op_start_put(&one, &ops[0]);
    op_start_put(&one, &ops[1]);
    device.ops->progress(one.transport);
    regx_pinned_conn_of(one.conn)->name.descriptor--; /* no other file's, either */
    parties_await(&ops[0].ended, 1);
    parties_await(&ops[1].ended, 1);
    assert_true(ops[0].status == REGX_DENIED && ops[1].status == REGX_DENIED);
    assert_int_equal(device.ops->put(one.conn, &ops[0].put), REGX_DENIED);
    assert_int_equal(one.counters.fallbacks[0].count, 1);
    assert_int_equal(two.counters.pinned_refused, 0);
    parties_exchange(); /* frames go on */
}

/* A program that closes what it does not know, and opens a file of its own there. */
PINNED_TEST(a_ring_that_was_closed_fails_and_its_number_is_left_alone)
{
    const int fd = regx_pinned_of(one.transport)->uring.file.fd;
    const int other = memfd_create("other", 0);
    regx_mr_t mr;

    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_OK);
    assert_int_equal(dup2(other, fd), fd);
    assert_int_equal(put_and_await(MIB, 0, &remote.key), REGX_FAILED);
    assert_int_equal(device.ops->reg(one.transport, mine, 4096, ALL, &mr), REGX_DENIED);
    close_both();
    assert_true(fcntl(fd, F_GETFD) >= 0);
    close(fd);
    close(other);
    open_both(REGION);
}

/* Nothing of such a frame is believed. */
PINNED_TEST(what_no_initiator_asks_is_malformed)
{
    regx_pinned_conn_t *conn = regx_pinned_conn_of(one.conn);

    assert_int_equal(put_and_await(5, 0, &remote.key), REGX_OK);
    const unsigned delivered = two.delivered;
    const regx_pinned_ask_t good = {
        .first = 1, .last = 1, .length = 5, .key = of(&remote), .file = conn->name};
    regx_pinned_ask_t bad[3] = {good, good, good};
    bad[0].length = REGX_PINNED_PIECE_MAX + 1;
    bad[1].notice_length = REGX_NOTICE_MAX + 1;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(device.ops->send(one.conn, REGX_TAG_OWN, &bad[i], sizeof(good) - (i == 2),
                                          NULL, NULL, 0),
                         REGX_OK);
    }
    parties_settle();
    assert_int_equal(two.counters.malformed, 3);
    assert_int_equal(two.delivered, delivered);
    two.counters.malformed = 0;
    assert_int_equal(put_and_await(5, 0, &remote.key), REGX_OK);
}

/* With so many slots alone. */
static void open_three(uint32_t slots)
{
    static regx_pinned_settings_t few;
    static const conformance_t small = {
        .name = "pinned", .ops = &regx_pinned_ops, .settings = &few};

    few.slots = slots;
    tested = &small;
    party_open(&three, THREE, false);
}

PINNED_TEST(a_table_that_is_full_registers_nothing_more)
{
    regx_mr_t mr[5];

    open_three(4);
    assert_int_equal(three.transport->mr_count, 4);
    for (unsigned i = 0; i < 4; i++) {
        party_reg(&three, mine + 4096 * i, 4096, ALL, &mr[i]);
    }
    assert_int_equal(device.ops->reg(three.transport, mine, 4096, ALL, &mr[4]), REGX_NO_MEMORY);
    device.ops->dereg(three.transport, &mr[2]);
    party_reg(&three, mine, 4096, ALL, &mr[2]);
    for (unsigned i = 0; i < 4; i++) {
        device.ops->dereg(three.transport, &mr[i]);
    }
    party_close(&three);
}

/* Memory that cannot be pinned, or to be looked up by the device. */
PINNED_TEST(what_cannot_be_pinned_is_denied)
{
    void *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    regx_mr_t mr;

    assert_int_equal(device.ops->reg(one.transport, none, 8192, ALL, &mr), REGX_DENIED);
    assert_int_equal(device.ops->reg(one.transport, mine, REGX_URING_PIN_MAX + 1, ALL, &mr),
                     REGX_DENIED);
    assert_int_equal(device.ops->reg(one.transport, mine, 4096, ALL | REGX_ACCESS_ON_DEMAND, &mr),
                     REGX_INVALID);
    munmap(none, 8192);
}

static int64_t time_of_a_registration(const char *cost, regx_status_t expected)
{
    regx_pinned_settings_t settings = {.slots = 4};
    regx_transport_config_t config = one.config;
    regx_transport_t *transport;
    regx_error_t error = "";
    regx_mr_t mr;

    strcpy(settings.pin_cost, cost);
    config.settings = &settings;
    assert_int_equal(device.ops->open(&config, error, &transport), expected);
    if (expected != REGX_OK) {
        assert_true(strstr(error, "pin_cost=") == error && strstr(error, "allowed: none") != NULL);
        return 0;
    }
    assert_true((strstr(transport->wires, " ns a page") != NULL) == (strchr(cost, ':') != NULL));
    const int64_t begun = regx_now_ns();
    assert_int_equal(device.ops->reg(transport, mine + 4095, 4098, ALL, &mr), REGX_OK);
    const int64_t took = regx_now_ns() - begun;
    device.ops->dereg(transport, &mr);
    device.ops->close(transport);
    return took;
}

/* At least, which no busy machine makes wrong: of 4098 bytes that touch three pages. */
PINNED_TEST(a_registration_takes_what_it_is_to_cost)
{
    regx_pin_cost_t cost;
    regx_error_t error;

    assert_true(time_of_a_registration("20000000:0", REGX_OK) >= 20000000);
    assert_true(time_of_a_registration("5:10000000", REGX_OK) >= 30000005);
    time_of_a_registration("none", REGX_OK);
    time_of_a_registration("", REGX_OK);
    assert_true(regx_pin_cost_read("ucx", &cost, error) && cost.call == 16000 && cost.page == 246);
    assert_true(regx_pin_cost_read("nic", &cost, error) && cost.call == 93000 && cost.page == 375);
    const char *const bad[] = {"5", "5:", ":5", "5:-1", " 5:5", "5:5 ", "mlx5", "5:1000000001"};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        time_of_a_registration(bad[i], REGX_INVALID);
    }
}

/* Whose frames would come, and whose puts would not. */
PINNED_TEST(a_process_that_does_not_pin_is_not_reached)
{
    uint8_t pins[REGX_ADDRESS_MAX], other[REGX_ADDRESS_MAX];
    regx_transport_config_t config = one.config;
    regx_transport_t *shm;
    regx_error_t error;
    regx_conn_t *conn;

    config.settings = NULL;
    assert_int_equal(regx_shm_ops.open(&config, error, &shm), REGX_OK);
    const size_t length = device.ops->address(one.transport, pins);
    assert_int_equal(regx_shm_ops.address(shm, other), length);
    assert_true(device.ops->reaches(two.transport, pins, length, true));
    assert_false(device.ops->reaches(one.transport, other, length, true));
    assert_false(regx_shm_ops.reaches(shm, pins, length, true));
    assert_int_equal(device.ops->connect(one.transport, TWO, other, length, &conn), REGX_INVALID);
    assert_int_equal(regx_shm_ops.connect(shm, TWO, pins, length, &conn), REGX_INVALID);
    regx_shm_ops.close(shm);
}

UNIT_TEST(without_memory_to_lock_the_limit_is_named)
{
    const struct rlimit none = {0, 0};
    regx_transport_t *transport;
    regx_error_t error = "";

    tested = &device;
    parties_open(false);
    if (process_in_child()) {
        in_child = true;
        REQUIRE(geteuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
        REQUIRE(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
        REQUIRE(device.ops->open(&one.config, error, &transport) != REGX_OK);
        REQUIRE(strstr(error, "(ulimit -l)") != NULL);
        _exit(EXIT_SUCCESS);
    }
    parties_close();
}

/* A process that does not answer any more, and then is gone: what it was asked for fails, once. */
PINNED_TEST(what_a_process_that_has_ended_was_asked_for_fails)
{
    op_t ops[3];

    for (unsigned i = 0; i < 3; i++) {
        put(&ops[i], LONGEST, 0, &remote.key);
        op_start_put(&one, &ops[i]);
    }
    for (unsigned i = 0; i < 100; i++) {
        device.ops->progress(one.transport);
    }
    assert_int_equal(ops[0].ended + ops[1].ended + ops[2].ended, 0);
    regx_shm_conn_of(one.conn)->peer.vm.life.made--; /* another process has its number */
    until(ops[2].ended != 0, device.ops->progress(one.transport));
    for (unsigned i = 0; i < 3; i++) {
        assert_true(ops[i].ended == 1 && ops[i].status == REGX_UNREACHABLE);
    }
    assert_int_equal(one.broken, 1);
}

/* What is written to a file the kernel copies by a thread of the process. Root may have as many as it
 * likes. */
_Noreturn static void child_puts_without_threads(void)
{
    const struct rlimit none = {0, 0};
    const size_t length = 64 << 10;
    op_t op;

    in_child = true;
    REQUIRE(geteuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
    mine = unit_map(NULL, REGION);
    its = unit_map(NULL, REGION);
    open_both(length);
    REQUIRE(setrlimit(RLIMIT_NPROC, &none) == 0);
    put(&op, length, 0, &remote.key);
    op_start_put(&one, &op);
    parties_await(&op.ended, 1);
    REQUIRE(op.status == REGX_FAILED && two.delivered == 1);
    REQUIRE(regx_tally_find(one.counters.fallbacks, "pinned: a transfer has failed")->count == 1);
    _exit(EXIT_SUCCESS);
}

UNIT_TEST(where_the_kernel_may_start_no_thread_a_put_fails)
{
    tested = &device;
    if (process_in_child()) {
        child_puts_without_threads();
    }
}
