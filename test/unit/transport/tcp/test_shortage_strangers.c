/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Strangers that hold the last descriptors are put out, unless they have spoken.
 */
#include "shortage.h"

#include <sys/socket.h>
#include <unistd.h>

static int add_stranger(const end_t *end)
{
    const int fd = connect_raw(&end->tcp->at);

    assert_true(fd >= 0);
    while (!regx_tcp_accept(end->tcp)) {
    }
    return fd;
}

/* They had all the time there is to say something. */
static void age_strangers(const end_t *end)
{
    for (regx_tcp_link_t *link = end->tcp->links; link != NULL; link = link->next) {
        link->since_ns -= (REGX_TCP_SILENT_NS + 1) * (link->state == REGX_TCP_LINK_STRANGER);
    }
}

static bool was_put_out(int fd)
{
    uint8_t byte;

    return recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) == 0;
}

/* The lower one alone wants to send, and does. */
static void send_first(end_t *low, end_t *high)
{
    while (high->received == 0) {
        if (low->sent == 0) {
            send_one(low);
        }
        progress(low, high);
    }
}

static void the_oldest_silent_stranger_makes_room_for_a_peer(void **state)
{
    enum { STRANGERS = 3 };
    int fds[STRANGERS];
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    for (int n = 0; n < STRANGERS; n++) {
        fds[n] = add_stranger(&high);
    }
    assert_false(send_one(&low)); /* its socket is there */
    take_all_descriptors();
    while (high.counters.fallbacks[0].count == 0) {
        progress(&low, &high);
    }
    settle(&low, &high);
    assert_false(was_put_out(fds[0])); /* it may yet speak */
    age_strangers(&high);
    send_first(&low, &high);
    exchange(&low, &high, 100);
    settle(&low, &high);
    for (int n = 0; n < STRANGERS; n++) {
        assert_int_equal(was_put_out(fds[n]), n == 0);
        close(fds[n]);
    }
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

/* It said connect while the process was outside MPI. */
static void who_has_spoken_is_not_put_out_unheard(void **state)
{
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    ask(&low);
    regx_tcp_link_t *spoken = accept_one(&high);
    const int other = connect_raw(&high.tcp->at);
    assert_true(other >= 0);
    take_all_descriptors();
    age_strangers(&high);
    assert_false(regx_tcp_accept(high.tcp));
    assert_int_equal(high.counters.fallbacks[0].count, 1);
    assert_int_equal(spoken->state, REGX_TCP_LINK_STRANGER);
    exchange(&low, &high, 100);
    close(other);
    allow_descriptors();
    check_links(&low, &high, 1);
    close_both(&low, &high);
}

static void a_silent_stranger_makes_room_for_who_wants_to_send(void **state)
{
    int at_low, at_high;
    end_t low, high;

    (void)state;
    open_both(&low, &high);
    at_low = add_stranger(&low);
    at_high = add_stranger(&high);
    take_all_descriptors();
    age_strangers(&high);
    assert_false(send_one(&low));
    settle(&low, &high);
    assert_false(was_put_out(at_low));
    age_strangers(&low);
    send_first(&low, &high);
    exchange(&low, &high, 100);
    assert_true(was_put_out(at_low) && was_put_out(at_high));
    check_links(&low, &high, 1);
    close(at_low);
    close(at_high);
    close_both(&low, &high);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_silent_stranger_makes_room_for_a_peer,
                                        keep_limit, restore_limit),
        cmocka_unit_test_setup_teardown(who_has_spoken_is_not_put_out_unheard, keep_limit,
                                        restore_limit),
        cmocka_unit_test_setup_teardown(a_silent_stranger_makes_room_for_who_wants_to_send,
                                        keep_limit, restore_limit),
    };

    return cmocka_run_group_tests_name("shortage_strangers", tests, NULL, NULL);
}
