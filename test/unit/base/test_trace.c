/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tracing: lines come from their level on, whole, and cost nothing where they were not asked for.
 */
#include "../unit.h"

#include <stdio.h>

#include "base/trace.h"

static char last[2048];
static unsigned written;

static void keep(const char *line)
{
    snprintf(last, sizeof(last), "%s", line);
    written++;
}

static int forget(void **state)
{
    last[0] = '\0';
    written = 0;
    return 0;
}

static void lines_show_from_their_level_on(void **state)
{
    const regx_trace_t trace = {.level = REGX_TRACE_CONNECTION, .write = keep};

    regx_trace(&trace, REGX_TRACE_CHOICE, "transport %s, %d ports", "verbs", 2);
    assert_string_equal(last, "transport verbs, 2 ports");
    regx_trace(&trace, REGX_TRACE_CONNECTION, "rank %u", 7u);
    assert_string_equal(last, "rank 7");
    regx_trace(&trace, REGX_TRACE_PATH, "a path");
    assert_int_equal(written, 2);
    assert_true(regx_traces(&trace, REGX_TRACE_CONNECTION));
    assert_false(regx_traces(&trace, REGX_TRACE_CONNECTION + 1));
}

static void nothing_is_traced_at_level_0(void **state)
{
    const regx_trace_t off = {.level = 0, .write = NULL};

    regx_trace(NULL, REGX_TRACE_CHOICE, "nobody");
    regx_trace(&off, REGX_TRACE_CHOICE, "nobody");
    assert_false(regx_traces(NULL, REGX_TRACE_CHOICE));
    assert_false(regx_traces(&off, REGX_TRACE_CHOICE));
    assert_int_equal(written, 0);
}

static void long_line_is_cut(void **state)
{
    const regx_trace_t trace = {.level = REGX_TRACE_CHOICE, .write = keep};
    char text[1500];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    regx_trace(&trace, REGX_TRACE_CHOICE, "%s", text);
    assert_int_equal(strlen(last), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lines_show_from_their_level_on, forget),
        cmocka_unit_test_setup(nothing_is_traced_at_level_0, forget),
        cmocka_unit_test_setup(long_line_is_cut, forget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
