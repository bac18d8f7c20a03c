/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/component.h"

#include "opal/mca/mpool/base/base.h"

#include "base/util.h"
#include "btl/module.h"

/* Above every component of Open MPI's that is not asked by hints: their default is 50. */
#define PRIORITY 60

/* If an Open MPI has no such framework the component is still to load. */
#pragma weak opal_mpool_base_framework

static int query(const char *hints, int *priority, mca_mpool_base_module_t **module);
static void *allocate(mca_mpool_base_module_t *pool, size_t size, size_t align, uint32_t flags);
static void release(mca_mpool_base_module_t *pool, void *memory);

static mca_mpool_base_component_t component = {
    .mpool_version = {OPAL_MCA_BASE_VERSION_2_1_0("mpool", 3, 0, 0), .mca_component_name = "regx",
                      MCA_BASE_MAKE_VERSION(component, OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION,
                                            OPAL_RELEASE_VERSION)},
    .mpool_query = query};

static mca_mpool_base_module_t pool = {.mpool_component = &component,
                                       .mpool_alloc = allocate,
                                       .mpool_free = release,
                                       .flags = MCA_MPOOL_FLAGS_MPI_ALLOC_MEM};

static regx_transport_t *from;                /* whose memory it is; NULL: not started */
static mca_base_component_list_item_t *entry; /* in the framework's list */

static int query(const char *hints, int *priority, mca_mpool_base_module_t **module)
{
    if (hints != NULL) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    *priority = PRIORITY;
    *module = &pool;
    return OPAL_SUCCESS;
}

/* NULL: Open MPI takes other memory. */
static void *allocate(mca_mpool_base_module_t *mpool, size_t size, size_t align, uint32_t flags)
{
    (void)mpool, (void)flags;
    return align <= regx_page_size() ? from->ops->allocate(from, size) : NULL;
}

static void release(mca_mpool_base_module_t *mpool, void *memory)
{
    (void)mpool;
    from->ops->release(from, memory);
}

void regx_alloc_mem_start(regx_component_t *regx)
{
    if (from != NULL || &opal_mpool_base_framework == NULL || regx_compat_local_processes() < 2) {
        return;
    }
    for (unsigned i = 0; i < regx->module_count; i++) {
        if (regx->modules[i]->transport->ops->allocate != NULL) {
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
