/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tracing: how long a line may be. (From which level on there is one: test/mpi/test_trace.py.)
 */
#include "../unit.h"

#include <stdio.h>

#include "base/trace.h"

static char last[2048];

static void keep(const char *line)
{
    snprintf(last, sizeof(last), "%s", line);
}

static void long_line_is_cut(void **state)
{
    const regx_trace_t trace = {.level = REGX_TRACE_CHOICE, .write = keep};
    char text[1500] = {0};

    memset(text, 'x', sizeof(text) - 1);
    regx_trace(&trace, REGX_TRACE_CHOICE, "%s", text);
    assert_int_equal(strlen(last), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_line_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
