/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/uct/door.h"

enum { FREE, CLAIMED, READY };

regx_status_t regx_door_knock(regx_door_t *door, const regx_hello_t *hello)
{
    for (int i = 0; i < REGX_DOOR_ENTRIES; i++) {
        uint32_t expected = FREE;

        if (atomic_compare_exchange_strong(&door->entries[i].state, &expected, CLAIMED)) {
            door->entries[i].hello = *hello;
            atomic_store_explicit(&door->entries[i].state, READY, memory_order_release);
            atomic_fetch_add_explicit(&door->rung, 1, memory_order_release);
            return REGX_OK;
        }
    }
    return REGX_AGAIN;
}

regx_status_t regx_door_answer(regx_door_t *door, uint64_t *seen, regx_hello_t *hello)
{
    if (!regx_door_has_rung(door, *seen)) {
        return REGX_AGAIN;
    }
    for (int i = 0; i < REGX_DOOR_ENTRIES; i++) {
        if (atomic_load_explicit(&door->entries[i].state, memory_order_acquire) == READY) {
            *hello = door->entries[i].hello;
            atomic_store_explicit(&door->entries[i].state, FREE, memory_order_release);
            ++*seen;
            return REGX_OK;
        }
    }
    return REGX_AGAIN;
}
