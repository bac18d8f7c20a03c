/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backends of registration by name, and the choice among them.
 */
#ifndef REGX_REGISTRATION_BACKEND_H
#define REGX_REGISTRATION_BACKEND_H

#include "registration/monitor.h"
#include "registration/registration.h"

struct regx_backend {
    const char *name; /* as btl_regx_backend names it */
    const char *help; /* one line */
    /* Starts what tells of changes; NULL: nothing is kept, nothing needs to be told. */
    regx_status_t (*start)(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                           char *error, size_t error_size);
};

extern const char regx_backend_names[]; /* "auto, none, ...", for messages */
extern const regx_backend_t regx_backend_none;

/* The backends in the order of regx_backend_names, without auto. NULL: there are no more. */
const regx_backend_t *regx_backend_at(unsigned index);

/* NULL: unknown ("auto" is not a backend). */
const regx_backend_t *regx_backend_find(const char *name);

#define REGX_BACKEND_REASON 256

/* What a choice came to. */
typedef struct regx_backend_choice {
    const regx_backend_t *backend;
    regx_monitor_t *monitor;          /* running, or NULL; the caller stops it */
    char reason[REGX_BACKEND_REASON]; /* for the report */
} regx_backend_choice_t;

/* Starts the backend of that name. auto: none ("not needed") where registering is free; else
 * notifier where it passes its self-test, else none with the reason. A backend given by name that
 * does not work here: REGX_DENIED, and `error` holds the rest of a line that begins with the name.
 */
regx_status_t regx_backend_choose(const char *name, bool registering_is_free,
                                  const regx_monitor_config_t *config,
                                  regx_backend_choice_t *choice, char *error, size_t error_size);

#endif
