/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tables of all rooms: each row is complete, its default is allowed, and what it does not
 * allow is refused by name. And the list of the transports.
 */
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "btl/settings.h"
#include "transport/verbs/params.h"

/* Calls `check` with each row and the room's settings, which hold the defaults. */
static void for_each(void (*check)(const regx_param_t *param, void *settings))
{
    regx_settings_t settings = {0};
    regx_settings_room_t room;

    for (unsigned r = 0; regx_settings_room(r, &room); r++) {
        for (size_t i = 0; i < room.table->count; i++) {
            check(&room.table->params[i], (char *)&settings + room.offset);
        }
    }
}

static void check_default(const regx_param_t *param, void *settings)
{
    char error[REGX_OPTION_ERROR];

    if (!regx_param_read(param, param->initial, settings, error)) {
        fail_msg("%s", error);
    }
}

static void every_default_is_allowed(void **state)
{
    (void)state;
    for_each(check_default);
}

/* "btl_regx_NAME=VALUE ...; allowed: ..." */
static void check_refusals(const regx_param_t *param, void *settings)
{
    static const char *const bad[] = {"",    "nosuch", "bounce,nosuch",          "-1",
                                      "64Q", "1.5M",   "99999999999999999999999"};
    char error[REGX_OPTION_ERROR], begin[REGX_OPTION_ERROR];

    if (param->type == REGX_PARAM_INHERITED || param->type == REGX_PARAM_LIST ||
        param->type == REGX_PARAM_TEXT) {
        return;
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(begin, sizeof(begin), REGX_PREFIX "%s=%s", param->name, bad[i]);
        if (regx_param_read(param, bad[i], settings, error)) {
            fail_msg("%s is allowed", begin);
        }
        if (strncmp(error, begin, strlen(begin)) != 0 || strstr(error, "allowed: ") == NULL) {
            fail_msg("%s: %s", begin, error);
        }
    }
}

static void what_is_not_allowed_is_refused_by_name(void **state)
{
    (void)state;
    for_each(check_refusals);
}

static void check_field(const regx_param_t *param, void *settings)
{
    const bool pointer = param->type == REGX_PARAM_NAME || param->type == REGX_PARAM_LIST;

    (void)settings;
    if (pointer && param->size != sizeof(char *)) {
        fail_msg("%s: its field is no pointer", param->name);
    }
    if (!pointer && param->type != REGX_PARAM_TEXT && param->size != 1 && param->size != 2 &&
        param->size != 4 && param->size != 8) {
        fail_msg("%s: its field is no integer", param->name);
    }
    if (param->max > (param->size >= 8 ? UINT64_MAX : (UINT64_C(1) << 8 * param->size) - 1)) {
        fail_msg("%s: its field is too small", param->name);
    }
}

static void every_field_takes_what_is_allowed(void **state)
{
    (void)state;
    for_each(check_field);
}

static void check_words(const regx_param_t *param, void *settings)
{
    regx_param_word_t word;
    unsigned count = 0;

    (void)settings;
    while (regx_param_word_at(param, count, &word)) {
        assert_non_null(word.word);
        count++;
    }
    if (count == 0 && (param->type == REGX_PARAM_WORD || param->type == REGX_PARAM_NAME)) {
        fail_msg("%s has no words", param->name);
    }
    if (count == 0 && param->max == 0 && param->type != REGX_PARAM_LIST) {
        fail_msg("%s has no range", param->name);
    }
    if (param->help == NULL || strlen(param->help) < 10 || param->level < 1 || param->level > 9) {
        fail_msg("%s: no help, or no level", param->name);
    }
    assert_ptr_equal(regx_settings_find(param->name), param); /* and no other has its name */
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for_each(check_words);
}

/* REGX_VERBS_DEFAULTS serves those who have no parameters. */
static void verbs_has_the_defaults_of_its_table(void **state)
{
    const regx_verbs_settings_t usual = REGX_VERBS_DEFAULTS;
    char error[REGX_OPTION_ERROR];
    regx_verbs_settings_t read = {0};

    (void)state;
    for (size_t i = 0; i < regx_verbs_entry.params->count; i++) {
        const regx_param_t *param = &regx_verbs_entry.params->params[i];

        assert_true(regx_param_read(param, param->initial, &read, error));
    }
    assert_int_equal(read.gid_index, usual.gid_index);
    assert_int_equal(read.pkey, usual.pkey);
    assert_int_equal(read.service_level, usual.service_level);
    assert_int_equal(read.traffic_class, usual.traffic_class);
}

/* btl_regx_transport auto opens the one, and asks the other. */
static void one_transport_is_here_and_the_other_can_be_asked(void **state)
{
    const regx_catalog_entry_t *far = regx_catalog[REGX_BETWEEN_NODES];

    (void)state;
    assert_non_null(regx_catalog[REGX_ON_NODE]->ops);
    assert_null(far->ops);
    assert_true(far->owns != NULL && far->why_absent != NULL && far->devices != NULL &&
                far->remedy != NULL && far->params != NULL);
}

/* What the parameter was told before shared memory was called by its name. */
static void an_old_word_of_a_transport_is_the_new_one(void **state)
{
    const regx_param_t *param = regx_settings_find("transport");
    regx_component_settings_t settings;
    char error[REGX_OPTION_ERROR];

    (void)state;
    assert_true(regx_param_read(param, "uct", &settings, error));
    assert_string_equal(settings.transport, regx_catalog[REGX_ON_NODE]->word.word);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_allowed),
        cmocka_unit_test(what_is_not_allowed_is_refused_by_name),
        cmocka_unit_test(every_field_takes_what_is_allowed),
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(verbs_has_the_defaults_of_its_table),
        cmocka_unit_test(one_transport_is_here_and_the_other_can_be_asked),
        cmocka_unit_test(an_old_word_of_a_transport_is_the_new_one),
    };

    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
