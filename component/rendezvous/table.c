/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/table.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

void regx_table_init(regx_table_t *table)
{
    *table = (regx_table_t){.free = NONE};
}

void regx_table_fini(regx_table_t *table)
{
    free(table->entries);
}

static bool grow(regx_table_t *table)
{
    const uint32_t count = table->count == 0 ? 64 : 2 * table->count;
    struct regx_table_entry *entries;

    if (count <= table->count) {
        return false;
    }
    entries = realloc(table->entries, count * sizeof(*entries));
    if (entries == NULL) {
        return false;
    }
    for (uint32_t i = table->count; i < count; i++) {
        entries[i] =
            (struct regx_table_entry){.generation = 1, .next_free = i + 1 < count ? i + 1 : NONE};
    }
    table->free = table->count;
    table->entries = entries;
    table->count = count;
    return true;
}

bool regx_table_add(regx_table_t *table, void *object, regx_name_t *name)
{
    if (table->free == NONE && !grow(table)) {
        return false;
    }
    struct regx_table_entry *entry = &table->entries[table->free];
    name->id = table->free;
    name->generation = entry->generation;
    table->free = entry->next_free;
    entry->object = object;
    return true;
}

void regx_table_remove(regx_table_t *table, regx_name_t name)
{
    struct regx_table_entry *entry = &table->entries[name.id];

    entry->object = NULL;
    entry->generation++;
    entry->next_free = table->free;
    table->free = name.id;
}

void *regx_table_at(const regx_table_t *table, uint32_t id)
{
    return id < table->count ? table->entries[id].object : NULL;
}

void *regx_table_find(const regx_table_t *table, regx_name_t name)
{
    if (name.id >= table->count || table->entries[name.id].generation != name.generation) {
        return NULL;
    }
    return table->entries[name.id].object;
}
