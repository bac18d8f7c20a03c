/* SPDX-License-Identifier: BSD-3-Clause */
#include "ends.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    end_t *end = context;

    assert_int_equal(sender, end->peer);
    assert_int_equal(tag, TAG);
    if (end->packs) {
        assert_int_equal(length, PACKED);
        assert_true(unit_is_filled(data, length, end->received));
    } else {
        assert_int_equal(length, sizeof(end->received));
        assert_memory_equal(data, &end->received, length);
    }
    end->received++;
}

static void silent(void *context, uint64_t peer)
{
    end_t *end = context;

    assert_int_equal(peer, end->peer);
    end->silent++;
}

static void broken(void *context, uint64_t peer, const char *what)
{
    end_t *end = context;

    assert_int_equal(peer, end->peer);
    snprintf(end->what, sizeof(end->what), "%s", what);
    end->broken++;
}

void open_end(end_t *end, uint64_t self)
{
    char error[256] = "";

    *end = (end_t){.peer = LOW + HIGH - self};
    regx_rkey_table_init(&end->rkeys, false);
    const regx_transport_config_t config = {
        .self = self,
        .pool_size = POOL,
        .if_include = "lo",
        .rkeys = &end->rkeys,
        .counters = &end->counters,
        .events = {.context = end, .deliver = deliver, .broken = broken, .silent = silent}};
    assert_int_equal(regx_tcp_ops.open(&config, error, sizeof(error), &end->transport), REGX_OK);
    end->tcp = regx_tcp_of(end->transport);
}

void close_end(end_t *end)
{
    regx_tcp_ops.close(end->transport);
    regx_rkey_table_fini(&end->rkeys);
}

void connect_to(end_t *from, const end_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_tcp_address(to->transport, address);

    assert_int_equal(
        regx_tcp_connect(from->transport, from->peer, false, address, length, &from->conn),
        REGX_OK);
}

void open_both(end_t *low, end_t *high)
{
    open_end(low, LOW);
    open_end(high, HIGH);
    connect_to(low, high);
    connect_to(high, low);
}

void disconnect(end_t *end)
{
    regx_tcp_disconnect(end->conn);
    end->conn = NULL;
}

bool send_one(end_t *end)
{
    const regx_status_t status =
        regx_tcp_send(end->conn, TAG, &end->sent, sizeof(end->sent), NULL, NULL, 0);

    assert_true(status == REGX_OK || status == REGX_AGAIN);
    end->sent += status == REGX_OK;
    return status == REGX_OK;
}

void progress(end_t *low, end_t *high)
{
    regx_tcp_progress(low->transport);
    regx_tcp_progress(high->transport);
}

void exchange(end_t *low, end_t *high, unsigned count)
{
    while (low->received < count || high->received < count) {
        if (low->sent < count) {
            send_one(low);
        }
        if (high->sent < count) {
            send_one(high);
        }
        progress(low, high);
    }
}

void settle(end_t *low, end_t *high)
{
    for (int i = 0; i < 100; i++) {
        regx_tcp_stir(low->tcp); /* or most looks would be put off */
        regx_tcp_stir(high->tcp);
        progress(low, high);
    }
}

void check_links(end_t *low, end_t *high, unsigned count)
{
    while (low->tcp->link_count != count || high->tcp->link_count != count) {
        progress(low, high);
    }
    settle(low, high);
    assert_int_equal(low->tcp->link_count, count);
    assert_int_equal(high->tcp->link_count, count);
    assert_int_equal(low->broken + high->broken, 0);
    assert_int_equal(low->counters.malformed + high->counters.malformed, 0);
}

void wait_for(const regx_tcp_link_t *link, short events)
{
    struct pollfd entry = {.fd = link->fd, .events = events};

    assert_int_equal(poll(&entry, 1, -1), 1);
}

void ask(end_t *end)
{
    assert_false(send_one(end));
    wait_for(link_of(end), POLLOUT);
    regx_tcp_link_ask(link_of(end));
    assert_int_equal(link_of(end)->asked, REGX_TCP_ASKED);
}

void send_when_let_in(end_t *end, unsigned count)
{
    while (end->sent < count) {
        regx_tcp_progress(end->transport);
        if (end->tcp->links != NULL && end->tcp->links->state == REGX_TCP_LINK_OPEN) {
            send_one(end);
        }
    }
}

regx_tcp_link_t *accept_one(const end_t *end)
{
    while (end->tcp->links == NULL || end->tcp->links->state != REGX_TCP_LINK_STRANGER) {
        regx_tcp_accept(end->tcp);
    }
    wait_for(end->tcp->links, POLLIN);
    return end->tcp->links;
}

void close_after(end_t *gone, end_t *other)
{
    disconnect(other);
    check_links(gone, other, 0);
    close_end(gone);
    close_end(other);
}

void close_both(end_t *low, end_t *high)
{
    disconnect(low);
    close_after(low, high);
}

void hold(end_t *low, end_t *high)
{
    assert_false(send_one(low));
    ask(high);
    while (low->tcp->links->state != REGX_TCP_LINK_HELD) {
        regx_tcp_progress(low->transport);
    }
}

int connect_raw(const struct sockaddr_storage *at)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)at, sizeof(struct sockaddr_in)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}
