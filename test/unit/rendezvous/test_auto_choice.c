/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What btl_regx_auto_choice takes.
 */
#include "../unit.h"

#include "rendezvous/rendezvous.h"

static regx_auto_choice_t choice_of(const char *text)
{
    char error[REGX_OPTION_ERROR];
    regx_auto_choice_t choice;

    assert_true(regx_auto_choice_read(text, &choice, error));
    return choice;
}

static void bad_choices_are_refused_by_one_line(void **state)
{
    static const char *const bad[] = {"together",
                                      "64K",
                                      "64K:",
                                      "64K:auto",
                                      "64K:eager",
                                      "64K:faster",
                                      "64K:read,",
                                      ":read",
                                      "8K:read",
                                      "48K:read",
                                      "0:read",
                                      "-64K:read",
                                      "64K:read,64K:bounce",
                                      "64K:read,32K:bounce",
                                      "64K:read 1M:bounce",
                                      "16384G:read",
                                      "64K:read,,1M:bounce"};

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char error[REGX_OPTION_ERROR] = "";
        regx_auto_choice_t choice;

        if (regx_auto_choice_read(bad[i], &choice, error)) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_non_null(strstr(error, "btl_regx_auto_choice="));
        assert_non_null(strstr(error, "together"));
        assert_null(strchr(error, '\n'));
    }
}

static void nothing_pinned_is_nothing(void **state)
{
    const regx_auto_choice_t none = {{0}}, empty = choice_of(""), null = choice_of(NULL);

    (void)state;
    assert_memory_equal(&none, &empty, sizeof(none));
    assert_memory_equal(&none, &null, sizeof(none));
}

static void a_choice_holds_from_its_size_on(void **state)
{
    const regx_auto_choice_t choice = choice_of("32K:read,512K:bounce");

    (void)state;
    assert_int_equal(choice.path[0], 0);
    assert_int_equal(choice.path[1], REGX_PATH_read);
    assert_int_equal(choice.path[4], REGX_PATH_read);
    assert_int_equal(choice.path[5], REGX_PATH_bounce);
    assert_int_equal(choice.path[REGX_AUTOTUNE_SIZES - 1], REGX_PATH_bounce);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_choices_are_refused_by_one_line),
                                       cmocka_unit_test(nothing_pinned_is_nothing),
                                       cmocka_unit_test(a_choice_holds_from_its_size_on)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
