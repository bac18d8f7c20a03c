/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tcp wire before anything goes over it: what is left of the process as it was, which addresses
 * are taken.
 */
#include "../../process.h"
#include "sides.h"

static void malformed_addresses_are_refused(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX], other[REGX_ADDRESS_MAX];
    regx_conn_t *conn;
    side_t side;
    size_t length;

    (void)state;
    open_side(&side, PARENT, false);
    length = regx_tcp_address(side.tcp, address);
    assert_int_equal(regx_tcp_connect(side.tcp, CHILD, false, address, length, &conn), REGX_OK);
    regx_tcp_disconnect(conn);
    for (size_t shorter = 0; shorter < length; shorter++) {
        /* In memory of its own length, so that reading beyond it is seen. */
        uint8_t *exact = malloc(shorter + 1);

        assert_non_null(exact);
        memcpy(exact + 1, address, shorter);
        assert_int_equal(regx_tcp_connect(side.tcp, CHILD, false, exact + 1, shorter, &conn),
                         REGX_INVALID);
        free(exact);
    }
    assert_int_equal(regx_tcp_connect(side.tcp, CHILD, false, address, length + 1, &conn),
                     REGX_INVALID);
    for (size_t byte = 0; byte < length; byte++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            regx_status_t status;

            memcpy(other, address, length);
            other[byte] ^= (uint8_t)flip;
            status = regx_tcp_connect(side.tcp, CHILD, false, other, length, &conn);
            assert_true(byte >= 8 || status == REGX_INVALID);
            if (status == REGX_OK) {
                regx_tcp_disconnect(conn);
            }
        }
    }
    close_side(&side);
}

static void signals_caught(char line[128])
{
    FILE *file = fopen("/proc/self/status", "r");

    assert_non_null(file);
    do {
        assert_non_null(fgets(line, 128, file));
    } while (strncmp(line, "SigCgt:", 7) != 0);
    fclose(file);
}

static void the_process_stays_as_it_was(void **state)
{
    const unsigned threads = process_threads();
    const unsigned files = process_descriptors();
    unsigned files_open;
    char before[128], after[128];
    side_t side;

    (void)state;
    signals_caught(before);
    open_side(&side, PARENT, false);
    files_open = process_descriptors();
    for (int i = 0; i < 1000; i++) {
        progress(&side);
    }
    signals_caught(after);
    assert_string_equal(before, after);
    assert_int_equal(process_threads(), threads);
    close_side(&side);
    assert_true(files_open > files);
    assert_int_equal(process_descriptors(), files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_process_stays_as_it_was),
        cmocka_unit_test(malformed_addresses_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
