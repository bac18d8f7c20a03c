/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/backend.h"

#include <stdio.h>
#include <string.h>

static const regx_backend_t backends[] = {
    {.name = "hooks", .start = regx_watch_hooks},
    {.name = "notifier", .start = regx_watch_notifier},
    {.name = "hooks+notifier", .start = regx_watch_both},
    {.name = "odp", .start = regx_watch_odp},
    {.name = "retain", .start = regx_watch_retain},
};

enum { BACKENDS = sizeof(backends) / sizeof(backends[0]) };
enum { WHY = REGX_BACKEND_REASON - 16 }; /* room for why one cannot be used */

const char regx_backend_names[] = "auto, none, hooks, notifier, hooks+notifier, odp, retain";

const regx_backend_t *regx_backend_find(const char *name)
{
    for (int i = 0; i < BACKENDS; i++) {
        if (strcmp(name, backends[i].name) == 0) {
            return &backends[i];
        }
    }
    return strcmp(name, regx_backend_none.name) == 0 ? &regx_backend_none : NULL;
}

static regx_status_t start(const char *name, const regx_watch_config_t *config,
                           regx_backend_choice_t *choice, char *error, size_t error_size)
{
    choice->backend = regx_backend_find(name);
    choice->watch = NULL;
    return choice->backend->start == NULL
               ? REGX_OK
               : choice->backend->start(config, &choice->watch, error, error_size);
}

static void choose_auto(bool registering_is_free, const regx_watch_config_t *config,
                        regx_backend_choice_t *choice)
{
    char error[WHY];

    if (!registering_is_free &&
        start("notifier", config, choice, error, sizeof(error)) == REGX_OK) {
        snprintf(choice->reason, sizeof(choice->reason), "passed its self-test");
        return;
    }
    choice->backend = &regx_backend_none;
    choice->watch = NULL;
    if (registering_is_free) {
        snprintf(choice->reason, sizeof(choice->reason), "not needed");
    } else {
        snprintf(choice->reason, sizeof(choice->reason), "notifier: %s", error);
    }
}

/* ", NAME" where it works. Only some can be tried without leaving a trace: hooks patch code, retain
 * changes malloc for good. */
static const char *usable_instead(const char *name, const char *refused,
                                  const regx_watch_config_t *config, const char *text)
{
    regx_backend_choice_t other;
    char error[WHY];

    if (strcmp(name, refused) == 0 ||
        start(name, config, &other, error, sizeof(error)) != REGX_OK) {
        return "";
    }
    other.watch->stop(other.watch);
    return text;
}

regx_status_t regx_backend_choose(const char *name, bool registering_is_free,
                                  const regx_watch_config_t *config, regx_backend_choice_t *choice,
                                  char *error, size_t error_size)
{
    char why[WHY];

    if (strcmp(name, "auto") == 0) {
        choose_auto(registering_is_free, config, choice);
        return REGX_OK;
    }
    const regx_status_t status = start(name, config, choice, why, sizeof(why));
    if (status == REGX_OK) {
        snprintf(choice->reason, sizeof(choice->reason), "asked for");
        return REGX_OK;
    }
    snprintf(error, error_size, "cannot be used: %s; usable here: none%s%s", why,
             usable_instead("notifier", name, config, ", notifier"),
             usable_instead("odp", name, config, ", odp"));
    return REGX_DENIED;
}
