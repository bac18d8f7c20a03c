/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The multiplexer's connections: paths that refuse or break, and whom progress asks.
 */
#include "fakes.h"

static regx_status_t send_frame(regx_conn_t *conn)
{
    return regx_mux_send(conn, 9, "head", 4, NULL, NULL, 0);
}

/* ---- send ---- */

static void a_path_that_refuses_is_followed_by_the_next(void **state)
{
    regx_transport_t *mux = open_mux(NULL);
    regx_conn_t *conn = connect_mux(mux, true);
    regx_zcopy_t zcopy = {.tag = 9};
    regx_put_t put = {.tag = 9};
    regx_get_t get = {.length = 9};

    (void)state;
    regx_mux_warm(conn);
    assert_int_equal(fakes[FIRST].warmed, 1);
    assert_int_equal(regx_mux_get(conn, &get), REGX_OK);
    fakes[FIRST].sends = REGX_AGAIN;
    assert_int_equal(send_frame(conn), REGX_AGAIN);
    fakes[FIRST].refuses = fakes[SECOND].refuses = true;
    assert_int_equal(send_frame(conn), REGX_AGAIN);
    assert_string_equal(conn->wire, "second");
    assert_int_equal(send_frame(conn), REGX_AGAIN);
    assert_int_equal(send_frame(conn), REGX_OK);
    assert_int_equal(fakes[FIRST].sent, 3);
    assert_int_equal(fakes[SECOND].sent, 1);
    assert_string_equal(conn->wire, "third");
    assert_int_equal(regx_mux_send_zcopy(conn, &zcopy), REGX_OK);
    assert_int_equal(regx_mux_put(conn, &put), REGX_OK);
    assert_int_equal(regx_mux_get(conn, &get), REGX_DENIED); /* it has none */
    regx_mux_warm(conn);
    assert_int_equal(fakes[FIRST].sent, 3);
    assert_int_equal(fakes[SECOND].sent, 1);
    assert_int_equal(fakes[THIRD].sent, 3);
    regx_mux_disconnect(conn);
    for (unsigned i = 0; i < FAKES; i++) {
        assert_int_equal(fakes[i].disconnected, 1);
    }
    for (int i = 0; i < 100; i++) {
        regx_mux_progress(mux);
    }
    assert_int_equal(broken, 0);
    regx_mux_close(mux);
}

static void a_path_that_breaks_later_is_not_replaced(void **state)
{
    regx_transport_t *mux = open_mux("three");
    regx_conn_t *conn = connect_mux(mux, false);

    (void)state;
    fakes[THIRD].sends = REGX_UNREACHABLE;
    assert_int_equal(send_frame(conn), REGX_UNREACHABLE);
    for (int i = 0; i < 100; i++) {
        regx_mux_progress(mux);
    }
    assert_int_equal(broken, 0); /* that transport reports it itself */
    regx_mux_disconnect(conn);
    regx_mux_close(mux);
}

static void a_connection_without_a_path_is_reported_once(void **state)
{
    regx_transport_t *mux = open_mux("one");
    regx_conn_t *conn = connect_mux(mux, true);

    (void)state;
    assert_true(regx_mux_reachable(conn));
    fakes[FIRST].refuses = true;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(send_frame(conn), REGX_UNREACHABLE);
    }
    assert_false(regx_mux_reachable(conn));
    assert_int_equal(broken, 0); /* only from progress */
    regx_mux_progress(mux);
    assert_int_equal(broken, 1); /* at once: ob1 ends the job when it hears of it later */
    for (int i = 0; i < 100; i++) {
        regx_mux_progress(mux);
    }
    assert_int_equal(broken, 1);
    regx_mux_disconnect(conn);
    regx_mux_close(mux);
}

static void a_connection_that_ends_before_is_not_reported(void **state)
{
    regx_transport_t *mux = open_mux("one");
    regx_conn_t *conn = connect_mux(mux, true);

    (void)state;
    fakes[FIRST].refuses = true;
    assert_int_equal(send_frame(conn), REGX_UNREACHABLE);
    regx_mux_disconnect(conn);
    for (int i = 0; i < 100; i++) {
        regx_mux_progress(mux);
    }
    assert_int_equal(broken, 0);
    regx_mux_close(mux);
}

/* ---- progress ---- */

static void those_in_use_wait_while_the_first_is_busy_but_not_for_ever(void **state)
{
    regx_transport_t *mux = open_mux(NULL);

    (void)state;
    for (int i = 0; i < 8; i++) { /* until it has seen that they are in use */
        regx_mux_progress(mux);
    }
    fakes[FIRST].finds = 2;
    fakes[FIRST].progressed = fakes[SECOND].progressed = fakes[THIRD].progressed = 0;
    for (int i = 0; i < 160; i++) {
        assert_int_equal(regx_mux_progress(mux), 2);
    }
    assert_int_equal(fakes[FIRST].progressed, 160);
    assert_int_equal(fakes[SECOND].progressed, 10);
    assert_int_equal(fakes[THIRD].progressed, 10);
    fakes[FIRST].finds = 0;
    fakes[THIRD].finds = 1;
    assert_int_equal(regx_mux_progress(mux), 1);
    assert_int_equal(fakes[SECOND].progressed, 11);
    regx_mux_close(mux);
}

static void one_that_comes_into_use_is_soon_asked_in_every_call(void **state)
{
    fakes[FIRST].super.unused = fakes[SECOND].super.unused = true;
    regx_transport_t *mux = open_mux("one,two");

    (void)state;
    fakes[SECOND].super.unused = false;
    for (int i = 0; i < 8; i++) {
        regx_mux_progress(mux);
    }
    const unsigned first = fakes[FIRST].progressed, second = fakes[SECOND].progressed;
    for (int i = 0; i < 100; i++) {
        regx_mux_progress(mux);
    }
    assert_int_equal(fakes[SECOND].progressed, second + 100);
    assert_true(fakes[FIRST].progressed < first + 100); /* it is still unused */
    regx_mux_close(mux);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_path_that_refuses_is_followed_by_the_next, reset),
        cmocka_unit_test_setup(a_path_that_breaks_later_is_not_replaced, reset),
        cmocka_unit_test_setup(a_connection_without_a_path_is_reported_once, reset),
        cmocka_unit_test_setup(a_connection_that_ends_before_is_not_reported, reset),
        cmocka_unit_test_setup(those_in_use_wait_while_the_first_is_busy_but_not_for_ever, reset),
        cmocka_unit_test_setup(one_that_comes_into_use_is_soon_asked_in_every_call, reset),
    };

    return cmocka_run_group_tests_name("mux_paths", tests, NULL, NULL);
}
