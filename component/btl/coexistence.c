/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <sys/mman.h>

#include "opal/mca/base/mca_base_component_repository.h"
#include "opal/mca/mpool/base/base.h"

#include "btl/module.h"

/* ---- BTLs ---- */

/* It has a peer of its own alone. */
static bool is_self(const mca_base_component_t *component)
{
    return strcmp(component->mca_component_name, "self") == 0;
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
        /* All of them are registered before the first is opened. */
        mca_base_var_source_t source;
        const unsigned *exclusivity = regx_param_stored(
            "opal", "btl", item->cli_component->mca_component_name, "exclusivity", &source);

        if (!is_self(item->cli_component) && exclusivity != NULL &&
            *exclusivity > btl->btl_exclusivity) {
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

void regx_warn_of_other_btls(const mca_btl_base_module_t *btl)
{
    const uint32_t needed = MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET | MCA_BTL_FLAGS_ATOMIC_FOPS;
    static bool warned;
    mca_btl_base_selected_module_t *selected;

    if (warned || !regx_compat_prints()) {
        return;
    }
    warned = true;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const mca_btl_base_module_t *other = selected->btl_module;
        const char *name = selected->btl_component->btl_version.mca_component_name;

        if (other->btl_component != btl->btl_component &&
            other->btl_exclusivity < btl->btl_exclusivity &&
            !is_self(&other->btl_component->btl_version) && (other->btl_flags & needed) == needed &&
            other->btl_min_rdma_pipeline_size >= INT32_MAX) {
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

/* Bytes of a block of this file's own, at least: messages of shorter ones seldom go by rendezvous. */
#define LEAST (16u << 10)

static regx_component_t *giver; /* whose memory it is; NULL: not started */
static regx_transport_t *from;  /* of which; NULL: it is mapped here, and no neighbour maps it */
static _Atomic uint64_t mapped; /* bytes here */
static mca_base_component_list_item_t *entry; /* in the framework's list */

/* Once MPI_Finalize has begun it stays as it is. A child of fork has nothing mapped here. */
static void give_back(void *memory, size_t length)
{
    if (giver == NULL || giver->modules[0]->transport->forked) {
        return;
    }
    if (from != NULL) {
        from->ops->node.release(from, memory);
    } else {
        munmap(memory, length);
        atomic_fetch_sub(&mapped, length);
    }
}

/* NULL: Open MPI takes other memory. */
static void *allocate(mca_mpool_base_module_t *mpool, size_t size, size_t align, uint32_t flags)
{
    const uint64_t most = giver->params.settings.pool.alloc_mem_size;
    const size_t page = regx_page_size(), length = regx_align_up(size, page);
    void *memory = NULL;

    (void)mpool, (void)flags;
    if (align > page || length < size) {
        return NULL;
    }
    if (from != NULL) {
        memory = from->ops->node.allocate(from, size);
    } else if (size >= LEAST && most > 0) {
        const bool fits = regx_within(atomic_fetch_add(&mapped, length), length, most);

        /* For devices, where there are no neighbours that could map it. It is shared memory all the
         * same: what is registered stays what the program sees, whatever madvise discards. So a child
         * of fork may not have it: it would share it. */
        memory =
            !fits ? MAP_FAILED
                  : mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            atomic_fetch_sub(&mapped, length);
            regx_tally(giver->counters.fallbacks, fits
                                                      ? "MPI_Alloc_mem: mmap failed"
                                                      : "MPI_Alloc_mem: alloc_mem_size is used up");
            return NULL;
        }
        madvise(memory, length, MADV_DONTFORK);
    }
    if (memory != NULL && !regx_owned_add(&giver->owned, memory, length)) {
        give_back(memory, length);
        return NULL;
    }
    return memory;
}

static void release(mca_mpool_base_module_t *mpool, void *memory)
{
    (void)mpool;
    regx_owned_free(&giver->owned, memory);
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
    const bool neighbours = regx_compat_local_processes() > 1;
    bool pins = false;

    if (giver != NULL) {
        return;
    }
    for (unsigned i = 0; i < regx->module_count; i++) {
        regx_module_t *module = regx->modules[i];

        if (neighbours && module->transport->ops->node.allocate != NULL) {
            from = module->transport;
        }
        pins |= module->registry.owned != NULL;
    }
    entry = from != NULL || pins ? OBJ_NEW(mca_base_component_list_item_t) : NULL;
    if (entry == NULL) {
        from = NULL;
        return;
    }
    giver = regx;
    mapped = 0;
    regx_owned_init(&regx->owned, regx->threads, give_back);
    entry->cli_component = &component.mpool_version;
    opal_list_append(&opal_mpool_base_framework.framework_components, &entry->super);
}

void regx_alloc_mem_stop(void)
{
    if (giver == NULL) {
        return;
    }
    opal_list_remove_item(&opal_mpool_base_framework.framework_components, &entry->super);
    OBJ_RELEASE(entry);
    giver = NULL;
    from = NULL;
}
