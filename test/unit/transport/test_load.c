/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading a transport: what is not there is named.
 */
#include "../unit.h"

#include "transport/catalog.h"

UNIT_TEST(a_missing_object_is_named)
{
    regx_error_t error = "";

    assert_null(regx_transport_load("nowhere", error));
    assert_non_null(strstr(error, "regx_transport_nowhere.so"));
    assert_null(strchr(error, '\n'));
}
