/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The multiplexer, over three transports that do nothing but remember what was asked of them.
 */
#include "../../unit.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "transport/mux/mux.h"
#include "transport/mux/params.h"
#include "transport/rkey_table.h"

enum { FAKES = 3, FIRST = 0, SECOND = 1, THIRD = 2, PEER = 77, POOL = 4096 };

/* What a test wants of a transport, and what it saw. */
typedef struct fake {
    regx_transport_t super;
    bool cannot_open;
    regx_status_t open_error; /* of one that cannot be opened */
    bool no_address;
    regx_status_t connects; /* what connect answers */
    regx_status_t sends;    /* what send and its like answer */
    bool refuses;           /* instead */
    regx_status_t (*refused)(regx_conn_t *conn);
    int finds;              /* events of progress */
    const void *given_pool; /* by the multiplexer */
    const void *given_settings;
    const char *given_tls;
    const void *rkeys;
    unsigned opened, closed, connected, disconnected, sent, warmed, progressed;
    regx_conn_t conn;
} fake_t;

static fake_t fakes[FAKES];
static uint8_t pools[FAKES][POOL];
static regx_counters_t counters;
static unsigned broken;

static regx_status_t open_fake(unsigned number, const regx_transport_config_t *config, char *error,
                               size_t error_size, regx_transport_t **transport)
{
    fake_t *fake = &fakes[number];

    if (fake->cannot_open) {
        snprintf(error, error_size, "setting=wrong of fake %u", number);
        return fake->open_error;
    }
    fake->opened++;
    fake->given_pool = config->pool_memory;
    fake->given_settings = config->settings;
    fake->given_tls = config->tls;
    fake->rkeys = config->rkeys;
    fake->refused = config->refused;
    fake->super.pool_memory = config->pool_memory != NULL ? config->pool_memory : pools[number];
    fake->super.pool_size = POOL;
    fake->super.max_frame = 1000 - 100 * number;
    *transport = &fake->super;
    return REGX_OK;
}

static regx_status_t open_first(const regx_transport_config_t *config, char *error, size_t size,
                                regx_transport_t **transport)
{
    return open_fake(FIRST, config, error, size, transport);
}

static regx_status_t open_second(const regx_transport_config_t *config, char *error, size_t size,
                                 regx_transport_t **transport)
{
    return open_fake(SECOND, config, error, size, transport);
}

static regx_status_t open_third(const regx_transport_config_t *config, char *error, size_t size,
                                regx_transport_t **transport)
{
    return open_fake(THIRD, config, error, size, transport);
}

static fake_t *fake_of(regx_transport_t *transport)
{
    return REGX_CONTAINER_OF(transport, fake_t, super);
}

static void close_fake(regx_transport_t *transport)
{
    fake_of(transport)->closed++;
}

/* Its number, so often as its number says. */
static size_t fake_address(regx_transport_t *transport, void *buffer)
{
    const size_t number = (size_t)(fake_of(transport) - fakes);

    memset(buffer, (int)number, number + 1);
    return fake_of(transport)->no_address ? 0 : number + 1;
}

static regx_status_t fake_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                                  const void *address, size_t length, regx_conn_t **conn)
{
    fake_t *fake = fake_of(transport);
    const size_t number = (size_t)(fake - fakes);

    assert_int_equal(peer, PEER);
    assert_int_equal(length, number + 1);
    assert_int_equal(*(const uint8_t *)address, number);
    fake->connected++;
    fake->conn = (regx_conn_t){.transport = transport,
                               .wire = transport->ops->name,
                               .shares_pool = number == FIRST,
                               .single_copy = number == FIRST && same_node};
    *conn = &fake->conn;
    return fake->connects;
}

static void fake_disconnect(regx_conn_t *conn)
{
    fake_of(conn->transport)->disconnected++;
}

static void fake_warm(regx_conn_t *conn)
{
    fake_of(conn->transport)->warmed++;
}

static bool fake_reachable(regx_conn_t *conn)
{
    (void)conn;
    return true;
}

static regx_status_t answer(regx_conn_t *conn)
{
    fake_t *fake = fake_of(conn->transport);

    fake->sent++;
    return fake->refuses ? fake->refused(conn) : fake->sends;
}

static regx_status_t fake_send(regx_conn_t *conn, uint8_t tag, const void *header,
                               size_t header_length, regx_pack_t pack, void *pack_context,
                               size_t payload_length)
{
    assert_int_equal(tag, 9);
    assert_memory_equal(header, "head", 4);
    assert_int_equal(header_length, 4);
    assert_null(pack);
    assert_null(pack_context);
    assert_int_equal(payload_length, 0);
    return answer(conn);
}

static regx_status_t fake_send_zcopy(regx_conn_t *conn, regx_zcopy_t *zcopy)
{
    assert_int_equal(zcopy->tag, 9);
    return answer(conn);
}

static regx_status_t fake_put(regx_conn_t *conn, regx_put_t *put)
{
    assert_int_equal(put->tag, 9);
    return answer(conn);
}

static regx_status_t fake_get(regx_conn_t *conn, regx_get_t *get)
{
    assert_int_equal(get->length, 9);
    return answer(conn);
}

static int fake_progress(regx_transport_t *transport)
{
    fake_of(transport)->progressed++;
    return fake_of(transport)->finds;
}

#define OPERATIONS                                                                                 \
    .close = close_fake, .address = fake_address, .connect = fake_connect,                         \
    .disconnect = fake_disconnect, .reachable = fake_reachable, .send = fake_send,                 \
    .send_zcopy = fake_send_zcopy, .put = fake_put, .progress = fake_progress

static const regx_transport_ops_t first_ops = {.name = "first",
                                               .open = open_first,
                                               .warm = fake_warm,
                                               .get = fake_get,

                                               OPERATIONS};
static const regx_transport_ops_t second_ops = {.name = "second", .open = open_second, OPERATIONS};
static const regx_transport_ops_t third_ops = {.name = "third", .open = open_third, OPERATIONS};
static const regx_mux_wire_t table[FAKES] = {{&first_ops, "the first", "one,uno"},
                                             {&second_ops, "the second", "two"},
                                             {&third_ops, "the third", "three"}};
static const regx_transport_ops_t mux_ops = {.name = "mux"};

static void note_broken(void *context, uint64_t peer, const char *what)
{
    (void)context;
    assert_int_equal(peer, PEER);
    assert_string_equal(what, "the first is refused, and nothing else leads there");
    broken++;
}

static int reset(void **state)
{
    (void)state;
    memset(fakes, 0, sizeof(fakes));
    memset(&counters, 0, sizeof(counters));
    broken = 0;
    for (unsigned i = 0; i < FAKES; i++) {
        fakes[i].super.ops = table[i].ops;
        fakes[i].super.wires = table[i].ops->name;
    }
    return 0;
}

static regx_status_t try_open(const char *tls, char error[256], regx_transport_t **mux)
{
    const regx_mux_settings_t settings = {.tls = tls};
    const regx_transport_config_t config = {.self = 1,
                                            .pool_size = POOL,
                                            .pool_least = POOL,
                                            .settings = &settings,
                                            .counters = &counters,
                                            .events = {.broken = note_broken}};

    return regx_mux_open(&mux_ops, table, FAKES, &config, error, 256, mux);
}

static regx_transport_t *open_mux(const char *tls)
{
    regx_transport_t *mux;
    char error[256];

    assert_int_equal(try_open(tls, error, &mux), REGX_OK);
    return mux;
}

static regx_conn_t *connect_mux(regx_transport_t *mux, bool same_node)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_mux_address(mux, address);
    regx_conn_t *conn;

    assert_int_equal(regx_mux_connect(mux, PEER, same_node, address, length, &conn), REGX_OK);
    return conn;
}

static regx_status_t send_frame(regx_conn_t *conn)
{
    return regx_mux_send(conn, 9, "head", 4, NULL, NULL, 0);
}

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

/* ---- registering ---- */

static void keys_are_those_of_the_common_table(void **state)
{
    regx_transport_t *mux = open_mux(NULL);
    regx_rkey_table_t *rkeys = (regx_rkey_table_t *)(uintptr_t)fakes[THIRD].rkeys;
    uint8_t memory[16] = {0};
    regx_mr_t mr;

    (void)state;
    assert_int_equal(regx_mux_reg(mux, memory, sizeof(memory), REGX_ACCESS_REMOTE_WRITE, &mr),
                     REGX_OK);
    assert_ptr_equal(mr.base, memory);
    assert_int_equal(regx_rkey_table_write(rkeys, &mr.key, 3, "x", 1), REGX_OK);
    assert_int_equal(memory[3], 'x');
    regx_mux_dereg(mux, &mr);
    assert_int_equal(regx_rkey_table_write(rkeys, &mr.key, 3, "y", 1), REGX_INVALID);
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
        cmocka_unit_test_setup(a_path_that_refuses_is_followed_by_the_next, reset),
        cmocka_unit_test_setup(a_path_that_breaks_later_is_not_replaced, reset),
        cmocka_unit_test_setup(a_connection_without_a_path_is_reported_once, reset),
        cmocka_unit_test_setup(a_connection_that_ends_before_is_not_reported, reset),
        cmocka_unit_test_setup(those_in_use_wait_while_the_first_is_busy_but_not_for_ever, reset),
        cmocka_unit_test_setup(one_that_comes_into_use_is_soon_asked_in_every_call, reset),
        cmocka_unit_test_setup(keys_are_those_of_the_common_table, reset),
    };

    return cmocka_run_group_tests_name("mux", tests, NULL, NULL);
}
