/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/rkey_table.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

struct regx_window {
    void *base;
    size_t length;
    unsigned access; /* 0: the slot is free */
    uint32_t generation;
    uint32_t next; /* free slot, while this one is free */
};

/* The key as it travels. */
typedef struct key_layout {
    uint64_t address;
    uint64_t length;
    uint32_t slot;
    uint32_t generation;
} key_layout_t;

_Static_assert(sizeof(key_layout_t) == REGX_KEY_SIZE, "the key has no room to spare");

/* An open window has at least this bit, so that `access` 0 means a free slot. */
#define WINDOW_OPEN (1u << 31)

static key_layout_t key_read(const regx_key_t *key)
{
    key_layout_t layout;

    memcpy(&layout, key->bytes, sizeof(layout));
    layout.address = le64toh(layout.address);
    layout.length = le64toh(layout.length);
    layout.slot = le32toh(layout.slot);
    layout.generation = le32toh(layout.generation);
    return layout;
}

void regx_rkey_table_init(regx_rkey_table_t *rkeys, bool threads)
{
    regx_lock_init(&rkeys->lock, threads);
    rkeys->slots = NULL;
    rkeys->count = 0;
    rkeys->free = 0;
}

void regx_rkey_table_fini(regx_rkey_table_t *rkeys)
{
    regx_lock_fini(&rkeys->lock);
    free(rkeys->slots);
    rkeys->slots = NULL;
    rkeys->count = 0;
    rkeys->free = 0;
}

/* Doubles the table; the new slots become the free list. Called with the lock held, when no slot
 * is free. */
static regx_status_t windows_grow(regx_rkey_table_t *rkeys)
{
    uint32_t count = rkeys->count == 0 ? REGX_WINDOWS_FIRST : rkeys->count * 2;
    regx_window_t *slots;

    if (count > REGX_RKEY_TABLE_MAX) {
        return REGX_NO_MEMORY;
    }
    slots = realloc(rkeys->slots, count * sizeof(*slots));
    if (slots == NULL) {
        return REGX_NO_MEMORY;
    }
    for (uint32_t slot = rkeys->count; slot < count; slot++) {
        slots[slot] = (regx_window_t){.next = slot + 1};
    }
    rkeys->free = rkeys->count;
    rkeys->slots = slots;
    rkeys->count = count;
    return REGX_OK;
}

regx_status_t regx_rkey_table_add(regx_rkey_table_t *rkeys, void *base, size_t length, unsigned access,
                               regx_key_t *key, void **handle)
{
    regx_window_t *window;
    key_layout_t layout;
    uint32_t slot;

    regx_lock(&rkeys->lock);
    if (rkeys->free == rkeys->count && windows_grow(rkeys) != REGX_OK) {
        regx_unlock(&rkeys->lock);
        return REGX_NO_MEMORY;
    }
    slot = rkeys->free;
    window = &rkeys->slots[slot];
    rkeys->free = window->next;
    window->base = base;
    window->length = length;
    window->access = access | WINDOW_OPEN;
    layout.generation = htole32(window->generation);
    regx_unlock(&rkeys->lock);

    layout.address = htole64((uint64_t)(uintptr_t)base);
    layout.length = htole64((uint64_t)length);
    layout.slot = htole32(slot);
    memcpy(key->bytes, &layout, sizeof(layout));
    /* The slots move when the table grows, so the handle is a number; NULL stays free to mean
     * "none". */
    *handle = (void *)((uintptr_t)slot + 1);
    return REGX_OK;
}

void regx_rkey_table_remove(regx_rkey_table_t *rkeys, void *handle)
{
    uint32_t slot = (uint32_t)((uintptr_t)handle - 1);
    regx_window_t *window;

    regx_lock(&rkeys->lock);
    window = &rkeys->slots[slot];
    window->access = 0;
    window->generation++;
    window->next = rkeys->free;
    rkeys->free = slot;
    regx_unlock(&rkeys->lock);
}

regx_status_t regx_rkey_table_write(regx_rkey_table_t *rkeys, const regx_key_t *key, uint64_t offset,
                                 const void *data, size_t length)
{
    key_layout_t layout = key_read(key);
    regx_status_t status = REGX_INVALID;

    regx_lock(&rkeys->lock);
    if (layout.slot < rkeys->count) {
        const regx_window_t *window = &rkeys->slots[layout.slot];

        if ((window->access & REGX_ACCESS_REMOTE_WRITE) != 0 &&
            window->generation == layout.generation &&
            (uint64_t)(uintptr_t)window->base == layout.address &&
            window->length == layout.length && offset <= window->length &&
            length <= window->length - offset) {
            memcpy((char *)window->base + offset, data, length);
            status = REGX_OK;
        }
    }
    regx_unlock(&rkeys->lock);
    return status;
}

uint64_t regx_key_address(const regx_key_t *key)
{
    return key_read(key).address;
}

uint64_t regx_key_length(const regx_key_t *key)
{
    return key_read(key).length;
}
