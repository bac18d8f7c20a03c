/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A table of parameters: what is stored, what is refused and how, and what the help says.
 */
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/param.h"

typedef enum { RED, GREEN } colour_t;

typedef struct settings {
    colour_t colour;
    const char *animal;
    uint8_t level;
    int index;
    uint16_t key;
    size_t slot, pool;
    const char *wires;
    const char *devices;
    char file[8];
} settings_t;

static bool animal(unsigned index, regx_param_word_t *word)
{
    static const char *const animals[] = {"cat", "dog"};

    if (index >= 2) {
        return false;
    }
    *word = (regx_param_word_t){.word = animals[index]};
    return true;
}

static void two_slots(const void *settings, regx_option_range_t *range)
{
    range->min = 2 * ((const settings_t *)settings)->slot;
}

#define ROW(kind, field, ...)                                                                      \
    REGX_PARAM_ROW(settings_t, "my_", kind, field, NULL, 1, "Help.", ##__VA_ARGS__)

enum { COLOUR, ANIMAL, LEVEL, INDEX, KEY, SLOT, POOL, WIRES, DEVICES, FILE_NAME };

static const regx_param_t params[] = {
    ROW(WORD, colour,
        .words = REGX_WORDS({.word = "red", .value = RED, .help = "of blood"},
                            {.word = "green", .value = GREEN, .help = "of grass", .more = "No."},
                            {.word = "blue", .absent = true, .help = "of the sea"}))
        ROW(NAME, animal, .word_at = animal) ROW(NUMBER, level, .min = 1, .max = 31,
                                                 .unit = "steps")
            ROW(NUMBER, index, .max = 255,
                .words = REGX_WORDS({.word = "auto", .value = UINT64_MAX, .help = "the first"}))
                ROW(NUMBER, key, .min = 1, .max = 0xffff,
                    .hexadecimal = true) ROW(SIZE, slot, .pages = true, .max = 1 << 20)
                    ROW(SIZE, pool, .pages = true, .max = 1 << 30, .narrow = two_slots,
                        .min_name = "two slots", .words = REGX_WORDS({.word = "auto", .value = 0}))
                        ROW(LIST, wires, .words = REGX_WORDS({.word = "posix"}, {.word = "tcp"}))
                            ROW(LIST, devices) ROW(TEXT, file)};

/* What every field is before, so that a test sees what else was written. */
static settings_t settings;

static bool set(unsigned param, const char *text, char error[REGX_OPTION_ERROR])
{
    memset(&settings, 0xee, sizeof(settings));
    settings.slot = 64 << 10;
    error[0] = '\0';
    return regx_param_read(&params[param], text, &settings, error);
}

static void accept(unsigned param, const char *text)
{
    char error[REGX_OPTION_ERROR];

    if (!set(param, text, error)) {
        fail_msg("%s", error);
    }
    assert_string_equal(error, "");
}

static void refuse(unsigned param, const char *text, const char *expected)
{
    char error[REGX_OPTION_ERROR];

    assert_false(set(param, text, error));
    assert_string_equal(error, expected);
}

static void words_are_stored_by_their_value(void **state)
{
    (void)state;
    accept(COLOUR, "green");
    assert_int_equal(settings.colour, GREEN);
    accept(ANIMAL, "dog");
    assert_string_equal(settings.animal, "dog");
    accept(INDEX, "auto");
    assert_int_equal(settings.index, -1);
    accept(POOL, "auto");
    assert_int_equal(settings.pool, 0);
}

static void numbers_are_stored_in_their_field_alone(void **state)
{
    (void)state;
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
    accept(POOL, "128K");
    assert_int_equal(settings.pool, 128 << 10);
}

static void lists_and_texts_are_kept(void **state)
{
    static const char list[] = "tcp,posix";

    (void)state;
    accept(WIRES, list);
    assert_ptr_equal(settings.wires, list);
    accept(WIRES, "");
    assert_null(settings.wires);
    accept(WIRES, NULL);
    assert_null(settings.wires);
    accept(DEVICES, "anything,at all");
    assert_string_equal(settings.devices, "anything,at all");
    accept(FILE_NAME, "1234567");
    assert_string_equal(settings.file, "1234567");
    accept(FILE_NAME, "none");
    assert_string_equal(settings.file, "");
}

static void refusals_say_what_is_allowed(void **state)
{
    char slots[REGX_OPTION_ERROR], page[24];

    (void)state;
    regx_option_show_size((uint64_t)sysconf(_SC_PAGESIZE), page, sizeof(page));
    snprintf(slots, sizeof(slots),
             "btl_regx_my_slot=0 is too small; allowed: %s to 1M, multiples of %s", page, page);
    refuse(SLOT, "0", slots);
    snprintf(slots, sizeof(slots),
             "btl_regx_my_pool=64K is too small; allowed: 128K to 1G, multiples of %s, auto", page);
    refuse(POOL, "64K", slots);
    refuse(COLOUR, "blue", "btl_regx_my_colour=blue is not known; allowed: red, green");
    refuse(COLOUR, "gree", "btl_regx_my_colour=gree is not known; allowed: red, green");
    refuse(COLOUR, "", "btl_regx_my_colour= is not known; allowed: red, green");
    refuse(COLOUR, NULL, "btl_regx_my_colour= is not known; allowed: red, green");
    refuse(ANIMAL, "bird", "btl_regx_my_animal=bird is not known; allowed: cat, dog");
    refuse(LEVEL, "32", "btl_regx_my_level=32 is above the cap; allowed: 1 to 31");
    refuse(LEVEL, "0x1", "btl_regx_my_level=0x1 is not a number; allowed: 1 to 31");
    refuse(INDEX, "Auto", "btl_regx_my_index=Auto is not a number; allowed: 0 to 255, auto");
    refuse(KEY, "0", "btl_regx_my_key=0 is too small; allowed: 0x0001 to 0xffff");
    refuse(KEY, "0x", "btl_regx_my_key=0x is not a number; allowed: 0x0001 to 0xffff");
    refuse(WIRES, "posix,pos",
           "btl_regx_my_wires=pos is not known; allowed: posix, tcp, comma-separated");
    refuse(WIRES, ",tcp", "btl_regx_my_wires= is not known; allowed: posix, tcp, comma-separated");
    refuse(FILE_NAME, "12345678", "btl_regx_my_file is too long; allowed: 7 characters");
}

static bool name_at(unsigned index, regx_param_word_t *word)
{
    static const char *const names[] = {"hooks", "odp", "notifier"};

    *word = (regx_param_word_t){.word = index < 3 ? names[index] : NULL};
    return index < 3;
}

static bool tells(const char *word)
{
    return strcmp(word, "odp") != 0;
}

static bool none(const char *word)
{
    return *word == '\0';
}

static void a_list_has_those_that_are_allowed_and_stays_in_its_room(void **state)
{
    char list[16];

    (void)state;
    memset(list, 'x', sizeof(list));
    regx_param_list(name_at, tells, list, sizeof(list));
    assert_string_equal(list, "hooks, notifier");
    regx_param_list(name_at, tells, list, 6);
    assert_string_equal(list, "hooks");
    assert_memory_equal(list + 6, " notifier", 10);
    regx_param_list(name_at, none, list, sizeof(list));
    assert_string_equal(list, "");
}

static void check_help(unsigned param, const char *expected)
{
    char *help = regx_param_help(&params[param]);

    assert_string_equal(help, expected);
    free(help);
}

static void help_says_what_is_allowed(void **state)
{
    (void)state;
    check_help(COLOUR, "Help. Allowed: red (of blood); green (of grass); blue (of the sea).");
    check_help(ANIMAL, "Help. Allowed: cat; dog.");
    check_help(LEVEL, "Help. Allowed: 1 to 31 steps.");
    check_help(INDEX, "Help. Allowed: 0 to 255; auto (the first).");
    check_help(KEY, "Help. Allowed: 0x0001 to 0xffff.");
    check_help(SLOT, "Help. Allowed: a page to 1M, a multiple of the page size.");
    check_help(POOL, "Help. Allowed: two slots to 1G, a multiple of the page size; auto.");
    check_help(WIRES, "Help. Allowed, comma-separated: posix; tcp.");
    check_help(DEVICES, "Help.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_stored_by_their_value),
        cmocka_unit_test(numbers_are_stored_in_their_field_alone),
        cmocka_unit_test(lists_and_texts_are_kept),
        cmocka_unit_test(refusals_say_what_is_allowed),
        cmocka_unit_test(a_list_has_those_that_are_allowed_and_stays_in_its_room),
        cmocka_unit_test(help_says_what_is_allowed),
    };

    return cmocka_run_group_tests_name("param", tests, NULL, NULL);
}
