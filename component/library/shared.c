/* SPDX-License-Identifier: BSD-3-Clause */
#include "library/shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/param.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows but the counters */
static unsigned domains;                                 /* that use the monitor */
static regx_backend_choice_t running;
static regx_counters_t counters = {.threads = true};

regx_counters_t *regx_shared_counters(void)
{
    return &counters;
}

/* Not what wants to see transfers with the device: those are the program's. Who has a device that
 * can follow changes asks it for IBV_ACCESS_ON_DEMAND. */
static bool is_offered(const char *name)
{
    const regx_backend_t *backend = regx_backend_find(name); /* NULL: auto */

    return backend == NULL || !backend->needs_transfers;
}

const char *regx_shared_backend(unsigned index)
{
    regx_param_word_t word;

    for (unsigned i = 0; regx_backend_word(i, &word); i++) {
        if (is_offered(word.word) && index-- == 0) {
            return word.word;
        }
    }
    return NULL;
}

static int refuse_name(const char *name, char *error, size_t error_size)
{
    char allowed[128], line[REGX_OPTION_ERROR];

    regx_param_list(regx_backend_word, is_offered, allowed, sizeof(allowed));
    regx_option_refuse("backend", name, allowed, line);
    snprintf(error, error_size, "%s", line);
    return EINVAL;
}

static bool is_known(const char *name)
{
    const char *word;

    for (unsigned i = 0; (word = regx_shared_backend(i)) != NULL; i++) {
        if (strcmp(name, word) == 0) {
            return true;
        }
    }
    return false;
}

static int start_locked(const char *name, regx_transport_t *transport, char *error,
                        size_t error_size)
{
    const regx_monitor_config_t config = {
        .hooks = regx_hooks_ucm, .transport = transport, .counters = &counters};
    char why[REGX_BACKEND_REASON];

    if (regx_backend_choose(name, false, &config, &running, why, sizeof(why)) != REGX_OK) {
        snprintf(error, error_size, "backend=%s %s", name, why);
        return EOPNOTSUPP;
    }
    return 0;
}

static int join_locked(regx_shared_t *shared, const char *name, regx_transport_t *transport,
                       char *error, size_t error_size)
{
    if (domains == 0) {
        const int result = start_locked(name, transport, error, error_size);

        if (result != 0) {
            return result;
        }
    } else if (strcmp(name, "auto") != 0 && strcmp(name, running.backend->name) != 0) {
        snprintf(error, error_size, "backend=%s: another domain of this process has %s", name,
                 running.backend->name);
        return EBUSY;
    }
    shared->backend = running.backend;
    shared->monitor = running.monitor;
    snprintf(shared->reason, sizeof(shared->reason), "%s", running.reason);
    domains += running.monitor != NULL;
    return 0;
}

int regx_shared_join(regx_shared_t *shared, const char *name, regx_transport_t *transport,
                     char *error, size_t error_size)
{
    if (!is_known(name)) {
        return refuse_name(name, error, error_size);
    }
    if (strcmp(name, regx_backend_none.name) == 0) { /* beside any other */
        *shared = (regx_shared_t){.backend = &regx_backend_none, .reason = "asked for"};
        return 0;
    }
    pthread_mutex_lock(&lock);
    const int result = join_locked(shared, name, transport, error, error_size);
    pthread_mutex_unlock(&lock);
    return result;
}

void regx_shared_leave(regx_shared_t *shared)
{
    if (shared->monitor == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (--domains == 0) {
        running.monitor->stop(running.monitor);
        running.monitor = NULL;
    }
    pthread_mutex_unlock(&lock);
    shared->monitor = NULL;
}
