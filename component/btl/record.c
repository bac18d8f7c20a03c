/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/record.h"

#include <stdlib.h>

#include "btl/module.h"

regx_record_t *regx_record_take(regx_module_t *module)
{
    regx_lock(&module->lock);
    regx_record_t *record = module->unused_records;
    if (record != NULL) {
        module->unused_records = record->next;
        module->unused_record_count--;
    }
    regx_unlock(&module->lock);
    return record != NULL ? record : malloc(sizeof(*record));
}

void regx_record_return(regx_module_t *module, regx_record_t *record)
{
    regx_lock(&module->lock);
    const bool keep = module->unused_record_count < REGX_RECORDS_KEPT;
    if (keep) {
        record->next = module->unused_records;
        module->unused_records = record;
        module->unused_record_count++;
    }
    regx_unlock(&module->lock);
    if (!keep) {
        free(record);
    }
}

void regx_records_free(regx_module_t *module)
{
    while (module->unused_records != NULL) {
        regx_record_t *record = module->unused_records;

        module->unused_records = record->next;
        free(record);
    }
}
