/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and transfers to and from it.
 */
#include "transport/pinned/pinned.h"

#include <string.h>

#if REGX_HAVE_PINNED

/* ---- transfers ---- */

/* The slot that the key names, if that range is in its region. */
static const regx_pinned_slot_t *find_locked(const regx_pinned_t *pinned,
                                             const regx_pinned_key_t *key, uint64_t offset,
                                             uint32_t length, unsigned access)
{
    const regx_pinned_slot_t *slot =
        key->slot < pinned->shm->super.mr_count ? &pinned->slots[key->slot] : NULL;

    return slot != NULL && slot->used && slot->generation == key->generation &&
                   regx_within(offset, length, slot->length) &&
                   (access == 0 || (slot->access & access) != 0)
               ? slot
               : NULL;
}

regx_status_t regx_pinned_copy(regx_pinned_t *pinned, bool to_file, const regx_pinned_key_t *key,
                               uint64_t offset, uint32_t length, unsigned access,
                               const regx_file_t *cells, uint32_t number)
{
    const uint64_t cell = (uint64_t)(number % REGX_PINNED_CELLS) * REGX_PINNED_PIECE_MAX;
    regx_status_t status = REGX_DENIED;

    regx_lock(&pinned->lock);
    const regx_pinned_slot_t *slot = find_locked(pinned, key, offset, length, access);
    if (slot != NULL) {
        status = length == 0 || (regx_file_is_ours(cells) &&
                                 regx_uring_copy(&pinned->uring, to_file, key->slot,
                                                 slot->base + offset, length, cells->fd, cell))
                     ? REGX_OK
                     : REGX_FAILED;
    }
    regx_unlock(&pinned->lock);
    if (status == REGX_FAILED) {
        regx_transport_fall_back(&pinned->shm->config, REGX_TRACE_PATH,
                                 "pinned: a transfer has failed");
    }
    return status;
}

/* ---- regions ---- */

static void free_slot(regx_pinned_t *pinned, uint32_t number)
{
    regx_lock(&pinned->lock);
    pinned->slots[number].next = pinned->free;
    pinned->free = number;
    regx_unlock(&pinned->lock);
}

regx_status_t regx_pinned_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);

    if ((access & REGX_ACCESS_ON_DEMAND) != 0) {
        return REGX_INVALID;
    }
    if (length > REGX_URING_PIN_MAX) {
        return REGX_DENIED;
    }
    regx_lock(&pinned->lock);
    const uint32_t number = pinned->free;
    if (number != UINT32_MAX) {
        pinned->free = pinned->slots[number].next;
    }
    regx_unlock(&pinned->lock);
    if (number == UINT32_MAX) {
        return REGX_NO_MEMORY;
    }
    const int64_t begun = regx_now_ns();
    const int refused = regx_uring_set(&pinned->uring, number, base, length);
    if (refused != 0) { /* ENOMEM: the limit of locked memory */
        free_slot(pinned, number);
        return refused == -ENOMEM || refused == -EAGAIN ? REGX_NO_MEMORY : REGX_DENIED;
    }
    regx_pin_cost_spend(&pinned->cost, begun, base, length);
    regx_pinned_slot_t *slot = &pinned->slots[number];
    const regx_pinned_key_t key = {
        .slot = number, .generation = slot->generation, .length = length};
    regx_lock(&pinned->lock);
    *slot = (regx_pinned_slot_t){.generation = key.generation,
                                 .used = true,
                                 .access = access,
                                 .base = (uintptr_t)base,
                                 .length = length};
    regx_unlock(&pinned->lock);
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = slot};
    memcpy(mr->key.bytes, &key, sizeof(key));
    return REGX_OK;
}

/* Once the slot is marked no transfer begins. One that is under way has the lock. */
void regx_pinned_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    regx_pinned_slot_t *slot = mr->handle;
    const uint32_t number = (uint32_t)(slot - pinned->slots);

    regx_lock(&pinned->lock);
    slot->used = false;
    slot->generation++;
    regx_unlock(&pinned->lock);
    regx_uring_set(&pinned->uring, number, NULL, 0);
    free_slot(pinned, number);
}

#endif
