/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/handle_table.h"

#include <stdlib.h>

#define NONE UINT32_MAX

void regx_handle_table_init(regx_handle_table_t *table)
{
    *table = (regx_handle_table_t){.free = NONE};
}

void regx_handle_table_fini(regx_handle_table_t *table)
{
    free(table->entries);
}

static bool grow(regx_handle_table_t *table)
{
    const uint32_t count = table->count == 0 ? 64 : 2 * table->count;
    struct regx_handle_entry *entries;

    if (count <= table->count) {
        return false;
    }
    entries = realloc(table->entries, count * sizeof(*entries));
    if (entries == NULL) {
        return false;
    }
    for (uint32_t i = table->count; i < count; i++) {
        entries[i] =
            (struct regx_handle_entry){.generation = 1, .next_free = i + 1 < count ? i + 1 : NONE};
    }
    table->free = table->count;
    table->entries = entries;
    table->count = count;
    return true;
}

bool regx_handle_table_add(regx_handle_table_t *table, void *object, regx_handle_t *handle)
{
    if (table->free == NONE && !grow(table)) {
        return false;
    }
    struct regx_handle_entry *entry = &table->entries[table->free];
    handle->id = table->free;
    handle->generation = entry->generation;
    table->free = entry->next_free;
    entry->object = object;
    return true;
}

void regx_handle_table_remove(regx_handle_table_t *table, regx_handle_t handle)
{
    struct regx_handle_entry *entry = &table->entries[handle.id];

    entry->object = NULL;
    entry->generation++;
    entry->next_free = table->free;
    table->free = handle.id;
}

void *regx_handle_table_at(const regx_handle_table_t *table, uint32_t id)
{
    return id < table->count ? table->entries[id].object : NULL;
}

void *regx_handle_table_find(const regx_handle_table_t *table, regx_handle_t handle)
{
    void *object = regx_handle_table_at(table, handle.id);

    return object != NULL && table->entries[handle.id].generation == handle.generation ? object
                                                                                       : NULL;
}
