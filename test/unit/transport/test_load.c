/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading a transport: what is not there is named, and the environment is as it was.
 */
#include "../unit.h"

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

/* Other threads may be reading it: neither it nor what it holds is replaced for good, or freed. */
static void the_environment_stays_where_it_is(void **state)
{
    char first[] = "A=1", second[] = "UCX_LOG_FILE=mine";
    char *own[] = {first, second, NULL};
    char **const real = environ;
    char error[512];

    (void)state;
    environ = own;
    regx_transport_load("nowhere", error, sizeof(error));
    char **const after = environ;
    environ = real;
    assert_ptr_equal(after, own);
    assert_ptr_equal(own[0], first);
    assert_ptr_equal(own[1], second);
    assert_null(own[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_object_is_named),
        cmocka_unit_test(the_environment_stays_where_it_is),
    };

    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
