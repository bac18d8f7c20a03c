/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/rdma_record.h"

#include <stdlib.h>

#include "btl/module.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

/* Under the address sanitizer the use of a record that was returned is found, as if it were
 * freed. */
static void hide(const regx_rdma_record_t *record)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_poison_memory_region(record, sizeof(*record));
#else
    (void)record;
#endif
}

static void show(const regx_rdma_record_t *record)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(record, sizeof(*record));
#else
    (void)record;
#endif
}

/* The newest of those that are unused, which is there. */
static regx_rdma_record_t *take_unused(regx_module_t *module)
{
    regx_rdma_record_t *record = module->unused_records;

    show(record);
    module->unused_records = record->next;
    module->unused_record_count--;
    return record;
}

regx_rdma_record_t *regx_rdma_record_take(regx_module_t *module)
{
    regx_lock(&module->lock);
    regx_rdma_record_t *record = module->unused_records != NULL ? take_unused(module) : NULL;
    regx_unlock(&module->lock);
    return record != NULL ? record : malloc(sizeof(*record));
}

void regx_rdma_record_return(regx_module_t *module, regx_rdma_record_t *record)
{
    regx_lock(&module->lock);
    const bool keep = module->unused_record_count < REGX_RDMA_RECORDS_KEPT;
    if (keep) {
        record->next = module->unused_records;
        module->unused_records = record;
        module->unused_record_count++;
        hide(record);
    }
    regx_unlock(&module->lock);
    if (!keep) {
        free(record);
    }
}

void regx_rdma_records_free(regx_module_t *module)
{
    while (module->unused_records != NULL) {
        free(take_unused(module));
    }
}
