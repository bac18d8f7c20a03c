/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading a transport: what is not there is named, and the environment is as it was.
 */
#include "unit.h"

#include <stdlib.h>

#include "transport/load.h"

extern char **environ;

/* All of the environment, in one string. */
static char *environment(void)
{
    size_t size = 1;
    char *all;

    for (char **at = environ; *at != NULL; at++) {
        size += strlen(*at) + 1;
    }
    all = calloc(1, size);
    assert_non_null(all);
    for (char **at = environ; *at != NULL; at++) {
        strcat(strcat(all, *at), "\n");
    }
    return all;
}

static void a_missing_object_is_named(void **state)
{
    char error[512] = "", *before, *after;

    (void)state;
    assert_int_equal(setenv("UCX_LOG_FILE", "mine", 1), 0); /* the user's */
    before = environment();
    assert_null(regx_transport_load("nowhere", error, sizeof(error)));
    after = environment();
    assert_non_null(strstr(error, "regx_transport_nowhere.so"));
    assert_null(strchr(error, '\n'));
    assert_string_equal(before, after);
    free(before);
    free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_object_is_named),
    };

    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
