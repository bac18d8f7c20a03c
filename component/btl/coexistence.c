/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/component.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "opal/mca/base/mca_base_component_repository.h"
#include "opal/mca/btl/base/base.h"

#include "btl/params.h"

/* It has a peer of its own alone. */
static bool is_self(const mca_base_component_t *component)
{
    return strcmp(component->mca_component_name, "self") == 0;
}

/* All of them are registered before the first is opened. */
static unsigned exclusivity(const mca_base_component_t *component)
{
    mca_base_var_source_t source;
    const unsigned *value =
        regx_param_stored("opal", "btl", component->mca_component_name, "exclusivity", &source);

    return value != NULL ? *value : 0;
}

bool regx_may_have_windows(const mca_btl_base_module_t *btl)
{
    const mca_base_component_list_item_t *item;

    if (regx_param_given("flags")) {
        return true;
    }
    OPAL_LIST_FOREACH(item, &opal_btl_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        if (!is_self(item->cli_component) &&
            exclusivity(item->cli_component) > btl->btl_exclusivity) {
            return false;
        }
    }
    return regx_compat_windows;
}

/* Those of Open MPI that lead nowhere else. */
static bool is_for_the_node(const mca_base_component_t *component)
{
    static const char *const names[] = {"vader", "sm", "smcuda"};
    bool found = false;

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        found = found || strcmp(component->mca_component_name, names[i]) == 0;
    }
    return found;
}

bool regx_other_btl_leads(bool same_node)
{
    const mca_base_component_list_item_t *item;

    OPAL_LIST_FOREACH(item, &opal_btl_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        const mca_base_component_t *component = item->cli_component;

        if (strcmp(component->mca_component_name, "regx") != 0 && !is_self(component) &&
            (same_node || !is_for_the_node(component))) {
            return true;
        }
    }
    return false;
}

static bool hinders(const mca_btl_base_module_t *other, const mca_btl_base_module_t *btl)
{
    const uint32_t needed = MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET | MCA_BTL_FLAGS_ATOMIC_FOPS;

    return other->btl_component != btl->btl_component &&
           other->btl_exclusivity < btl->btl_exclusivity &&
           !is_self(&other->btl_component->btl_version) && (other->btl_flags & needed) == needed &&
           other->btl_min_rdma_pipeline_size >= INT32_MAX;
}

void regx_warn_of_other_btls(const mca_btl_base_module_t *btl)
{
    static bool warned;
    mca_btl_base_selected_module_t *selected;
    char line[384];

    if (warned || !regx_compat_prints()) {
        return;
    }
    warned = true;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const char *name = selected->btl_component->btl_version.mca_component_name;

        if (hinders(selected->btl_module, btl)) {
            snprintf(line, sizeof(line),
                     "btl_regx_exclusivity=%u: beside %s, Open MPI sends large messages in "
                     "fragments; leave %s out of btl, or set btl_%s_flags=send",
                     (unsigned)btl->btl_exclusivity, name, name, name);
            regx_compat_output(line);
        }
    }
}
