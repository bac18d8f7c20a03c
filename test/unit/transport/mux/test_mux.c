/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The multiplexer: which transports it opens, and which of them leads to a peer.
 */
#include "fakes.h"

#include <malloc.h>
#include <stdlib.h>

#include "transport/rkey_table.h"

static uint64_t fallbacks(const char *reason)
{
    return regx_tally_find(counters.fallbacks, reason)->count;
}

/* ---- open ---- */

static void all_that_are_allowed_are_opened_and_share_pool_and_keys(void **state)
{
    regx_transport_t *mux = open_mux(NULL);

    (void)state;
    assert_string_equal(mux->wires, "first,second,third");
    assert_ptr_equal(mux->pool_memory, pools[FIRST]);
    assert_int_equal(mux->pool_size, POOL);
    assert_int_equal(mux->max_frame, 800); /* what all take */
    assert_null(fakes[FIRST].given_pool);
    assert_ptr_equal(fakes[SECOND].given_pool, pools[FIRST]);
    assert_ptr_equal(fakes[THIRD].given_pool, pools[FIRST]);
    assert_non_null(fakes[FIRST].rkeys);
    assert_ptr_equal(fakes[FIRST].rkeys, fakes[THIRD].rkeys);
    regx_mux_close(mux);
    for (unsigned i = 0; i < FAKES; i++) {
        assert_int_equal(fakes[i].closed, 1);
    }
}

static void only_those_that_the_list_names_are_opened(void **state)
{
    regx_transport_t *mux = open_mux("uno,three");

    (void)state;
    assert_string_equal(mux->wires, "first,third");
    assert_int_equal(fakes[SECOND].opened, 0);
    assert_string_equal(fakes[THIRD].given_tls, "uno,three"); /* of which it has several itself */
    assert_null(fakes[THIRD].given_settings);                 /* not of its kind */
    regx_mux_close(mux);
    assert_int_equal(fakes[SECOND].closed, 0);
}

static void a_transport_that_cannot_be_opened_is_left_out(void **state)
{
    fakes[FIRST].cannot_open = true;
    fakes[FIRST].open_error = REGX_UNREACHABLE;
    regx_transport_t *mux = open_mux(NULL);

    (void)state;
    assert_string_equal(mux->wires, "second,third");
    assert_ptr_equal(mux->pool_memory, pools[SECOND]);
    regx_mux_close(mux);
}

static void a_wrong_setting_is_an_error(void **state)
{
    regx_transport_t *mux;
    char error[256];

    (void)state;
    fakes[THIRD].cannot_open = true;
    fakes[THIRD].open_error = REGX_INVALID;
    assert_int_equal(try_open(NULL, error, &mux), REGX_INVALID);
    assert_string_equal(error, "setting=wrong of fake 2");
    assert_int_equal(fakes[FIRST].closed, 1);
}

static void without_any_the_error_names_what_was_tried(void **state)
{
    regx_transport_t *mux;
    char error[256];

    (void)state;
    assert_int_equal(try_open("four", error, &mux), REGX_UNREACHABLE);
    assert_string_equal(error, "this process can use none of first, second, third within four");
}

/* ---- connect ---- */

static void the_first_that_leads_there_is_used(void **state)
{
    regx_transport_t *mux = open_mux(NULL);
    regx_conn_t *conn = connect_mux(mux, true);

    (void)state;
    assert_string_equal(conn->wire, "first");
    assert_true(conn->shares_pool && conn->single_copy);
    assert_int_equal(fakes[SECOND].connected, 0);
    regx_mux_disconnect(conn);
    fakes[FIRST].connects = REGX_UNREACHABLE;
    conn = connect_mux(mux, false);
    assert_string_equal(conn->wire, "second");
    assert_false(conn->shares_pool || conn->single_copy);
    regx_mux_disconnect(conn);
    fakes[SECOND].connects = REGX_NO_MEMORY;
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_mux_address(mux, address);
    assert_int_equal(regx_mux_connect(mux, PEER, false, address, length, &conn), REGX_NO_MEMORY);
    assert_int_equal(fakes[FIRST].disconnected, 1);
    assert_int_equal(fakes[SECOND].disconnected, 1);
    regx_mux_close(mux);
}

static void what_one_end_lacks_is_not_used_and_on_a_node_it_is_counted(void **state)
{
    regx_transport_t *mux = open_mux(NULL);

    (void)state;
    fakes[FIRST].no_address = true;
    for (int same_node = 0; same_node < 2; same_node++) {
        regx_conn_t *conn = connect_mux(mux, same_node != 0);

        assert_string_equal(conn->wire, "second");
        assert_int_equal(fallbacks("first: not available at both ends"), same_node);
        regx_mux_disconnect(conn);
    }
    assert_int_equal(fakes[FIRST].connected, 0);
    regx_mux_close(mux);
}

static void malformed_addresses_are_refused(void **state)
{
    regx_transport_t *mux = open_mux(NULL);
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_mux_address(mux, address);
    regx_conn_t *conn;

    (void)state;
    for (size_t shorter = 0; shorter < length; shorter++) {
        /* In memory of its own length, so that reading beyond it is seen. */
        uint8_t *exact = malloc(shorter + 1);

        assert_non_null(exact);
        memcpy(exact + 1, address, shorter);
        assert_int_equal(regx_mux_connect(mux, PEER, true, exact + 1, shorter, &conn),
                         REGX_INVALID);
        free(exact);
    }
    address[0]++; /* another version */
    assert_int_equal(regx_mux_connect(mux, PEER, true, address, length, &conn), REGX_INVALID);
    address[0]--;
    memset(address + 4, 0xff, 4); /* a part that is longer than all */
    assert_int_equal(regx_mux_connect(mux, PEER, true, address, length, &conn), REGX_INVALID);
    assert_int_equal(regx_mux_connect(mux, PEER, true, address, REGX_ADDRESS_MAX + 1, &conn),
                     REGX_INVALID);
    assert_int_equal(fakes[FIRST].connected, 0);
    regx_mux_close(mux);
}

/* There may be very many peers. */
static void a_connection_keeps_the_peers_address_and_no_more(void **state)
{
    regx_transport_t *mux = open_mux(NULL);
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_mux_address(mux, address);
    regx_conn_t *conn = connect_mux(mux, true);

    (void)state;
    assert_true(malloc_usable_size(conn) <= 192 + length + 16);
    regx_mux_disconnect(conn);
    regx_mux_close(mux);
}

/* ---- registering ---- */

static void store(void *from, void *to, size_t length)
{
    memcpy(to, from, length);
}

static void keys_are_those_of_the_common_table(void **state)
{
    regx_transport_t *mux = open_mux(NULL);
    regx_rkey_table_t *rkeys = (regx_rkey_table_t *)(uintptr_t)fakes[THIRD].rkeys;
    uint8_t memory[16] = {0};
    char letter[] = "x";
    regx_mr_t mr;

    (void)state;
    assert_int_equal(regx_mux_reg(mux, memory, sizeof(memory), REGX_ACCESS_REMOTE_WRITE, &mr),
                     REGX_OK);
    assert_ptr_equal(mr.base, memory);
    assert_int_equal(regx_rkey_table_fill(rkeys, &mr.key, 3, 1, store, letter), REGX_OK);
    assert_int_equal(memory[3], 'x');
    regx_mux_dereg(mux, &mr);
    letter[0] = 'y';
    assert_int_equal(regx_rkey_table_fill(rkeys, &mr.key, 3, 1, store, letter), REGX_INVALID);
    assert_int_equal(memory[3], 'x');
    regx_mux_close(mux);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_that_are_allowed_are_opened_and_share_pool_and_keys, reset),
        cmocka_unit_test_setup(only_those_that_the_list_names_are_opened, reset),
        cmocka_unit_test_setup(a_transport_that_cannot_be_opened_is_left_out, reset),
        cmocka_unit_test_setup(a_wrong_setting_is_an_error, reset),
        cmocka_unit_test_setup(without_any_the_error_names_what_was_tried, reset),
        cmocka_unit_test_setup(the_first_that_leads_there_is_used, reset),
        cmocka_unit_test_setup(what_one_end_lacks_is_not_used_and_on_a_node_it_is_counted, reset),
        cmocka_unit_test_setup(malformed_addresses_are_refused, reset),
        cmocka_unit_test_setup(a_connection_keeps_the_peers_address_and_no_more, reset),
        cmocka_unit_test_setup(keys_are_those_of_the_common_table, reset),
    };

    return cmocka_run_group_tests_name("mux", tests, NULL, NULL);
}
