/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "opal/mca/base/mca_base_component_repository.h"
#include "opal/mca/mpool/base/base.h"

#include "btl/module.h"

/* ---- BTLs ---- */

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

bool regx_other_btl_leads(bool same_node)
{
    /* Those of Open MPI that lead nowhere else. */
    static const char of_the_node[] = "vader,sm,smcuda";
    const mca_base_component_list_item_t *item;

    OPAL_LIST_FOREACH(item, &opal_btl_base_framework.framework_components,
                      mca_base_component_list_item_t)
    {
        const mca_base_component_t *component = item->cli_component;

        if (strcmp(component->mca_component_name, "regx") != 0 && !is_self(component) &&
            (same_node || !regx_option_listed(of_the_node, component->mca_component_name))) {
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

    if (warned || !regx_compat_prints()) {
        return;
    }
    warned = true;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const char *name = selected->btl_component->btl_version.mca_component_name;

        if (hinders(selected->btl_module, btl)) {
            regx_compat_output(
                "btl_regx_exclusivity=%u: beside %s, Open MPI sends large messages in "
                "fragments; leave %s out of btl, or set btl_%s_flags=send",
                (unsigned)btl->btl_exclusivity, name, name, name);
        }
    }
}

/* ---- memory pools ---- */

/* Above every component of Open MPI's that is not asked by hints: their default is 50. */
#define PRIORITY 60

static regx_transport_t *from;                /* whose memory it is; NULL: not started */
static mca_base_component_list_item_t *entry; /* in the framework's list */

/* NULL: Open MPI takes other memory. */
static void *allocate(mca_mpool_base_module_t *mpool, size_t size, size_t align, uint32_t flags)
{
    (void)mpool, (void)flags;
    return align <= regx_page_size() ? from->ops->node.allocate(from, size) : NULL;
}

static void release(mca_mpool_base_module_t *mpool, void *memory)
{
    (void)mpool;
    from->ops->node.release(from, memory);
}

static mca_mpool_base_component_t component;

static mca_mpool_base_module_t pool = {.mpool_component = &component,
                                       .mpool_alloc = allocate,
                                       .mpool_free = release,
                                       .flags = MCA_MPOOL_FLAGS_MPI_ALLOC_MEM};

static int query(const char *hints, int *priority, mca_mpool_base_module_t **module)
{
    if (hints != NULL) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    *priority = PRIORITY;
    *module = &pool;
    return OPAL_SUCCESS;
}

static mca_mpool_base_component_t component = {
    .mpool_version = {OPAL_MCA_BASE_VERSION_2_1_0("mpool", 3, 0, 0), .mca_component_name = "regx",
                      MCA_BASE_MAKE_VERSION(component, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION,
                                            OPAL_RELEASE_VERSION)},
    .mpool_query = query};

void regx_alloc_mem_start(regx_component_t *regx)
{
    if (from != NULL || regx_compat_local_processes() < 2) {
        return;
    }
    for (unsigned i = 0; i < regx->module_count; i++) {
        if (regx->modules[i]->transport->ops->node.allocate != NULL) {
            from = regx->modules[i]->transport;
        }
    }
    entry = from != NULL ? OBJ_NEW(mca_base_component_list_item_t) : NULL;
    if (entry == NULL) {
        from = NULL;
        return;
    }
    entry->cli_component = &component.mpool_version;
    opal_list_append(&opal_mpool_base_framework.framework_components, &entry->super);
}

void regx_alloc_mem_stop(void)
{
    if (from == NULL) {
        return;
    }
    opal_list_remove_item(&opal_mpool_base_framework.framework_components, &entry->super);
    OBJ_RELEASE(entry);
    from = NULL;
}
