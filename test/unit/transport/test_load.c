/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading a transport: what is not there is named.
 */
#include "../unit.h"

#include "transport/catalog.h"

static void a_missing_object_is_named(void **state)
{
    regx_error_t error = "";

    assert_null(regx_transport_load("nowhere", error));
    assert_non_null(strstr(error, "regx_transport_nowhere.so"));
    assert_null(strchr(error, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_object_is_named),
    };

    return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
