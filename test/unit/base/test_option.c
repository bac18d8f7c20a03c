/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a user wrote: right as a whole, or refused in one line that says what is allowed.
 */
#include "../unit.h"

#include <stdio.h>

#include "base/option.h"

#define GIB (UINT64_C(1) << 30)

static const regx_option_range_t anything = {0, UINT64_MAX, 1, true, false, NULL};
static const regx_option_range_t any_number = {0, UINT64_MAX, 1, false, false, NULL};
static const regx_option_range_t chunk = {4096, 2 << 20, 4096, true, false, NULL};
static const regx_option_range_t depth = {1, 64, 1, false, false, NULL};

typedef struct accepted {
    const char *text;
    const regx_option_range_t *range;
    uint64_t value;
} accepted_t;

typedef struct refused {
    const char *text;
    const regx_option_range_t *range;
    const char *error; /* the whole of it */
} refused_t;

static void values_are_read_to_their_last_character(void **state)
{
    static const accepted_t cases[] = {
        {"0", &anything, 0},
        {"7", &any_number, 7},
        {"007", &any_number, 7}, /* not octal */
        {"1k", &anything, 1024},
        {"1K", &anything, 1024},
        {"3m", &anything, 3 << 20},
        {"3M", &anything, 3 << 20},
        {"2g", &anything, 2 * GIB},
        {"2G", &anything, 2 * GIB},
        {"0G", &anything, 0},
        {"18446744073709551615", &any_number, UINT64_MAX},
        {"18446744073709551615", &anything, UINT64_MAX},
        {"17179869183G", &anything, UINT64_C(17179869183) << 30}, /* the last that fits */
        {"4K", &chunk, 4096},
        {"2M", &chunk, 2 << 20},
        {"2097152", &chunk, 2 << 20},
        {"12288", &chunk, 12288},
        {"1", &depth, 1},
        {"64", &depth, 64},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char error[REGX_OPTION_ERROR] = "untouched";
        uint64_t value = 12345;

        if (!regx_option_number("name", cases[i].text, cases[i].range, &value, error)) {
            fail_msg("%s: %s", cases[i].text, error);
        }
        assert_int_equal(value, cases[i].value);
        assert_string_equal(error, "untouched");
    }
}

#define CHUNKS "; allowed: 4K to 2M, multiples of 4K"
#define DEPTHS "; allowed: 1 to 64"

static void anything_else_is_refused(void **state)
{
    static const refused_t cases[] = {
        /* not wholly a size */
        {"", &chunk, "name= is not a size" CHUNKS},
        {"4Q", &chunk, "name=4Q is not a size" CHUNKS},
        {"4KB", &chunk, "name=4KB is not a size" CHUNKS},
        {"4K ", &chunk, "name=4K  is not a size" CHUNKS},
        {" 4K", &chunk, "name= 4K is not a size" CHUNKS},
        {"4 K", &chunk, "name=4 K is not a size" CHUNKS},
        {"K", &chunk, "name=K is not a size" CHUNKS},
        {"-4K", &chunk, "name=-4K is not a size" CHUNKS},
        {"+4K", &chunk, "name=+4K is not a size" CHUNKS},
        {"0x1000", &chunk, "name=0x1000 is not a size" CHUNKS},
        {"8192.0", &chunk, "name=8192.0 is not a size" CHUNKS},
        {"8192,", &chunk, "name=8192, is not a size" CHUNKS},
        /* more than 64 bits: before the suffix, and with it */
        {"18446744073709551616", &chunk, "name=18446744073709551616 is not a size" CHUNKS},
        {"17179869184G", &chunk, "name=17179869184G is not a size" CHUNKS},
        {"18014398509481984K", &chunk, "name=18014398509481984K is not a size" CHUNKS},
        /* a size, but not this one */
        {"0", &chunk, "name=0 is too small" CHUNKS},
        {"4095", &chunk, "name=4095 is too small" CHUNKS},
        {"4097", &chunk, "name=4097 does not divide evenly" CHUNKS},
        {"5K", &chunk, "name=5K does not divide evenly" CHUNKS},
        {"2097153", &chunk, "name=2097153 is above the cap" CHUNKS},
        {"4M", &chunk, "name=4M is above the cap" CHUNKS},
        {"16777215G", &chunk, "name=16777215G is above the cap" CHUNKS},
        /* a plain number has no suffix */
        {"", &depth, "name= is not a number" DEPTHS},
        {"4K", &depth, "name=4K is not a number" DEPTHS},
        {"-1", &depth, "name=-1 is not a number" DEPTHS},
        {"four", &depth, "name=four is not a number" DEPTHS},
        {"0", &depth, "name=0 is too small" DEPTHS},
        {"65", &depth, "name=65 is above the cap" DEPTHS},
        {"18446744073709551617", &depth, "name=18446744073709551617 is not a number" DEPTHS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char error[REGX_OPTION_ERROR] = "";
        uint64_t value;

        if (regx_option_number("name", cases[i].text, cases[i].range, &value, error)) {
            fail_msg("\"%s\" is accepted", cases[i].text);
        }
        assert_string_equal(error, cases[i].error);
    }
}

/* However much the user wrote, the refusal ends within its room. */
static void a_long_value_does_not_overflow_the_refusal(void **state)
{
    char text[4 * REGX_OPTION_ERROR], error[REGX_OPTION_ERROR + 1];
    uint64_t value;

    (void)state;
    memset(text, '9', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    for (int refusal = 0; refusal < 2; refusal++) {
        memset(error, '#', sizeof(error));
        if (refusal == 0) {
            assert_false(regx_option_number("name", text, &chunk, &value, error));
        } else {
            regx_option_refuse("name", text, "one, two", error);
        }
        assert_int_equal(strlen(error), REGX_OPTION_ERROR - 1);
        assert_int_equal(error[REGX_OPTION_ERROR], '#');
        assert_memory_equal(error, "name=999", 8);
    }
}

static void sizes_are_shown_as_a_person_writes_them(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0"},
        {1, "1"},
        {1023, "1023"},
        {1024, "1K"},
        {1025, "1025"},
        {65536, "64K"},
        {65537, "65537"},
        {1 << 20, "1M"},
        {(1 << 20) + 1024, "1025K"},
        {GIB, "1G"},
        {3 * GIB / 2, "1536M"},
        {1024 * GIB, "1024G"},
        {UINT64_MAX, "18446744073709551615"},
    };
    char text[24], narrow[4];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value;

        regx_option_show_size(cases[i].bytes, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
        assert_true(regx_option_number("name", text, &anything, &value, NULL)); /* read back */
        assert_int_equal(value, cases[i].bytes);
    }
    regx_option_show_size(123456, narrow, sizeof(narrow));
    assert_string_equal(narrow, "123");
}

static void an_unknown_word_is_refused_by_name(void **state)
{
    char error[REGX_OPTION_ERROR];

    (void)state;
    regx_option_refuse("btl_regx_backend", "hooks", "auto, none", error);
    assert_string_equal(error, "btl_regx_backend=hooks is not known; allowed: auto, none");
}

static void lists_hold_whole_elements(void **state)
{
    (void)state;
    assert_true(regx_option_listed("tcp", "tcp"));
    assert_true(regx_option_listed("posix,sysv,tcp", "posix"));
    assert_true(regx_option_listed("posix,sysv,tcp", "sysv"));
    assert_true(regx_option_listed("posix,sysv,tcp", "tcp"));
    assert_true(regx_option_listed("tcp,,posix,", "posix"));
    assert_false(regx_option_listed("posix,sysv,tcp", "sys"));
    assert_false(regx_option_listed("posix,sysv,tcp", "sysv2"));
    assert_false(regx_option_listed("posix,sysv,tcp", "osix"));
    assert_false(regx_option_listed("posix,sysv,tcp", "posix,sysv")); /* not one element */
    assert_false(regx_option_listed("posix,sysv", "TCP"));
    assert_false(regx_option_listed("posix, tcp", "tcp")); /* spaces belong to the element */
    assert_false(regx_option_listed("", "tcp"));
    assert_false(regx_option_listed(NULL, "tcp"));
    assert_false(regx_option_listed("tcp", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_to_their_last_character),
        cmocka_unit_test(anything_else_is_refused),
        cmocka_unit_test(a_long_value_does_not_overflow_the_refusal),
        cmocka_unit_test(sizes_are_shown_as_a_person_writes_them),
        cmocka_unit_test(an_unknown_word_is_refused_by_name),
        cmocka_unit_test(lists_hold_whole_elements),
    };

    return cmocka_run_group_tests_name("option", tests, NULL, NULL);
}
