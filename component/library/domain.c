/* SPDX-License-Identifier: BSD-3-Clause
 *
 * registration/ as a library for programs of libibverbs.
 */
#include "library/regx/registration.h"

#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "base/util.h"
#include "registration/registry.h"
#include "transport/verbs/memory.h"

struct regx_domain {
    regx_transport_t device; /* first: the protection domain, as registration/ has transports */
    struct ibv_pd *pd;       /* the program's */
    regx_backend_choice_t choice; /* the monitor is that of all domains of the process */
    regx_registry_t registry;
    regx_counters_t counters;
};

_Static_assert(sizeof(regx_region_t) <= sizeof(((regx_use_t *)NULL)->reserved) &&
                   alignof(regx_region_t) <= alignof(uint64_t),
               "a use holds what registration/ needs");

/* ---- the device: it registers and deregisters, and nothing else, since there is no peer ---- */

static regx_status_t device_reg(regx_transport_t *device, void *base, size_t length,
                                unsigned access, regx_mr_t *mr)
{
    struct ibv_pd *pd = ((const regx_domain_t *)device)->pd;
    /* (ibv_reg_mr): the function; its macro of the same name would convert signs. */
    struct ibv_mr *handle = (ibv_reg_mr)(pd, base, length, regx_verbs_access(access));

    if (handle == NULL) {
        return regx_verbs_refusal(errno);
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = handle};
    return REGX_OK;
}

static void device_dereg(regx_transport_t *device, regx_mr_t *mr)
{
    (void)device;
    ibv_dereg_mr(mr->handle);
}

static const regx_transport_ops_t device_ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "libibverbs", .reg = device_reg, .dereg = device_dereg};

/* ---- the monitor of the process ----
 * There can be one, which all domains share that keep anything. It is started for the first of them
 * and stopped after the last. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows but the counters */
static unsigned domains;                                 /* that use the monitor */
static regx_backend_choice_t running;
static regx_counters_t counters = {.threads = true}; /* what the monitor counts for all */

/* Not what wants to see transfers with the device: those are the program's. A program that has a
 * device that can follow changes asks it for IBV_ACCESS_ON_DEMAND. */
static bool is_offered(const char *name)
{
    const regx_backend_t *backend = regx_backend_find(name); /* NULL: auto */

    return backend == NULL || !backend->needs_transfers;
}

const char *regx_domain_backends(unsigned index)
{
    const regx_param_word_t *word = regx_backend_words;

    while (word->word != NULL && (!is_offered(word->word) || index-- > 0)) {
        word++;
    }
    return word->word;
}

static int join(regx_domain_t *domain, const char *name, regx_error_t error)
{
    const regx_monitor_config_t config = {
        .hooks = regx_hooks_ucm, .transport = &domain->device, .counters = &counters};
    const bool any = strcmp(name, "auto") == 0;
    regx_error_t why;
    int result = 0;

    if (!any && (regx_backend_find(name) == NULL || !is_offered(name))) {
        char allowed[128];

        regx_param_list(regx_backend_words, is_offered, allowed, sizeof(allowed));
        regx_option_refuse("backend", name, allowed, error);
        return EINVAL;
    }
    if (strcmp(name, regx_backend_none.name) == 0) { /* beside any other */
        (void)regx_backend_choose(name, false, NULL, &domain->choice, error);
        return 0;
    }
    pthread_mutex_lock(&lock);
    if (domains > 0 && !any && strcmp(name, running.backend->name) != 0) {
        snprintf(error, REGX_ERROR, "backend=%s: another domain of this process has %s", name,
                 running.backend->name);
        result = EBUSY;
    } else if (domains == 0 &&
               regx_backend_choose(name, false, &config, &running, why) != REGX_OK) {
        regx_refuse(error, REGX_DENIED, "backend=%s %s", name, why);
        result = EOPNOTSUPP;
    } else {
        domain->choice = running;
        domains += running.monitor != NULL;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* The domain's cache is closed. */
static void leave(const regx_domain_t *domain)
{
    if (domain->choice.monitor == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (--domains == 0) {
        running.monitor->stop(running.monitor);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- opening ---- */

int regx_domain_open(struct ibv_pd *pd, const regx_domain_options_t *options,
                     regx_domain_t **domain, char *error, size_t error_size)
{
    static const regx_domain_options_t defaults = {.size = sizeof(defaults)};
    regx_domain_t *made = calloc(1, sizeof(*made));
    struct ibv_device_attr attr;
    regx_error_t why = "out of memory";
    int result = ENOMEM;

    if (made == NULL) {
        goto refused;
    }
    options = options != NULL ? options : &defaults;
    if (options->size != sizeof(*options)) {
        snprintf(why, sizeof(why),
                 "options.size is not sizeof(regx_domain_options_t) of this library");
        result = EINVAL;
        goto refused;
    }
    result = ibv_query_device(pd->context, &attr);
    if (result != 0) {
        snprintf(why, sizeof(why), "the device tells nothing of itself (ibv_query_device)");
        goto refused;
    }
    made->pd = pd;
    made->device = (regx_transport_t){.ops = &device_ops,
                                      .registers = true,
                                      .mr_count = attr.max_mr > 0 ? (uint64_t)attr.max_mr : 0,
                                      .mr_bytes = attr.max_mr_size};
    made->counters.threads = true;
    result = join(made, options->backend != NULL ? options->backend : "auto", why);
    if (result != 0) {
        goto refused;
    }
    const regx_cache_config_t config = {
        .bytes = options->bytes != 0 ? options->bytes : REGX_UNLIMITED,
        .count = options->count != 0 ? options->count : REGX_CACHE_COUNT,
        .changed_in_use = options->changed_in_use,
        .context = options->context};

    if (regx_registry_open(&made->registry, made->choice.monitor, &config, &made->device,
                           &made->counters) == REGX_OK) {
        *domain = made;
        return 0;
    }
    leave(made);
    snprintf(why, sizeof(why), "out of memory");
    result = ENOMEM;
refused:
    snprintf(error, error_size, "%s", why);
    free(made);
    return result;
}

void regx_domain_close(regx_domain_t *domain)
{
    regx_registry_close(&domain->registry);
    leave(domain);
    free(domain);
}

const char *regx_domain_backend(const regx_domain_t *domain, const char **reason)
{
    if (reason != NULL) {
        *reason = domain->choice.reason;
    }
    return domain->choice.backend->name;
}

/* ---- using memory ---- */

static regx_region_t *region_of(regx_use_t *use)
{
    return (regx_region_t *)(void *)use->reserved; // cppcheck-suppress ctuuninitvar
}

int regx_domain_acquire(regx_domain_t *domain, void *base, size_t length, int access,
                        regx_use_t *use)
{
    const int allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    const bool local = (access & IBV_ACCESS_LOCAL_WRITE) != 0,
               writes = (access & IBV_ACCESS_REMOTE_WRITE) != 0,
               reads = (access & IBV_ACCESS_REMOTE_READ) != 0;
    regx_region_t *region = region_of(use);

    if ((access & ~allowed) != 0 || (writes && !local) || base == NULL || length == 0 ||
        length > UINTPTR_MAX - (uintptr_t)base) {
        return EINVAL;
    }
    unsigned own = REGX_ACCESS_LOCAL; /* what may be written may also be sent */
    own |= local ? REGX_ACCESS_LOCAL_WRITE : 0;
    own |= writes ? REGX_ACCESS_REMOTE_WRITE : 0;
    own |= reads ? REGX_ACCESS_REMOTE_READ : 0;
    switch (regx_region_acquire(&domain->registry, base, length, own, region)) {
    case REGX_OK:
        use->mr = region->mr->handle;
        return 0;
    case REGX_NO_MEMORY:
        return ENOMEM;
    case REGX_INVALID:
        return EINVAL;
    default:
        return EFAULT;
    }
}

void regx_domain_release(regx_domain_t *domain, regx_use_t *use)
{
    regx_region_release(&domain->registry, region_of(use));
}

void regx_domain_progress(regx_domain_t *domain)
{
    regx_registry_progress(&domain->registry);
}

/* ---- what it did ---- */

void regx_domain_statistics(regx_domain_t *domain, regx_statistics_t *statistics, size_t size)
{
    regx_registry_count(&domain->registry);
    const regx_counters_t *seen = &domain->counters;
    const regx_statistics_t own = {.registrations = atomic_load(&seen->registrations),
                                   .deregistrations = atomic_load(&seen->deregistrations),
                                   .registered_bytes = atomic_load(&seen->registered_bytes),
                                   .registered_high = atomic_load(&seen->registered_high),
                                   .hits = atomic_load(&seen->hits),
                                   .misses = atomic_load(&seen->misses),
                                   .uncached = atomic_load(&seen->uncached),
                                   .evictions = atomic_load(&seen->evictions),
                                   .invalidations = atomic_load(&seen->invalidations),
                                   .stale_prevented = atomic_load(&seen->stale_prevented),
                                   .inuse_changes = atomic_load(&seen->inuse_changes)};

    memset(statistics, 0, size);
    memcpy(statistics, &own, regx_min(size, sizeof(own)));
}

/* Those of the domain come first, then the monitor's. */
int regx_domain_fallback(regx_domain_t *domain, unsigned index, const char **reason,
                         uint64_t *count)
{
    const regx_tally_t *const both[] = {domain->counters.fallbacks, counters.fallbacks};

    for (unsigned i = 0; i < 2 * REGX_REASONS_MAX; i++) {
        const regx_tally_t *tally = &both[i / REGX_REASONS_MAX][i % REGX_REASONS_MAX];
        const uint64_t times = atomic_load(&tally->count);

        if (times > 0 && index-- == 0) {
            *reason = tally->reason;
            *count = times;
            return 0;
        }
    }
    return ENOENT;
}
