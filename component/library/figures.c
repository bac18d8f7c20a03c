/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "library/domain.h"

const char *regx_domain_backends(unsigned index)
{
    return regx_shared_backend(index);
}

const char *regx_domain_backend(const regx_domain_t *domain, const char **reason)
{
    if (reason != NULL) {
        *reason = domain->shared.reason;
    }
    return domain->shared.backend->name;
}

void regx_domain_statistics(regx_domain_t *domain, regx_statistics_t *statistics, size_t size)
{
    regx_statistics_t own;

    regx_registry_count(&domain->registry);
#define TAKE(name) own.name = atomic_load(&domain->counters.name)
    TAKE(registrations);
    TAKE(deregistrations);
    TAKE(registered_bytes);
    TAKE(registered_high);
    TAKE(hits);
    TAKE(misses);
    TAKE(uncached);
    TAKE(evictions);
    TAKE(invalidations);
    TAKE(stale_prevented);
    TAKE(inuse_changes);
#undef TAKE
    memset(statistics, 0, size);
    memcpy(statistics, &own, regx_min(size, sizeof(own)));
}

/* The reason of that number among those that were counted; the number, less how many there are, if
 * there is none. */
static const regx_tally_t *find_tally(const regx_tally_t tallies[REGX_REASONS_MAX], unsigned *index)
{
    for (int i = 0; i < REGX_REASONS_MAX && atomic_load(&tallies[i].count) > 0; i++) {
        if ((*index)-- == 0) {
            return &tallies[i];
        }
    }
    return NULL;
}

int regx_domain_fallback(regx_domain_t *domain, unsigned index, const char **reason,
                         uint64_t *count)
{
    const regx_tally_t *tally = find_tally(domain->counters.fallbacks, &index);

    if (tally == NULL) {
        tally = find_tally(regx_shared_counters()->fallbacks, &index);
    }
    if (tally == NULL) {
        return ENOENT;
    }
    *reason = tally->reason;
    *count = atomic_load(&tally->count);
    return 0;
}
