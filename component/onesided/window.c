/* SPDX-License-Identifier: BSD-3-Clause */
#include "onesided/window.h"

#include <stdlib.h>
#include <string.h>

#include "base/little_endian.h"

#define VERSION 2
#define KIND 254
#define HAS_KEY 1u
#define HAS_ATOMICS 2u

_Static_assert(40 + REGX_KEY_SIZE == REGX_WINDOW_NAME_SIZE, "the key is the end of a name");

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
    memset(bytes, 0, REGX_WINDOW_NAME_SIZE);
    bytes[0] = VERSION;
    bytes[1] = KIND;
    regx_le_put(bytes + 4, window->handle.id, 4);
    regx_le_put(bytes + 8, window->handle.generation, 4);
    regx_le_put(bytes + 16, (uintptr_t)window->base, 8);
    regx_le_put(bytes + 24, window->length, 8);
    if (window->registered) {
        const regx_mr_t *mr = window->use.region.mr;
        const bool has_atomics = (mr->access & REGX_ACCESS_REMOTE_ATOMIC) != 0;

        regx_le_put(bytes + 2, HAS_KEY | (has_atomics ? HAS_ATOMICS : 0), 2);
        regx_le_put(bytes + 32, (uint64_t)(window->base - (char *)mr->base), 8);
        memcpy(bytes + 40, mr->key.bytes, REGX_KEY_SIZE);
    }
}

bool regx_window_is(const uint8_t bytes[REGX_WINDOW_NAME_SIZE])
{
    return bytes[0] == VERSION && bytes[1] == KIND;
}

void regx_window_unpack(const uint8_t bytes[REGX_WINDOW_NAME_SIZE], regx_window_name_t *name)
{
    const uint64_t flags = regx_le_get(bytes + 2, 2);

    name->handle.id = (uint32_t)regx_le_get(bytes + 4, 4);
    name->handle.generation = (uint32_t)regx_le_get(bytes + 8, 4);
    name->base = regx_le_get(bytes + 16, 8);
    name->length = regx_le_get(bytes + 24, 8);
    name->has_key = (flags & HAS_KEY) != 0;
    name->has_atomics = name->has_key && (flags & HAS_ATOMICS) != 0;
    name->offset = regx_le_get(bytes + 32, 8);
    memcpy(name->key.bytes, bytes + 40, REGX_KEY_SIZE);
}
