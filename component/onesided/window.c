/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/window.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2
#define KIND 254
#define HAS_KEY 1u
#define HAS_ATOMICS 2u

/* As it travels. */
typedef struct layout {
    uint8_t version, kind;
    uint16_t flags;
    uint32_t id, generation;
    uint32_t more_zero;
    uint64_t base, length, offset;
    regx_key_t key;
} layout_t;

_Static_assert(sizeof(layout_t) == REGX_WINDOW_NAME_SIZE, "a name has no holes");

void regx_windows_init(regx_windows_t *windows)
{
    regx_handle_table_init(&windows->table);
    windows->count = 0;
}

regx_window_t *regx_windows_next(const regx_windows_t *windows, uint32_t *index)
{
    regx_window_t *window = NULL;

    while (window == NULL && *index < windows->table.count) {
        window = regx_handle_table_at(&windows->table, (*index)++);
    }
    return window;
}

void regx_windows_fini(regx_windows_t *windows)
{
    uint32_t index = 0;

    for (regx_window_t *window; (window = regx_windows_next(windows, &index)) != NULL;) {
        free(window);
    }
    regx_handle_table_fini(&windows->table);
}

regx_status_t regx_window_offer(regx_windows_t *windows, void *base, size_t length,
                                regx_window_t **out)
{
    regx_window_t *window = malloc(sizeof(*window));

    if (window == NULL) {
        return REGX_NO_MEMORY;
    }
    window->base = base;
    window->length = length;
    window->registered = false;
    if (windows->count >= REGX_WINDOWS_MAX ||
        !regx_handle_table_add(&windows->table, window, &window->handle)) {
        free(window);
        return REGX_NO_MEMORY;
    }
    windows->count++;
    *out = window;
    return REGX_OK;
}

void regx_window_withdraw(regx_windows_t *windows, regx_window_t *window)
{
    regx_handle_table_remove(&windows->table, window->handle);
    windows->count--;
    free(window);
}

char *regx_window_memory(const regx_windows_t *windows, regx_handle_t handle, uint64_t address,
                         uint64_t length)
{
    const regx_window_t *window = regx_handle_table_find(&windows->table, handle);

    if (window == NULL ||
        !regx_window_holds((uintptr_t)window->base, window->length, address, length)) {
        return NULL;
    }
    return window->base + (address - (uintptr_t)window->base);
}

void regx_window_pack(const regx_window_t *window, uint8_t bytes[REGX_WINDOW_NAME_SIZE])
{
    layout_t layout = {.version = VERSION,
                       .kind = KIND,
                       .id = htole32(window->handle.id),
                       .generation = htole32(window->handle.generation),
                       .base = htole64((uintptr_t)window->base),
                       .length = htole64(window->length)};

    if (window->registered) {
        const regx_mr_t *mr = window->use.region.mr;

        layout.flags =
            htole16(HAS_KEY | ((mr->access & REGX_ACCESS_REMOTE_ATOMIC) != 0 ? HAS_ATOMICS : 0));
        layout.offset = htole64((uint64_t)(window->base - (char *)mr->base));
        layout.key = mr->key;
    }
    memcpy(bytes, &layout, sizeof(layout));
}

bool regx_window_is(const uint8_t bytes[REGX_WINDOW_NAME_SIZE])
{
    return bytes[0] == VERSION && bytes[1] == KIND;
}

void regx_window_unpack(const uint8_t bytes[REGX_WINDOW_NAME_SIZE], regx_window_name_t *name)
{
    layout_t layout;

    memcpy(&layout, bytes, sizeof(layout));
    name->handle.id = le32toh(layout.id);
    name->handle.generation = le32toh(layout.generation);
    name->base = le64toh(layout.base);
    name->length = le64toh(layout.length);
    name->has_key = (le16toh(layout.flags) & HAS_KEY) != 0;
    name->has_atomics = name->has_key && (le16toh(layout.flags) & HAS_ATOMICS) != 0;
    name->offset = le64toh(layout.offset);
    name->key = layout.key;
}
