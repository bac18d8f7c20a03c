/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backends of registration by name, and the choice among them.
 */
#ifndef REGX_REGISTRATION_BACKEND_H
#define REGX_REGISTRATION_BACKEND_H

#include "base/param.h"
#include "registration/monitor.h"
#include "registration/registration.h"

struct regx_backend {
    const char *name; /* as btl_regx_backend names it */
    const char *help; /* of the parameter: what it is */
    const char *more; /* what only the documentation says of it */
    /* Starts what tells of changes; NULL: nothing is kept, nothing needs to be told. */
    regx_status_t (*start)(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                           char *error, size_t error_size);
};

/* The words of btl_regx_backend: auto, and the backends. false: there are no more. */
bool regx_backend_word(unsigned index, regx_param_word_t *word);

extern const regx_backend_t regx_backend_none;

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
