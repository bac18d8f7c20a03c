/* SPDX-License-Identifier: BSD-3-Clause */
#include "fakes.h"

#include <stdio.h>

#include "base/util.h"
#include "transport/mux/params.h"

fake_t fakes[FAKES];
uint8_t pools[FAKES][POOL];
regx_counters_t counters;
unsigned broken;

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

int reset(void **state)
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

regx_status_t try_open(const char *tls, char error[256], regx_transport_t **mux)
{
    const regx_mux_settings_t settings = {.tls = tls};
    const regx_transport_config_t config = {.self = 1,
                                            .pool_size = POOL,
                                            .pool_min = POOL,
                                            .settings = &settings,
                                            .counters = &counters,
                                            .events = {.broken = note_broken}};

    return regx_mux_open(&mux_ops, table, FAKES, &config, error, 256, mux);
}

regx_transport_t *open_mux(const char *tls)
{
    regx_transport_t *mux;
    char error[256];

    assert_int_equal(try_open(tls, error, &mux), REGX_OK);
    return mux;
}

regx_conn_t *connect_mux(regx_transport_t *mux, bool same_node)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_mux_address(mux, address);
    regx_conn_t *conn;

    assert_int_equal(regx_mux_connect(mux, PEER, same_node, address, length, &conn), REGX_OK);
    return conn;
}
