/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The kernel's copies between two processes: what keeps them from reaching a third.
 */
#include "../pair.h"

#include "transport/shm/segment.h"

enum { LENGTH = 100000 };

/* At the same addresses in both. */
static regx_vm_cookie_t cookie = {{0x1234, 0x5678}};
static uint8_t memory[LENGTH];

/* The child shows another cookie from the first meeting on, as a process would that got the number
 * of one that has ended. It ends well if nothing was written to it after that. */
static void be_another(int end)
{
    pair_meet(end);
    cookie.words[1]++;
    unit_fill(memory, LENGTH, 2, 0);
    pair_meet(end);
    pair_meet(end);
    REQUIRE(unit_is_filled(memory, LENGTH, 2));
}

static void copy(regx_vm_peer_t *peer, regx_vm_direction_t way, void *local, regx_status_t expected)
{
    size_t copied;

    assert_int_equal(regx_vm_copy(peer, way, local, (uintptr_t)memory, LENGTH, &copied), expected);
    assert_int_equal(copied, expected == REGX_OK ? LENGTH : 0);
}

static void a_process_with_the_number_of_one_that_ended_is_not_written(void **state)
{
    static uint8_t local[LENGTH];
    char reason[80];
    int end;
    const pid_t child = pair_fork(&end);
    regx_vm_peer_t peer = {.pid = child, .cookie_address = (uintptr_t)&cookie, .cookie = cookie};

    (void)state;
    if (in_child) {
        be_another(end);
        pair_join(child, end, false);
    }
    assert_int_equal(regx_vm_check(&peer, reason, sizeof(reason)), REGX_OK);
    copy(&peer, REGX_VM_WRITE, local, REGX_OK);
    copy(&peer, REGX_VM_READ, local, REGX_OK);
    pair_meet(end);
    pair_meet(end);
    peer.looked -= REGX_VM_LOOK_NS; /* time goes by */
    copy(&peer, REGX_VM_WRITE, local, REGX_FAILED);
    copy(&peer, REGX_VM_READ, local, REGX_FAILED);
    pair_meet(end);
    pair_join(child, end, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_with_the_number_of_one_that_ended_is_not_written),
    };

    return cmocka_run_group_tests_name("vm", tests, NULL, NULL);
}
