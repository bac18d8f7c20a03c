/* SPDX-License-Identifier: BSD-3-Clause */
#include "library/domain.h"

#include <errno.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

_Static_assert(sizeof(regx_region_t) <= sizeof(((regx_use_t *)NULL)->reserved) &&
                   alignof(regx_region_t) <= alignof(uint64_t),
               "a use holds what registration/ needs");

/* ---- opening ---- */

static int refuse(int result, const char *why, char *error, size_t error_size)
{
    snprintf(error, error_size, "%s", why);
    return result;
}

static int read_options(const regx_domain_options_t *given, regx_domain_options_t *options,
                        char *error, size_t error_size)
{
    *options = (regx_domain_options_t){.size = sizeof(*options)};
    if (given != NULL && given->size != sizeof(*options)) {
        return refuse(EINVAL, "options.size is not sizeof(regx_domain_options_t) of this library",
                      error, error_size);
    }
    if (given != NULL) {
        *options = *given;
    }
    if (options->backend == NULL) {
        options->backend = "auto";
    }
    return 0;
}

static regx_cache_config_t cache_config(const regx_domain_t *domain,
                                        const regx_domain_options_t *options)
{
    const uint64_t device = domain->device.transport.mr_count;
    const uint64_t count = options->count != 0 ? options->count : REGX_CACHE_COUNT;

    return (regx_cache_config_t){.bytes = options->bytes != 0 ? options->bytes : REGX_UNLIMITED,
                                 .count = device != 0 ? regx_min(count, device) : count,
                                 .inuse = options->changed_in_use != NULL ? REGX_INUSE_WARN
                                                                          : REGX_INUSE_IGNORE,
                                 .changed_in_use = options->changed_in_use,
                                 .context = options->context};
}

static int open_domain(regx_domain_t *domain, struct ibv_pd *pd,
                       const regx_domain_options_t *options, char *error, size_t error_size)
{
    int result = regx_device_init(&domain->device, pd);

    if (result != 0) {
        return refuse(result, "the device tells nothing of itself (ibv_query_device)", error,
                      error_size);
    }
    domain->counters.threads = true;
    result = regx_shared_join(&domain->shared, options->backend, &domain->device.transport, error,
                              error_size);
    if (result != 0) {
        return result;
    }
    const regx_cache_config_t config = cache_config(domain, options);

    if (regx_registry_open(&domain->registry, domain->shared.backend, domain->shared.monitor,
                           &config, &domain->device.transport, &domain->counters) != REGX_OK) {
        regx_shared_leave(&domain->shared);
        return refuse(ENOMEM, "out of memory", error, error_size);
    }
    return 0;
}

int regx_domain_open(struct ibv_pd *pd, const regx_domain_options_t *options,
                     regx_domain_t **domain, char *error, size_t error_size)
{
    regx_domain_options_t own;
    int result = read_options(options, &own, error, error_size);

    if (result != 0) {
        return result;
    }
    regx_domain_t *made = calloc(1, sizeof(*made));

    if (made == NULL) {
        return refuse(ENOMEM, "out of memory", error, error_size);
    }
    result = open_domain(made, pd, &own, error, error_size);
    if (result != 0) {
        free(made);
        return result;
    }
    *domain = made;
    return 0;
}

void regx_domain_close(regx_domain_t *domain)
{
    regx_registry_close(&domain->registry);
    regx_shared_leave(&domain->shared);
    free(domain);
}

/* ---- using memory ---- */

static regx_region_t *region_of(regx_use_t *use)
{
    return (regx_region_t *)(void *)use->reserved; // cppcheck-suppress ctuuninitvar
}

/* The words of registration/; 0: not one that is allowed. What may be written may also be sent. */
static unsigned access_of(int access)
{
    const int allowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    unsigned own = REGX_ACCESS_LOCAL;

    if ((access & ~allowed) != 0 ||
        ((access & IBV_ACCESS_REMOTE_WRITE) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
        return 0;
    }
    own |= (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? REGX_ACCESS_LOCAL_WRITE : 0;
    own |= (access & IBV_ACCESS_REMOTE_WRITE) != 0 ? REGX_ACCESS_REMOTE_WRITE : 0;
    own |= (access & IBV_ACCESS_REMOTE_READ) != 0 ? REGX_ACCESS_REMOTE_READ : 0;
    return own;
}

int regx_domain_acquire(regx_domain_t *domain, void *base, size_t length, int access,
                        regx_use_t *use)
{
    const unsigned own = access_of(access);
    regx_region_t *region = region_of(use);

    if (own == 0 || base == NULL || length == 0 || length > UINTPTR_MAX - (uintptr_t)base) {
        return EINVAL;
    }
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
