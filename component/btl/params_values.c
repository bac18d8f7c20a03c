/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/params.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS_MAX 128 /* of all rooms; a build with asserts checks it */

/* Open MPI's values, or the defaults, in the order of the tables. */
static char *values[PARAMS_MAX];

/* Parameters that went (params_gone.def), and what the user set them to. */
static struct {
    const char *name, *sentence;
    char *value;
} gone[] = {
#define REGX_GONE(name, sentence) {#name, sentence, NULL},
#include "btl/params_gone.def"
#undef REGX_GONE
    {NULL, NULL, NULL}};

/* The component that they are of. */
static const mca_base_component_t *registered;

/* Calls `each` for every parameter, until one answers false. */
static bool for_each(bool (*each)(const regx_settings_room_t *room, const regx_param_t *param,
                                  char **value, void *context),
                     void *context)
{
    regx_settings_room_t room;
    unsigned number = 0;

    for (unsigned r = 0; regx_settings_room(r, &room); r++) {
        for (size_t i = 0; i < room.table->count; i++) {
            assert(number < PARAMS_MAX);
            if (!each(&room, &room.table->params[i], &values[number++], context)) {
                return false;
            }
        }
    }
    return true;
}

static bool register_one(const regx_settings_room_t *room, const regx_param_t *param, char **value,
                         void *context)
{
    char *help = regx_param_help(param);

    (void)room;
    *value = (char *)(uintptr_t)param->initial; /* Open MPI copies it, as it does the help */
    mca_base_component_var_register(
        context, param->name, help != NULL ? help : param->help, MCA_BASE_VAR_TYPE_STRING, NULL, 0,
        0, OPAL_INFO_LVL_1 + (param->level - 1), MCA_BASE_VAR_SCOPE_READONLY, value);
    free(help);
    return true;
}

void regx_params_register(const mca_base_component_t *component)
{
    registered = component;
    for_each(register_one, (void *)(uintptr_t)component);
    for (unsigned i = 0; gone[i].name != NULL; i++) { /* ompi_info does not show them */
        gone[i].value = NULL;
        mca_base_component_var_register(component, gone[i].name, gone[i].sentence,
                                        MCA_BASE_VAR_TYPE_STRING, NULL, 0,
                                        MCA_BASE_VAR_FLAG_INTERNAL, OPAL_INFO_LVL_9,
                                        MCA_BASE_VAR_SCOPE_READONLY, &gone[i].value);
    }
}

const void *regx_param_stored(const char *project, const char *framework, const char *component,
                              const char *variable, mca_base_var_source_t *source)
{
    const void *value = NULL;
    const int index = mca_base_var_find(project, framework, component, variable);

    *source = MCA_BASE_VAR_SOURCE_DEFAULT;
    if (index >= 0) {
        mca_base_var_get_value(index, &value, source, NULL);
    }
    return value;
}

/* Once per application; where that is right, each node of which the same is wrong says so, or a
 * rank of it. */
static void say_once(const char *text)
{
    char line[512];

    if (regx_compat_falls_here(registered, text)) {
        if (!regx_compat_prints()) {
            snprintf(line, sizeof(line), "%s; at rank %u on %s", text, regx_compat_rank(),
                     regx_compat_host());
            text = line;
        }
        regx_compat_output(text);
    }
}

bool regx_param_refuse(const char *error)
{
    say_once(error);
    return false;
}

void regx_params_warn_of_gone(void)
{
    mca_base_var_source_t source;
    char line[REGX_OPTION_ERROR];

    for (unsigned i = 0; gone[i].name != NULL; i++) {
        regx_param_stored("opal", "btl", "regx", gone[i].name, &source);
        if (source != MCA_BASE_VAR_SOURCE_DEFAULT) {
            snprintf(line, sizeof(line), REGX_PREFIX "%s is gone and has no effect: %s",
                     gone[i].name, gone[i].sentence);
            say_once(line);
        }
    }
}

static bool read_one(const regx_settings_room_t *room, const regx_param_t *param, char **value,
                     void *context)
{
    char error[REGX_OPTION_ERROR];

    return regx_param_read(param, *value, (char *)context + room->offset, error) ||
           regx_param_refuse(error);
}

bool regx_params_read_tables(regx_settings_t *settings)
{
    return for_each(read_one, settings);
}

static bool find_enable(const regx_settings_room_t *room, const regx_param_t *param, char **value,
                        void *context)
{
    (void)room;
    if (strcmp(param->name, "enable") == 0) {
        *(const char **)context = *value;
    }
    return true;
}

bool regx_params_asked(bool *named)
{
    mca_base_var_source_t source;
    const char *const *list = regx_param_stored("opal", "btl", NULL, NULL, &source);
    const char *enable = NULL;

    for_each(find_enable, &enable);
    *named = list != NULL && *list != NULL && regx_option_listed(*list, "regx");
    if (enable == NULL || enable[0] == '\0' || strcmp(enable, "auto") == 0) {
        return *named;
    }
    return strcmp(enable, "0") != 0; /* what is neither 0 nor 1 is refused when it is read */
}
