/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/backend.h"

#include "registration/on_demand.h"

#include <stdio.h>
#include <string.h>

/* Registers and deregisters per use. Guarantees that no registration outlives the transfer that
 * made it, so none can be stale; a change of the mapping during a transfer is the application's
 * error. Needs to see no event. The honest baseline of every comparison. */
const regx_backend_t regx_backend_none = {
    .name = "none", .help = "registers and deregisters for each use; nothing can be stale"};

/* The one table of backends that keep registrations. What each guarantees, and what it is blind to,
 * stands at the head of its file. */
static const regx_backend_t backends[] = {
    {.name = "hooks",
     .help = "libc's functions report what they change, by Open MPI's memory hooks or UCX's ucm",
     .start = regx_monitor_hooks},
    {.name = "notifier",
     .help = "the kernel reports what changes (userfaultfd)",
     .start = regx_monitor_notifier},
    {.name = "hooks+notifier", .help = "both", .start = regx_monitor_hooks_notifier},
    {.name = "odp",
     .help = "on-demand paging: nothing is pinned, the device follows the mapping",
     .start = regx_on_demand_start},
    {.name = "retain",
     .help = "malloc never gives memory back, so that what it gave stays true",
     .start = regx_monitor_retain},
};

enum { BACKENDS = sizeof(backends) / sizeof(backends[0]) };
enum { WHY = REGX_BACKEND_REASON - 16 }; /* room for why one cannot be used */

const char regx_backend_names[] = "auto, none, hooks, notifier, hooks+notifier, odp, retain";

const regx_backend_t *regx_backend_at(unsigned index)
{
    return index == 0 ? &regx_backend_none : index <= BACKENDS ? &backends[index - 1] : NULL;
}

const regx_backend_t *regx_backend_find(const char *name)
{
    const regx_backend_t *backend = &regx_backend_none;

    for (unsigned i = 1; backend != NULL && strcmp(name, backend->name) != 0; i++) {
        backend = regx_backend_at(i);
    }
    return backend;
}

static regx_status_t start(const char *name, const regx_monitor_config_t *config,
                           regx_backend_choice_t *choice, char *error, size_t error_size)
{
    choice->backend = regx_backend_find(name);
    choice->monitor = NULL;
    return choice->backend->start == NULL
               ? REGX_OK
               : choice->backend->start(config, &choice->monitor, error, error_size);
}

static void choose_auto(bool registering_is_free, const regx_monitor_config_t *config,
                        regx_backend_choice_t *choice)
{
    char error[WHY];

    if (!registering_is_free &&
        start("notifier", config, choice, error, sizeof(error)) == REGX_OK) {
        snprintf(choice->reason, sizeof(choice->reason), "passed its self-test");
        return;
    }
    choice->backend = &regx_backend_none;
    choice->monitor = NULL;
    if (registering_is_free) {
        snprintf(choice->reason, sizeof(choice->reason), "not needed");
    } else {
        snprintf(choice->reason, sizeof(choice->reason), "notifier: %s", error);
    }
}

/* ", NAME" where it works. Only some can be tried without leaving a trace: hooks patch code, retain
 * changes malloc for good. */
static const char *usable_instead(const char *name, const char *refused,
                                  const regx_monitor_config_t *config, const char *text)
{
    regx_backend_choice_t other;
    char error[WHY];

    if (strcmp(name, refused) == 0 ||
        start(name, config, &other, error, sizeof(error)) != REGX_OK) {
        return "";
    }
    other.monitor->stop(other.monitor);
    return text;
}

regx_status_t regx_backend_choose(const char *name, bool registering_is_free,
                                  const regx_monitor_config_t *config,
                                  regx_backend_choice_t *choice, char *error, size_t error_size)
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
