/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tracing: how long a line may be, and that it costs nothing where it is not shown. (From which
 * level on it is: test/mpi/test_trace.py.)
 */
#include "../unit.h"

#include "base/trace.h"

static char last[2048];

static void keep(const char *line)
{
    snprintf(last, sizeof(last), "%s", line);
}

UNIT_TEST(long_line_is_cut)
{
    const regx_trace_t trace = {.level = REGX_TRACE_CHOICE, .write = keep};
    char text[1500] = {0};

    memset(text, 'x', sizeof(text) - 1);
    regx_trace(&trace, REGX_TRACE_CHOICE, "%s", text);
    assert_int_equal(strlen(last), 1000);
}

UNIT_TEST(arguments_of_a_line_that_is_not_shown_are_not_evaluated)
{
    const regx_trace_t trace = {.level = REGX_TRACE_CHOICE, .write = keep};
    int evaluated = 0;

    regx_trace(&trace, REGX_TRACE_PATH, "%d", ++evaluated);
    assert_int_equal(evaluated, 0);
    regx_trace(&trace, REGX_TRACE_CHOICE, "%d", ++evaluated);
    assert_string_equal(last, "1");
}
