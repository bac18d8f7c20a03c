/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What two processes do by the socket that is there for both, in one process and one thread.
 */
#include "ends.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

static void who_answers_does_so_by_the_same_socket(void **state)
{
    end_t low, high;

    (void)state;
    for (int first = LOW; first <= HIGH; first++) {
        open_both(&low, &high);
        while (!send_one(first == LOW ? &low : &high)) {
            progress(&low, &high);
        }
        exchange(&low, &high, 100);
        check_links(&low, &high, 1);
        close_both(&low, &high);
    }
}

/* Its id is neither lower nor higher than the peer's: both ends of the link are its own. */
static void a_process_can_send_to_itself(void **state)
{
    end_t here;

    (void)state;
    open_end(&here, LOW);
    here.peer = LOW;
    connect_to(&here, &here);
    while (here.received < 100) {
        if (here.sent < 100) {
            send_one(&here);
        }
        regx_tcp_progress(here.transport);
    }
    assert_int_equal(here.tcp->link_count, 2);
    disconnect(&here);
    while (here.tcp->link_count > 0) {
        regx_tcp_progress(here.transport);
    }
    assert_int_equal(here.broken, 0);
    assert_int_equal(here.counters.malformed, 0);
    close_end(&here);
}

static void pack_next(void *context, void *to, size_t length)
{
    end_t *end = context;

    unit_fill(to, length, end->packed++, 0);
}

static regx_status_t send_packed(end_t *end)
{
    return regx_tcp_send(end->conn, TAG, NULL, 0, pack_next, end, PACKED);
}

/* A socket that takes not a byte more. */
static int make_full_socket(int *other)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    while (send(ends[0], "", 1, MSG_DONTWAIT) == 1) {
    }
    *other = ends[1];
    return ends[0];
}

/* What was packed is gone from the convertor: who has to send again must not have packed. */
static void a_frame_is_packed_only_if_it_is_accepted(void **state)
{
    end_t low, high;
    int other;

    (void)state;
    open_both(&low, &high);
    high.packs = true;
    while (send_packed(&low) == REGX_AGAIN) {
        progress(&low, &high);
    }
    const int fd = low.tcp->links->fd, real = dup(fd), full = make_full_socket(&other);
    unsigned accepted = low.packed;

    assert_int_equal(dup2(full, fd), fd);
    for (int i = 0; i < 3; i++) {
        accepted += send_packed(&low) == REGX_OK;
        assert_int_equal(low.packed, accepted);
    }
    assert_int_equal(dup2(real, fd), fd);
    while (send_packed(&low) == REGX_AGAIN || low.packed < 10) {
        progress(&low, &high);
    }
    while (high.received < low.packed) {
        progress(&low, &high);
    }
    close(real);
    close(full);
    close(other);
    disconnect(&low);
    disconnect(&high);
    check_links(&low, &high, 0);
    close_end(&low);
    close_end(&high);
}

/* A child that does not exec has all descriptors; what is closed here is still open there. */
static void a_forked_child_does_no_harm(void **state)
{
    int ends[2];
    end_t low, high;
    char byte;

    (void)state;
    open_both(&low, &high);
    exchange(&low, &high, 10);
    const struct sockaddr_storage at = high.tcp->at;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0); /* until the parent closes it, or ends */
    }
    close_both(&low, &high);
    errno = 0;
    assert_int_equal(connect_raw(&at), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void a_loopback_reaches_its_own_host_alone(void **state)
{
    uint8_t address[REGX_ADDRESS_MAX];
    regx_conn_t *conn;
    end_t here;

    (void)state;
    open_end(&here, LOW);
    const size_t length = regx_tcp_address(here.transport, address);
    address[16] ^= 2; /* of the host */
    assert_int_equal(regx_tcp_connect(here.transport, HIGH, false, address, length, &conn),
                     REGX_UNREACHABLE);
    close_end(&here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_answers_does_so_by_the_same_socket),
        cmocka_unit_test(a_process_can_send_to_itself),
        cmocka_unit_test(a_frame_is_packed_only_if_it_is_accepted),
        cmocka_unit_test(a_forked_child_does_no_harm),
        cmocka_unit_test(a_loopback_reaches_its_own_host_alone),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
