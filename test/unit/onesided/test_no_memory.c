/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A target that has no memory for its answers: its owner is told whom it cannot answer, since that
 * one waits.
 */
#include "../unit.h"

#include <stdlib.h>

#include "line.h"

static bool no_memory;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size)
{
    return no_memory ? NULL : __real_calloc(count, size);
}

static line_t processes[LINE_PROCESSES];
enum { OPEN = -1 };

static void done(regx_onesided_request_t *request, regx_status_t status)
{
    *(int *)request->local = (int)status; /* of no use otherwise to an atomic operation */
}

/* It has done nothing of what it cannot answer. Once there is memory, all is as usual. */
static void whom_the_target_cannot_answer_is_told_to_its_owner(void **state)
{
    _Alignas(8) uint64_t number = 40;
    line_t *origin = &processes[0], *target = &processes[1];
    uint8_t bytes[REGX_ONESIDED_NAME_SIZE];
    regx_onesided_name_t name;
    regx_onesided_window_t window;

    (void)state;
    line_open(processes);
    assert_true(regx_onesided_offer(target->onesided, &window, &number, sizeof(number), bytes));
    regx_onesided_name_unpack(bytes, &name);
    regx_onesided_request_t requests[2];
    int ended[2] = {OPEN, OPEN};
    for (unsigned i = 0; i < 2; i++) {
        requests[i] = (regx_onesided_request_t){.type = REGX_ONESIDED_ATOMIC,
                                                .window = name.handle,
                                                .address = name.base,
                                                .op = REGX_ONESIDED_ADD,
                                                .size = sizeof(number),
                                                .operand = 2,
                                                .done = done,
                                                .local = &ended[i]};
        assert_int_equal(regx_onesided_ask(origin->onesided, &origin->peers[1], &requests[i]),
                         REGX_PENDING);
    }
    no_memory = true;
    assert_true(line_deliver(origin, target));
    no_memory = false;
    assert_int_equal(target->unanswered, 1);
    assert_int_equal(target->unanswered_peer, origin->id);
    assert_int_equal(number, 40);
    line_run(processes);
    assert_int_equal(target->unanswered, 1);
    assert_int_equal(number, 42);
    assert_int_equal(requests[1].result, 40);
    assert_int_equal(ended[1], REGX_OK);
    assert_int_equal(ended[0], OPEN); /* until the connection is lost */
    regx_onesided_forget(origin->onesided, &origin->peers[1]);
    assert_int_equal(ended[0], REGX_UNREACHABLE);
    regx_onesided_add(origin->onesided, &origin->peers[1], target->id, &origin->conns[1].conn);
    line_close(processes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whom_the_target_cannot_answer_is_told_to_its_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
