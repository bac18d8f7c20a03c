/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rkey_table.h"

#include <stdlib.h>

#include "base/little_endian.h"

typedef struct region {
    void *base;
    size_t length;
    unsigned access;
    regx_handle_t handle;
} region_t;

/* What a key holds. */
typedef struct contents {
    uint64_t address;
    uint64_t length;
    regx_handle_t handle;
} contents_t;

_Static_assert(REGX_KEY_SIZE == 24, "the key has no room to spare");

static contents_t key_read(const regx_key_t *key)
{
    return (contents_t){.address = regx_le_get(key->bytes, 8),
                        .length = regx_le_get(key->bytes + 8, 8),
                        .handle = {.id = (uint32_t)regx_le_get(key->bytes + 16, 4),
                                   .generation = (uint32_t)regx_le_get(key->bytes + 20, 4)}};
}

static void key_write(uint64_t address, uint64_t length, regx_handle_t handle, regx_key_t *key)
{
    regx_le_put(key->bytes, address, 8);
    regx_le_put(key->bytes + 8, length, 8);
    regx_le_put(key->bytes + 16, handle.id, 4);
    regx_le_put(key->bytes + 20, handle.generation, 4);
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
    key_write((uintptr_t)base, length, region->handle, key);
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
    const contents_t named = key_read(key);
    regx_status_t status = REGX_INVALID;

    regx_lock(&table->lock);
    const region_t *region = regx_handle_table_find(&table->regions, named.handle);
    if (region != NULL && (region->access & REGX_ACCESS_REMOTE_WRITE) != 0 &&
        (uint64_t)(uintptr_t)region->base == named.address && region->length == named.length &&
        offset <= region->length && length <= region->length - offset) {
        fill(context, (char *)region->base + offset, length);
        status = REGX_OK;
    }
    regx_unlock(&table->lock);
    return status;
}

void regx_key_expose(const void *base, size_t length, regx_key_t *key)
{
    key_write((uintptr_t)base, length, (regx_handle_t){.id = UINT32_MAX}, key);
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
    key_write(regx_key_address(key), regx_key_length(key), handle, key);
}

regx_handle_t regx_key_handle(const regx_key_t *key)
{
    return key_read(key).handle;
}
