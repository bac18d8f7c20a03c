/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The tables of all layers: what a row does not allow is refused by name, and its field takes what
 * it allows.
 */
#include "../unit.h"

#include "btl/settings.h"

static regx_settings_t settings;

/* Calls `check` with each row and the layer's settings. */
static void for_each(void (*check)(const regx_param_t *param, void *settings))
{
    const regx_param_t *param;
    size_t layer;

    for (unsigned i = 0; (param = regx_settings_param(i, &layer)) != NULL; i++) {
        check(param, (char *)&settings + layer);
    }
}

/* "btl_regx_NAME=VALUE ...; allowed: ..." */
static void check_refusals(const regx_param_t *param, void *layer)
{
    static const char *const bad[] = {"",    "nosuch", "bounce,nosuch",          "-1",
                                      "64Q", "1.5M",   "99999999999999999999999"};
    regx_error_t error, begin;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]) && param->type != REGX_PARAM_LIST &&
                       param->type != REGX_PARAM_TEXT;
         i++) {
        snprintf(begin, sizeof(begin), REGX_PREFIX "%s=%s", param->name, bad[i]);
        unit_expect(!regx_param_read(param, bad[i], layer, error), "%s is allowed", begin);
        unit_expect(strncmp(error, begin, strlen(begin)) == 0 && strstr(error, "allowed: ") != NULL,
                    "%s: %s", begin, error);
    }
}

UNIT_TEST(what_is_not_allowed_is_refused_by_name)
{
    for_each(check_refusals);
}

static void check_row(const regx_param_t *param, void *layer)
{
    const bool pointer = param->type == REGX_PARAM_NAME || param->type == REGX_PARAM_LIST;
    const size_t size = param->size;

    if (pointer
            ? size != sizeof(char *)
            : param->type != REGX_PARAM_TEXT && size != 1 && size != 2 && size != 4 && size != 8) {
        fail_msg("%s: its field is of another type", param->name);
    }
    if (param->max > (size >= 8 ? UINT64_MAX : (UINT64_C(1) << 8 * size) - 1)) {
        fail_msg("%s: its field is too small", param->name);
    }
    unit_expect(param->type == REGX_PARAM_LIST || param->type == REGX_PARAM_TEXT ||
                    param->max != 0 || param->words != NULL,
                "%s allows nothing", param->name);
}

UNIT_TEST(every_field_takes_what_is_allowed)
{
    for_each(check_row);
}
