/* SPDX-License-Identifier: BSD-3-Clause */
#include "domain.h"

#include "../transport/verbs/fake_device.h"
#include "../transport/verbs/fake_parts.h"
#include "registration/registry.h"

struct ibv_pd *pd;
char refusal[256];

static int setup(void **state)
{
    struct ibv_device **list;

    fake_reset();
    list = ibv_get_device_list(NULL);
    pd = ibv_alloc_pd(ibv_open_device(list[0]));
    ibv_free_device_list(list);
    return 0;
}

static int teardown(void **state)
{
    struct ibv_context *context = pd->context;

    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    return 0;
}

const unit_group_t unit_group = {.setup = setup, .teardown = teardown};

static int open_domain(const char *backend, regx_domain_t **domain)
{
    const regx_domain_options_t options = {.size = sizeof(options), .backend = backend};

    refusal[0] = '\0';
    return regx_domain_open(pd, &options, domain, refusal, sizeof(refusal));
}

regx_domain_t *domain_open(const char *backend)
{
    regx_domain_t *domain = NULL;
    const int result = open_domain(backend, &domain);

    unit_need(result != EOPNOTSUPP || strstr(refusal, "backend=notifier cannot be used") != refusal,
              "%s", refusal);
    unit_expect(result == 0, "%d: %s", result, refusal);
    return domain;
}

int domain_refused(const char *backend)
{
    regx_domain_t *domain;
    const int result = open_domain(backend, &domain);

    assert_int_not_equal(result, 0);
    return result;
}

bool domain_is_registered(uint32_t key, const void *base, size_t length, int access)
{
    pthread_mutex_lock(&fake_lock);
    const bool registered = fake_is_registered(key, (uintptr_t)base, length, access);
    pthread_mutex_unlock(&fake_lock);
    return registered;
}

static const regx_monitor_t *monitor; /* of all domains that keep anything */

__typeof__(regx_backend_choose) __real_regx_backend_choose, __wrap_regx_backend_choose;

regx_status_t __wrap_regx_backend_choose(const char *name, bool registering_is_free,
                                         const regx_monitor_config_t *config,
                                         regx_backend_choice_t *choice, regx_error_t why)
{
    const regx_status_t status =
        __real_regx_backend_choose(name, registering_is_free, config, choice, why);

    if (status == REGX_OK && choice->monitor != NULL) {
        monitor = choice->monitor;
    }
    return status;
}

/* What happened to memory before comes into the log. An acquire waits for that only for some
 * microseconds, and then registers for one use. */
static void settle(const regx_domain_t *domain)
{
    const bool keeps = strcmp(regx_domain_backend(domain, NULL), "none") != 0;

    await(!keeps || atomic_load(&monitor->log->sequence) % 2 == 0);
}

void domain_acquire(regx_domain_t *domain, void *base, size_t length, int access, regx_use_t *use)
{
    settle(domain);
    assert_int_equal(regx_domain_acquire(domain, base, length, access, use), 0);
    assert_true(domain_is_registered(use->mr->lkey, base, length, access));
}

uint32_t domain_use(regx_domain_t *domain, void *base, size_t length, int access)
{
    regx_use_t use;

    domain_acquire(domain, base, length, access, &use);
    const uint32_t key = use.mr->lkey;
    regx_domain_release(domain, &use);
    return key;
}

regx_statistics_t domain_statistics(regx_domain_t *domain)
{
    regx_statistics_t statistics;

    regx_domain_statistics(domain, &statistics, sizeof(statistics));
    return statistics;
}

uint64_t domain_fell_back(regx_domain_t *domain, const char *reason)
{
    const char *found;
    uint64_t count;

    for (unsigned i = 0; regx_domain_fallback(domain, i, &found, &count) == 0; i++) {
        if (strcmp(found, reason) == 0) {
            return count;
        }
    }
    return 0;
}

char *domain_map(size_t length)
{
    char *base = unit_map(NULL, length);

    memset(base, 1, length);
    return base;
}
