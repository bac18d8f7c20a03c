/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/variables.h"

#include <stdio.h>

#include "opal/mca/base/mca_base_pvar.h"

#include "btl/registry.h"
#include "transport/catalog.h"

static regx_component_t *counted;

/* Open MPI holds its own lock. A count begins at zero in each handle; Open MPI subtracts. */
static int read_counter(const struct mca_base_pvar_t *variable, void *value, void *object)
{
    const _Atomic uint64_t *counter = variable->ctx;

    (void)object;
    *(unsigned long long *)value = atomic_load_explicit(counter, memory_order_relaxed);
    return OPAL_SUCCESS;
}

/* Of what is found in the caches: added up when it is asked for. */
static int read_hits(const struct mca_base_pvar_t *variable, void *value, void *object)
{
    regx_registry_count_all(counted);
    return read_counter(variable, value, object);
}

static void add(regx_component_t *component, const char *name, const char *help,
                regx_counter_kind_t kind, mca_base_get_value_fn_t read, _Atomic uint64_t *counter)
{
    mca_base_component_pvar_register(
        &component->super.btl_version, name, help, OPAL_INFO_LVL_4,
        kind == REGX_LEVEL ? MCA_BASE_PVAR_CLASS_LEVEL : MCA_BASE_PVAR_CLASS_COUNTER,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
        MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read, NULL, NULL, counter);
}

static void add_table(regx_component_t *component, const regx_counter_t *row)
{
    for (; row->name != NULL; row++) {
        _Atomic uint64_t *counter = regx_counter_of(&component->counters, row);

        add(component, row->name, row->help, row->kind,
            counter == &component->counters.hits ? read_hits : read_counter, counter);
    }
}

void regx_variables_register(regx_component_t *component)
{
    counted = component;
    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        char name[40], help[160];

        snprintf(name, sizeof(name), "messages_%s", path->name);
        snprintf(help, sizeof(help), "messages %s", path->help);
        add(component, name, help, path->kind, read_counter,
            &component->counters.messages[path->offset]);
        snprintf(name, sizeof(name), "bytes_%s", path->name);
        snprintf(help, sizeof(help), "bytes of messages %s", path->help);
        add(component, name, help, path->kind, read_counter,
            &component->counters.bytes[path->offset]);
    }
    add_table(component, regx_counter_table);
    add_table(component, regx_transport_counter_table);
}
