/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rkey_table.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

typedef struct region {
    void *base;
    size_t length;
    unsigned access;
    regx_handle_t handle;
} region_t;

/* The key as it travels. */
typedef struct key_layout {
    uint64_t address;
    uint64_t length;
    uint32_t id;
    uint32_t generation;
} key_layout_t;

_Static_assert(sizeof(key_layout_t) == REGX_KEY_SIZE, "the key has no room to spare");

static key_layout_t key_read(const regx_key_t *key)
{
    key_layout_t layout;

    memcpy(&layout, key->bytes, sizeof(layout));
    layout.address = le64toh(layout.address);
    layout.length = le64toh(layout.length);
    layout.id = le32toh(layout.id);
    layout.generation = le32toh(layout.generation);
    return layout;
}

static void key_write(const region_t *region, regx_key_t *key)
{
    const key_layout_t layout = {.address = htole64((uint64_t)(uintptr_t)region->base),
                                 .length = htole64((uint64_t)region->length),
                                 .id = htole32(region->handle.id),
                                 .generation = htole32(region->handle.generation)};

    memcpy(key->bytes, &layout, sizeof(layout));
}

void regx_rkey_table_init(regx_rkey_table_t *table, bool threads)
{
    regx_lock_init(&table->lock, threads);
    regx_handle_table_init(&table->regions);
    table->count = 0;
}

void regx_rkey_table_fini(regx_rkey_table_t *table)
{
    for (uint32_t id = 0; id < table->regions.count; id++) {
        free(regx_handle_table_at(&table->regions, id));
    }
    regx_handle_table_fini(&table->regions);
    regx_lock_fini(&table->lock);
}

regx_status_t regx_rkey_table_add(regx_rkey_table_t *table, void *base, size_t length,
                                  unsigned access, regx_key_t *key, void **handle)
{
    region_t *region = malloc(sizeof(*region));
    bool added;

    if (region == NULL) {
        return REGX_NO_MEMORY;
    }
    *region = (region_t){.base = base, .length = length, .access = access};
    regx_lock(&table->lock);
    added = table->count < REGX_RKEY_TABLE_MAX &&
            regx_handle_table_add(&table->regions, region, &region->handle);
    table->count += added;
    regx_unlock(&table->lock);
    if (!added) {
        free(region);
        return REGX_NO_MEMORY;
    }
    key_write(region, key);
    *handle = region;
    return REGX_OK;
}

void regx_rkey_table_remove(regx_rkey_table_t *table, void *handle)
{
    region_t *region = handle;

    regx_lock(&table->lock);
    regx_handle_table_remove(&table->regions, region->handle);
    table->count--;
    regx_unlock(&table->lock);
    free(region);
}

regx_status_t regx_rkey_table_fill(regx_rkey_table_t *table, const regx_key_t *key, uint64_t offset,
                                   size_t length, regx_rkey_fill_t fill, void *context)
{
    const key_layout_t layout = key_read(key);
    const regx_handle_t handle = {.id = layout.id, .generation = layout.generation};
    regx_status_t status = REGX_INVALID;

    regx_lock(&table->lock);
    const region_t *region = regx_handle_table_find(&table->regions, handle);
    if (region != NULL && (region->access & REGX_ACCESS_REMOTE_WRITE) != 0 &&
        (uint64_t)(uintptr_t)region->base == layout.address && region->length == layout.length &&
        offset <= region->length && length <= region->length - offset) {
        fill(context, (char *)region->base + offset, length);
        status = REGX_OK;
    }
    regx_unlock(&table->lock);
    return status;
}

static void copy(void *data, void *to, size_t length)
{
    memcpy(to, data, length);
}

regx_status_t regx_rkey_table_write(regx_rkey_table_t *table, const regx_key_t *key,
                                    uint64_t offset, const void *data, size_t length)
{
    return regx_rkey_table_fill(table, key, offset, length, copy, (void *)(uintptr_t)data);
}

void regx_key_expose(const void *base, size_t length, regx_key_t *key)
{
    const region_t nobodys = {
        .base = (void *)(uintptr_t)base, .length = length, .handle = {.id = UINT32_MAX}};

    key_write(&nobodys, key);
}

uint64_t regx_key_address(const regx_key_t *key)
{
    return key_read(key).address;
}

uint64_t regx_key_length(const regx_key_t *key)
{
    return key_read(key).length;
}

void regx_key_mark(regx_key_t *key, regx_handle_t handle)
{
    const key_layout_t layout = key_read(key);
    const region_t nobodys = {
        .base = (void *)(uintptr_t)layout.address, .length = layout.length, .handle = handle};

    key_write(&nobodys, key);
}

regx_handle_t regx_key_handle(const regx_key_t *key)
{
    const key_layout_t layout = key_read(key);

    return (regx_handle_t){.id = layout.id, .generation = layout.generation};
}
