/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and transfers to and from it.
 */
#include "transport/pinned/pinned.h"

#include <sched.h>
#include <string.h>

#if REGX_HAVE_PINNED

/* ---- transfers ---- */

/* The slot that the key names, if that range is in its region. */
static regx_pinned_slot_t *find_locked(regx_pinned_t *pinned, const regx_pinned_key_t *key,
                                       uint64_t offset, uint32_t length, unsigned access)
{
    regx_pinned_slot_t *slot =
        key->slot < pinned->super.mr_count ? &pinned->slots[key->slot] : NULL;

    return slot != NULL && slot->used && slot->generation == key->generation &&
                   regx_within(offset, length, slot->length) &&
                   (access == 0 || (slot->access & access) != 0)
               ? slot
               : NULL;
}

regx_status_t regx_pinned_copy(regx_pinned_t *pinned, bool to_file, const regx_pinned_key_t *key,
                               uint64_t offset, uint32_t length, unsigned access,
                               const regx_pinned_cells_t *cells, uint32_t number)
{
    regx_status_t status = REGX_OK;

    regx_lock(&pinned->lock);
    regx_pinned_slot_t *slot = find_locked(pinned, key, offset, length, access);
    if (slot != NULL) {
        slot->transfers++;
    }
    regx_unlock(&pinned->lock);
    if (slot == NULL) {
        return REGX_DENIED;
    }
    if (length > 0) {
        status = regx_file_is_ours(&cells->file)
                     ? regx_uring_copy(&pinned->uring, to_file, key->slot, slot->base + offset,
                                       length, cells->file.fd, regx_pinned_cell(number))
                     : REGX_FAILED;
    }
    regx_lock(&pinned->lock);
    slot->transfers--;
    regx_unlock(&pinned->lock);
    pinned->copied += status == REGX_OK ? length : 0;
    if (status == REGX_FAILED) {
        regx_transport_fall_back(&pinned->config, REGX_TRACE_PATH, "pinned: a transfer has failed");
    }
    return status;
}

/* ---- regions ---- */

regx_status_t regx_pinned_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    uint32_t number = UINT32_MAX;

    if ((access & REGX_ACCESS_ON_DEMAND) != 0) {
        return REGX_INVALID;
    }
    if (length > REGX_URING_PIN_MAX) {
        return REGX_DENIED;
    }
    regx_lock(&pinned->lock);
    if (pinned->free_count > 0) {
        number = pinned->free_slots[--pinned->free_count];
    }
    regx_unlock(&pinned->lock);
    if (number == UINT32_MAX) {
        return REGX_NO_MEMORY;
    }
    const int64_t begun = regx_now_ns();
    const int refused = regx_uring_pin(&pinned->uring, number, base, length);
    if (refused == 0) {
        regx_pin_cost_spend(&pinned->cost, begun, base, length);
    }
    regx_pinned_slot_t *slot = &pinned->slots[number];
    regx_lock(&pinned->lock);
    if (refused != 0) {
        pinned->free_slots[pinned->free_count++] = number;
    } else {
        *slot = (regx_pinned_slot_t){.generation = slot->generation,
                                     .used = true,
                                     .access = access,
                                     .base = (uintptr_t)base,
                                     .length = length};
    }
    const regx_pinned_key_t key = {
        .slot = number, .generation = slot->generation, .length = length};
    regx_unlock(&pinned->lock);
    if (refused != 0) { /* ENOMEM: the limit of locked memory */
        return refused == -ENOMEM || refused == -EAGAIN ? REGX_NO_MEMORY : REGX_DENIED;
    }
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = slot};
    memcpy(mr->key.bytes, &key, sizeof(key));
    return REGX_OK;
}

/* Once the slot is marked no transfer begins; one of progress's thread that is under way ends soon. */
void regx_pinned_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    regx_pinned_slot_t *slot = mr->handle;
    const uint32_t number = (uint32_t)(slot - pinned->slots);

    regx_lock(&pinned->lock);
    slot->used = false;
    slot->generation++;
    while (slot->transfers > 0) {
        regx_unlock(&pinned->lock);
        sched_yield();
        regx_lock(&pinned->lock);
    }
    regx_unlock(&pinned->lock);
    regx_uring_unpin(&pinned->uring, number);
    regx_lock(&pinned->lock);
    pinned->free_slots[pinned->free_count++] = number;
    regx_unlock(&pinned->lock);
}

#endif
