/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The oracle itself: that it pins, that it goes stale as a network adapter would, and that it gives
 * back what it held.
 */
#include "unit.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "oracle.h"

enum { LENGTH = 64 << 10 };

static oracle_t *oracle;
static char why[128];

static int setup(void **state)
{
    (void)state;
    oracle = oracle_open(64, why, sizeof(why));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (oracle != NULL) {
        oracle_close(oracle);
    }
    return 0;
}

static void need_oracle(void)
{
    if (oracle == NULL) {
        print_message("not tried: %s\n", why);
        skip();
    }
}

static regx_status_t reg(void *base, size_t length, regx_mr_t *mr)
{
    regx_transport_t *transport = oracle_transport(oracle);

    return transport->ops->reg(transport, base, length, REGX_ACCESS_REMOTE_WRITE, mr);
}

static void dereg(regx_mr_t *mr)
{
    regx_transport_t *transport = oracle_transport(oracle);

    transport->ops->dereg(transport, mr);
}

static uint8_t *map_at(void *where, size_t length)
{
    uint8_t *memory =
        mmap(where, length, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (where == NULL ? 0 : MAP_FIXED_NOREPLACE), -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void it_sends_and_receives_what_the_application_has(void **state)
{
    static uint8_t buffer[3 << 20], data[3 << 20]; /* more than a ring's file */
    struct rlimit limit;
    regx_mr_t mr;

    (void)state;
    need_oracle();
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (geteuid() != 0 && limit.rlim_cur < sizeof(buffer)) {
        print_message("not tried: this user may lock %zu bytes only\n", (size_t)limit.rlim_cur);
        skip();
    }
    assert_int_equal(reg(buffer, sizeof(buffer), &mr), REGX_OK);
    for (size_t i = 0; i < sizeof(buffer); i += 61) {
        buffer[i] = unit_stamp(1, i);
    }
    oracle_send(oracle, &mr, buffer + 5, sizeof(buffer) - 5, data);
    assert_memory_equal(data, buffer + 5, sizeof(buffer) - 5);
    assert_int_equal(oracle_compare(oracle, &mr, buffer, sizeof(buffer)), sizeof(buffer));
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = unit_stamp(2, i);
    }
    oracle_receive(oracle, &mr, buffer, sizeof(buffer) - 3, data);
    assert_memory_equal(data, buffer, sizeof(buffer) - 3);
    assert_int_equal(buffer[sizeof(buffer) - 1], 0);
    dereg(&mr);
}

static void a_mapping_that_changed_is_stale(void **state)
{
    static uint8_t data[LENGTH];
    uint8_t *buffer = map_at(NULL, LENGTH);
    regx_mr_t mr;

    (void)state;
    need_oracle();
    memset(buffer, 'a', LENGTH);
    assert_int_equal(reg(buffer, LENGTH, &mr), REGX_OK);
    assert_int_equal(munmap(buffer, LENGTH), 0);
    assert_ptr_equal(map_at(buffer, LENGTH), buffer);
    memset(buffer, 'b', LENGTH);

    oracle_send(oracle, &mr, buffer, LENGTH, data);
    assert_int_equal(data[0], 'a');
    assert_int_equal(data[LENGTH - 1], 'a');
    assert_int_equal(oracle_compare(oracle, &mr, buffer, LENGTH), 0);

    memset(data, 'c', LENGTH);
    oracle_receive(oracle, &mr, buffer, LENGTH, data);
    assert_int_equal(buffer[0], 'b');
    assert_int_equal(buffer[LENGTH - 1], 'b');
    dereg(&mr);
    munmap(buffer, LENGTH);
}

static void comparing_finds_the_first_page_that_differs(void **state)
{
    uint8_t *buffer = map_at(NULL, LENGTH);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    regx_mr_t mr;

    (void)state;
    need_oracle();
    memset(buffer, 'a', LENGTH);
    assert_int_equal(reg(buffer, LENGTH, &mr), REGX_OK);
    assert_int_equal(madvise(buffer + 3 * page, page, MADV_DONTNEED), 0);
    assert_int_equal(oracle_compare(oracle, &mr, buffer, LENGTH), 3 * page);
    assert_int_equal(oracle_compare(oracle, &mr, buffer + page, LENGTH - page), 2 * page);
    assert_int_equal(oracle_compare(oracle, &mr, buffer + 4 * page, page), page);
    dereg(&mr);
    munmap(buffer, LENGTH);
}

static void pages_are_pinned_and_given_back_before_it_returns(void **state)
{
    uint8_t *buffer = map_at(NULL, LENGTH);
    const uint64_t before = oracle_pinned();

    (void)state;
    need_oracle();
    for (unsigned round = 0; round < 200; round++) {
        regx_mr_t first, second;

        assert_int_equal(reg(buffer, LENGTH, &first), REGX_OK);
        assert_int_equal(reg(buffer, LENGTH / 2, &second), REGX_OK);
        assert_int_equal(oracle_registered(oracle), 2);
        assert_in_range(oracle_pinned(), before + LENGTH, before + 2 * LENGTH);
        dereg(&first);
        dereg(&second);
        assert_int_equal(oracle_registered(oracle), 0);
        assert_int_equal(oracle_pinned(), before);
    }
    munmap(buffer, LENGTH);
}

static void what_it_cannot_register_is_refused(void **state)
{
    static uint8_t memory[65][64];
    regx_mr_t mr[65];

    (void)state;
    need_oracle();
    for (unsigned i = 0; i < 65; i++) {
        assert_int_equal(reg(memory[i], 64, &mr[i]), i < 64 ? REGX_OK : REGX_NO_MEMORY);
    }
    for (unsigned i = 0; i < 64; i++) {
        dereg(&mr[i]);
    }
    oracle_refuse(oracle, 2, REGX_DENIED);
    assert_int_equal(reg(memory[0], 64, &mr[0]), REGX_OK);
    assert_int_equal(reg(memory[1], 64, &mr[1]), REGX_DENIED);
    assert_int_equal(reg(memory[1], 64, &mr[1]), REGX_OK);
    dereg(&mr[0]);
    dereg(&mr[1]);

    uint8_t *buffer = map_at(NULL, LENGTH);
    assert_int_equal(munmap(buffer, LENGTH), 0);
    assert_int_equal(reg(buffer, LENGTH, &mr[0]), REGX_DENIED);
    assert_int_equal(reg(buffer, ORACLE_LARGEST + 1, &mr[0]), REGX_DENIED);
}

static void a_receive_under_way_holds_the_pages(void **state)
{
    static uint8_t data[LENGTH];
    uint8_t *buffer = map_at(NULL, LENGTH);
    const uint64_t before = oracle_pinned();
    regx_mr_t mr;

    (void)state;
    need_oracle();
    for (unsigned change = 0; change < 2; change++) {
        memset(buffer, 'a', LENGTH);
        memset(data, 'd', LENGTH);
        assert_int_equal(reg(buffer, LENGTH, &mr), REGX_OK);
        oracle_flight_t *flight = oracle_receive_start(oracle, &mr, buffer, LENGTH);
        if (change == 1) { /* the application's error: nothing foreign may be written */
            assert_int_equal(munmap(buffer, LENGTH), 0);
            assert_ptr_equal(map_at(buffer, LENGTH), buffer);
            memset(buffer, 'b', LENGTH);
        }
        assert_int_equal(oracle_pinned(), before + LENGTH);
        oracle_receive_end(flight, data);
        assert_int_equal(buffer[0], change == 1 ? 'b' : 'd');
        assert_int_equal(buffer[LENGTH - 1], change == 1 ? 'b' : 'd');
        dereg(&mr);
        assert_int_equal(oracle_pinned(), before);
    }
    munmap(buffer, LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_sends_and_receives_what_the_application_has),
        cmocka_unit_test(a_mapping_that_changed_is_stale),
        cmocka_unit_test(comparing_finds_the_first_page_that_differs),
        cmocka_unit_test(pages_are_pinned_and_given_back_before_it_returns),
        cmocka_unit_test(what_it_cannot_register_is_refused),
        cmocka_unit_test(a_receive_under_way_holds_the_pages),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
