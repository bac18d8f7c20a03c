/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a user wrote: right as a whole and stored, or refused in one line that says what is allowed.
 */
#include "../unit.h"

#include "base/param.h"

#define GIB (UINT64_C(1) << 30)

typedef enum { RED, GREEN } colour_t;

typedef struct settings {
    colour_t colour;
    const char *animal;
    uint8_t level;
    int index;
    uint16_t key;
    size_t slot, pool;
    uint64_t any;
    const char *devices;
    char file[8];
} settings_t;

static const regx_param_word_t animals[] = {
    {.word = "cat"}, {.word = "dog"}, {.word = "bird"}, {.word = NULL}};

static uint64_t two_slots(const void *settings)
{
    return 2 * ((const settings_t *)settings)->slot;
}

#define ROW(kind, field, ...) REGX_PARAM_ROW(settings_t, "my_", kind, field, 1, ##__VA_ARGS__)

enum { COLOUR, ANIMAL, LEVEL, INDEX, KEY, SLOT, POOL, ANY, DEVICES, FILE_NAME };

static const regx_param_t params[] = {
    ROW(WORD, colour,
        .words = REGX_WORDS({.word = "red", .value = RED}, {.word = "green", .value = GREEN},
                            {.word = "blue", .absent = true})),
    ROW(NAME, animal, .words = animals),
    ROW(NUMBER, level, .min = 1, .max = 31),
    ROW(NUMBER, index, .max = 255, .words = REGX_WORDS({.word = "auto", .value = UINT64_MAX})),
    ROW(NUMBER, key, .min = 1, .max = 0xffff, .hexadecimal = true),
    ROW(SIZE, slot, .pages = true, .max = 1 << 20),
    ROW(SIZE, pool, .pages = true, .max = 1 << 30, .at_least = two_slots,
        .words = REGX_WORDS({.word = "auto", .value = 0})),
    ROW(SIZE, any, .max = UINT64_MAX),
    ROW(LIST, devices),
    ROW(TEXT, file)};

/* What every field is before, so that a test sees what else was written. */
static settings_t settings;

static bool set(unsigned param, const char *text, regx_error_t error)
{
    memset(&settings, 0xee, sizeof(settings));
    settings.slot = 64 << 10;
    error[0] = '\0';
    return regx_param_read(&params[param], text, &settings, error);
}

static void accept(unsigned param, const char *text)
{
    regx_error_t error;

    unit_expect(set(param, text, error), "%s", error);
    assert_string_equal(error, "");
}

UNIT_TEST(words_are_stored_by_their_value)
{
    accept(COLOUR, "green");
    assert_int_equal(settings.colour, GREEN);
    accept(COLOUR, "red");
    assert_int_equal(settings.colour, RED);
    accept(ANIMAL, "dog");
    assert_string_equal(settings.animal, "dog");
    accept(INDEX, "auto");
    assert_int_equal(settings.index, -1);
    accept(POOL, "auto");
    assert_int_equal(settings.pool, 0);
}

UNIT_TEST(numbers_are_stored_in_their_field_alone)
{
    static const struct {
        const char *text;
        uint64_t value;
    } sizes[] = {{"0", 0},
                 {"1k", 1024},
                 {"3M", 3 << 20},
                 {"2g", 2 * GIB},
                 {"18446744073709551615", UINT64_MAX},
                 {"17179869183G", UINT64_C(17179869183) << 30}}; /* the last that fits */

    accept(LEVEL, "31");
    assert_int_equal(settings.level, 31);
    assert_int_equal((unsigned char)settings.index, 0xee);
    accept(INDEX, "255");
    assert_int_equal(settings.index, 255);
    accept(KEY, "0xFfff");
    assert_int_equal(settings.key, 0xffff);
    accept(KEY, "12");
    assert_int_equal(settings.key, 12);
    accept(SLOT, "1M");
    assert_int_equal(settings.slot, 1 << 20);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        accept(ANY, sizes[i].text);
        assert_int_equal(settings.any, sizes[i].value);
    }
}

UNIT_TEST(lists_and_texts_are_kept)
{
    static const char list[] = "anything,at all";

    accept(DEVICES, list);
    assert_ptr_equal(settings.devices, list);
    accept(DEVICES, "");
    assert_null(settings.devices);
    accept(DEVICES, NULL);
    assert_null(settings.devices);
    accept(FILE_NAME, "1234567");
    assert_string_equal(settings.file, "1234567");
    accept(FILE_NAME, "none");
    assert_string_equal(settings.file, "");
}

UNIT_TEST(refusals_say_what_is_allowed)
{
    char page[24], slots[96], pools[96];
    const struct {
        unsigned param;
        const char *text, *said, *allowed;
    } cases[] = {
        {COLOUR, "blue", "=blue is not known", "red, green"},
        {COLOUR, "gree", "=gree is not known", "red, green"},
        {COLOUR, NULL, "= is not known", "red, green"},
        {ANIMAL, "cow", "=cow is not known", "cat, dog, bird"},
        {LEVEL, "32", "=32 is above the cap", "1 to 31"},
        {LEVEL, "0x1", "=0x1 is not a number", "1 to 31"},
        {LEVEL, "4K", "=4K is not a number", "1 to 31"},
        {LEVEL, "-1", "=-1 is not a number", "1 to 31"},
        {LEVEL, "18446744073709551617", "=18446744073709551617 is not a number", "1 to 31"},
        {LEVEL, "010", "=010 is not a number", "1 to 31"}, /* 8 for Open MPI */
        {INDEX, "Auto", "=Auto is not a number", "0 to 255, auto"},
        {KEY, "0", "=0 is too small", "0x0001 to 0xffff"},
        {KEY, "0x", "=0x is not a number", "0x0001 to 0xffff"},
        {SLOT, "0", "=0 is too small", slots},
        {SLOT, "65537", "=65537 does not divide evenly", slots},
        {SLOT, "4Q", "=4Q is not a size", slots},
        {SLOT, "064K", "=064K is not a size", slots},
        {SLOT, "4KB", "=4KB is not a size", slots},
        {SLOT, "64K ", "=64K  is not a size", slots},
        {SLOT, " 64K", "= 64K is not a size", slots},
        {SLOT, "1.5M", "=1.5M is not a size", slots},
        {SLOT, "17179869184G", "=17179869184G is not a size", slots}, /* above 64 bits */
        {POOL, "64K", "=64K is too small", pools},
        {FILE_NAME, "12345678", " is too long", "7 characters"},
    };

    regx_option_show_size((uint64_t)sysconf(_SC_PAGESIZE), page, sizeof(page));
    snprintf(slots, sizeof(slots), "%s to 1M, multiples of %s", page, page);
    snprintf(pools, sizeof(pools), "128K to 1G, multiples of %s, auto", page);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        regx_error_t error, expected;

        snprintf(expected, sizeof(expected), "btl_regx_%s%s; allowed: %s",
                 params[cases[i].param].name, cases[i].said, cases[i].allowed);
        assert_false(set(cases[i].param, cases[i].text, error));
        assert_string_equal(error, expected);
    }
}

/* However much the user wrote, the refusal ends within its room. */
UNIT_TEST(a_long_value_does_not_overflow_the_refusal)
{
    static const unsigned each[] = {COLOUR, LEVEL, SLOT};
    char text[4 * REGX_ERROR], error[REGX_ERROR + 1];

    memset(text, '9', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        error[REGX_ERROR] = '#';
        assert_false(set(each[i], text, error));
        assert_int_equal(strlen(error), REGX_ERROR - 1);
        assert_int_equal(error[REGX_ERROR], '#');
    }
}

static bool flies(const char *word)
{
    return strcmp(word, "bird") == 0;
}

static bool has_fur(const char *word)
{
    return !flies(word);
}

UNIT_TEST(a_list_has_those_that_are_allowed_and_stays_in_its_room)
{
    char list[16];

    memset(list, 'x', sizeof(list));
    regx_param_list(animals, has_fur, list, sizeof(list));
    assert_string_equal(list, "cat, dog");
    regx_param_list(animals, has_fur, list, 4);
    assert_string_equal(list, "cat");
    assert_memory_equal(list + 4, " dog", 5);
    regx_param_list(animals, flies, list, sizeof(list));
    assert_string_equal(list, "bird");
}

UNIT_TEST(lists_hold_whole_elements)
{
    assert_true(regx_option_listed("tcp", "tcp"));
    assert_true(regx_option_listed("posix,,tcp,", "tcp"));
    assert_false(regx_option_listed("posix,sysv", "sys"));
    assert_false(regx_option_listed("posix,sysv", "osix"));
    assert_false(regx_option_listed("posix,sysv", "posix,sysv")); /* not one element */
    assert_false(regx_option_listed("posix, tcp", "tcp"));        /* spaces belong to it */
    assert_false(regx_option_listed(NULL, "tcp"));
}
