/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/component.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/memlock.h"

#define PARAMS_MAX 64 /* of all layers; a build with asserts checks it */
#define POOL_MAX_BY_DEFAULT (8u << 20)
#define FRAME_MAX 16448u    /* bytes that every transport takes as one frame */
#define FRAGMENT_MAX 65536u /* bytes that every transport sends without a copy at once */

/* ---- values ---- */

/* Open MPI's values, or the defaults, in the order of the tables. */
static char *values[PARAMS_MAX];

/* The component that they are of. */
static const mca_base_component_t *registered;

void regx_params_register(const mca_base_component_t *component)
{
    const regx_param_t *param;
    size_t layer;

    registered = component;
    for (unsigned i = 0; (param = regx_settings_param(i, &layer)) != NULL; i++) {
        const regx_param_text_t *text = regx_param_texts;

        assert(i < PARAMS_MAX);
        while (strcmp(text->name, param->name) != 0) {
            text++;
            assert(text->name != NULL); /* regx.conf has every parameter */
        }
        values[i] = (char *)(uintptr_t)text->initial; /* Open MPI copies it */
        mca_base_component_var_register(
            registered, param->name, text->help, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0,
            OPAL_INFO_LVL_1 + (param->level - 1), MCA_BASE_VAR_SCOPE_READONLY, &values[i]);
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

bool regx_param_given(const char *name)
{
    mca_base_var_source_t source;

    regx_param_stored("opal", "btl", "regx", name, &source);
    return source != MCA_BASE_VAR_SOURCE_DEFAULT;
}

bool regx_params_complain(const char *format, ...)
{
    regx_error_t line;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (!regx_compat_has_to_print(registered, line)) {
        return false;
    }
    if (regx_compat_prints()) {
        regx_compat_output("%s", line);
    } else {
        regx_compat_output("%s; at rank %u on %s", line, regx_compat_rank(), regx_compat_host());
    }
    return false;
}

bool regx_params_named(void)
{
    mca_base_var_source_t source;
    const char *const *list = regx_param_stored("opal", "btl", NULL, NULL, &source);

    return list != NULL && *list != NULL && regx_option_listed(*list, "regx");
}

bool regx_params_asked(void)
{
    mca_base_var_source_t source;
    const char *const *enable = regx_param_stored("opal", "btl", "regx", "enable", &source);

    if (enable == NULL || *enable == NULL || **enable == '\0' || strcmp(*enable, "auto") == 0) {
        return regx_params_named();
    }
    return strcmp(*enable, "0") != 0; /* what is neither 0 nor 1 is refused when it is read */
}

/* ---- what depends on more than the value itself ---- */

static bool is_revocable(const char *strategy)
{
    return regx_strategy_find(strategy)->revocable;
}

static bool reports_changes(const char *name)
{
    const regx_backend_t *backend = regx_backend_find(name); /* NULL: auto */

    return backend != NULL && backend->reports_changes;
}

/* What cannot be revoked is refused, rather than granted for good in silence. */
static bool check_grant(const regx_params_t *params)
{
    const regx_rndv_settings_t *rendezvous = &params->settings.rendezvous;
    const regx_registration_settings_t *registration = &params->settings.registration;
    const char *name, *value;
    char allowed[96];

    if (rendezvous->grant == REGX_GRANT_FINAL) {
        return true;
    }
    if (!is_revocable(rendezvous->rendezvous)) {
        name = "rendezvous";
        value = rendezvous->rendezvous;
        regx_param_list(regx_strategy_words, is_revocable, allowed, sizeof(allowed));
    } else if (!reports_changes(registration->backend)) {
        name = "backend";
        value = registration->backend;
        regx_param_list(regx_backend_words, reports_changes, allowed, sizeof(allowed));
    } else if (registration->inuse == REGX_INUSE_ABORT) {
        name = "inuse";
        value = "abort";
        strcpy(allowed, "ignore, warn, drain");
    } else if (rendezvous->verify) {
        name = "verify";
        value = "1";
        strcpy(allowed, "0");
    } else {
        return true;
    }
    return regx_params_complain(REGX_PREFIX "grant=revocable is given with " REGX_PREFIX
                                            "%s=%s; allowed: %s",
                                name, value, allowed);
}

/* A process's part of what is pinned for all of the job's on this node: a quarter of its memory. */
static uint64_t part_of_memory(uint64_t page)
{
    const uint64_t bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * page / 4 / regx_compat_local_processes();

    return regx_max(bytes & ~(page - 1), page);
}

/* ---- what Open MPI registers for every BTL: it keeps its meaning or is refused by name ---- */

static bool check_inherited(regx_params_t *params, mca_btl_base_module_t *btl)
{
    const size_t max = regx_max(regx_min(params->settings.pool.slot_size, FRAGMENT_MAX), FRAME_MAX);

    /* If the user sets it, ob1 has regx pack eager messages, and does not look at how much of one
     * was packed: less than all of it, where a fragment is shorter. */
    btl->btl_flags &= ~(uint32_t)MCA_BTL_FLAGS_SEND_INPLACE;
    if ((btl->btl_flags & MCA_BTL_FLAGS_SEND) == 0) {
        return regx_params_complain(REGX_PREFIX "flags: send is missing, by which each message "
                                                "begins; allowed: send, and others with it");
    }
    if (btl->btl_eager_limit < 256 || btl->btl_eager_limit > REGX_EAGER_MAX) {
        return regx_params_complain(REGX_PREFIX "eager_limit=%zu; allowed: 256 to %u",
                                    btl->btl_eager_limit, REGX_EAGER_MAX);
    }
    if (!regx_param_given("max_send_size")) {
        btl->btl_max_send_size = regx_min(btl->btl_max_send_size, max);
    }
    if (btl->btl_max_send_size < 1024 || btl->btl_max_send_size > max) {
        return regx_params_complain(REGX_PREFIX "max_send_size=%zu; allowed: 1024 to %zu",
                                    btl->btl_max_send_size, max);
    }
    /* Open MPI raises this to the eager limit, and counts the header into the one and not into the
     * other: a message just below the limit would go as a lone fragment. */
    if (!regx_param_given("min_rdma_pipeline_size")) {
        btl->btl_min_rdma_pipeline_size = 0;
    }
    if (regx_param_given("put_limit")) {
        return regx_params_complain(
            REGX_PREFIX "put_limit=%zu: Open MPI puts each message at once and heeds no "
                        "limit; use " REGX_PREFIX "chunk_size",
            btl->btl_put_limit);
    }
    if (regx_param_given("get_limit")) {
        return regx_params_complain(
            REGX_PREFIX "get_limit=%zu: regx gets each message at once, in steps of its own",
            btl->btl_get_limit);
    }
    /* What goes along with an RTS. */
    params->rts_contiguous = regx_param_given("rndv_eager_limit");
    if (!params->rts_contiguous) {
        btl->btl_rndv_eager_limit = regx_min(btl->btl_rndv_eager_limit, btl->btl_eager_limit);
    }
    return btl->btl_rndv_eager_limit <= btl->btl_eager_limit ||
           regx_params_complain(REGX_PREFIX "rndv_eager_limit=%zu; allowed: 0 to " REGX_PREFIX
                                            "eager_limit (%zu)",
                                btl->btl_rndv_eager_limit, btl->btl_eager_limit);
}

bool regx_params_read(regx_params_t *params, mca_btl_base_module_t *btl)
{
    const regx_transport_settings_t *transports = &params->settings.transports.all;
    const uint64_t page = regx_page_size();
    regx_registration_settings_t *registration = &params->settings.registration;
    regx_pool_settings_t *pool = &params->settings.pool;
    const uint64_t limit = regx_memlock_limit();
    mca_base_var_source_t source;
    const regx_param_t *param;
    struct sysinfo node;
    regx_error_t error;
    size_t layer;

    /* A list is Open MPI's string, and gone before modules are finalized: it is read while transports
     * open, not later. */
    for (unsigned i = 0; (param = regx_settings_param(i, &layer)) != NULL; i++) {
        if (!regx_param_read(param, values[i], (char *)&params->settings + layer, error)) {
            return regx_params_complain("%s", error);
        }
    }
    if (transports->if_include != NULL && transports->if_exclude != NULL) {
        return regx_params_complain(REGX_PREFIX "if_include and " REGX_PREFIX
                                                "if_exclude are both given; allowed: one");
    }
    params->strategy = regx_strategy_find(params->settings.rendezvous.rendezvous);
    /* By default, half of what may be locked is left to registrations. */
    params->pool_given = pool->pool_size != 0;
    params->pool_wanted = pool->pool_size;
    if (!params->pool_given) {
        const uint64_t half = limit / 2 & ~(page - 1);

        pool->pool_size = regx_max(regx_min(half, POOL_MAX_BY_DEFAULT), 2 * pool->slot_size);
        params->pool_wanted = regx_max(pool->pool_size, POOL_MAX_BY_DEFAULT);
    }
    /* Open MPI's own setting for: keep nothing. */
    const int *leave = regx_param_stored("ompi", "mpi", NULL, "leave_pinned", &source);
    params->leave_pinned = leave == NULL || *leave != 0 || source == MCA_BASE_VAR_SOURCE_DEFAULT ||
                           regx_param_given("backend");
    if (!params->leave_pinned) {
        registration->backend = regx_backend_none.name;
        if (regx_compat_prints()) {
            regx_compat_output("mpi_leave_pinned=0: registrations are not kept; " REGX_PREFIX
                               "backend overrides this");
        }
    }
    if (!check_grant(params)) {
        return false;
    }
    /* A default that fits: what is kept leaves the application the larger part of the node's memory,
     * and transfers under way half of what may be locked, if anything is. */
    if (registration->cache_bytes == 0) {
        const regx_backend_t *backend = regx_backend_find(registration->backend); /* NULL: auto */
        uint64_t bytes = part_of_memory(page);

        if (limit != REGX_MEMLOCK_NONE && (backend == NULL || !backend->pins_nothing)) {
            bytes = regx_min(bytes, limit > pool->pool_size ? (limit - pool->pool_size) / 2 : 0);
        }
        registration->cache_bytes = regx_max(bytes & ~(page - 1), page);
    }
    /* A default that fits: transfers under way may pin as much again. Memory that is pinned is lacking
     * only where the kernel would else have swapped it, and a node with little swap space is not made for
     * programs that are larger than its memory. */
    if (registration->once_bytes == 0) {
        const bool swaps =
            sysinfo(&node) == 0 && node.totalswap > 0 && node.totalswap >= node.totalram / 4;

        registration->once_bytes = swaps ? part_of_memory(page) : REGX_UNLIMITED;
    }
    return check_inherited(params, btl);
}

/* ---- names that nobody registered ----
 * A misspelt btl_regx_rendevous changes nothing, and Open MPI does not say so. What mpirun was given is in
 * the environment, too. A name may be of another release: the job goes on. */
void regx_params_warn_of_unknown(void)
{
    static const char prefix[] = "OMPI_MCA_" REGX_PREFIX;

    for (char **entry = environ; entry != NULL && *entry != NULL && regx_compat_prints(); entry++) {
        const char *given = *entry + strlen(prefix);
        regx_error_t name, line;

        if (strncmp(*entry, prefix, strlen(prefix)) != 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(given, "="), given);
        snprintf(line, sizeof(line),
                 REGX_PREFIX "%.100s: no such parameter%s (ompi_info --param btl regx --level 9 "
                             "lists them)",
                 name,
                 strcmp(name, "costs") == 0 ? " any more, use " REGX_PREFIX "rendezvous" : "");
        if (mca_base_var_find("opal", "btl", "regx", name) < 0 &&
            regx_compat_has_to_print(registered, line)) {
            regx_compat_output("%s", line);
        }
    }
}
