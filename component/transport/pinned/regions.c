/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and transfers to and from it.
 */
#include "transport/pinned/pinned.h"

#include <sched.h>
#include <string.h>

#if REGX_HAVE_PINNED

/* ---- transfers ---- */

/* Notes what has ended. The lock is held. */
static void reap_locked(regx_pinned_t *pinned)
{
    const regx_uring_copy_t *copy;

    while ((copy = regx_uring_done(&pinned->uring)) != NULL) {
        pinned->slots[copy->slot].transfers--;
    }
}

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

regx_status_t regx_pinned_copy_begin(regx_pinned_t *pinned, regx_uring_copy_t *copy, bool to_file,
                                     const regx_pinned_key_t *key, uint64_t offset, uint32_t length,
                                     unsigned access, const regx_pinned_cells_t *cells,
                                     uint32_t number)
{
    regx_status_t status = REGX_DENIED;

    regx_lock(&pinned->lock);
    regx_pinned_slot_t *slot = find_locked(pinned, key, offset, length, access);
    if (slot != NULL && length == 0) {
        status = REGX_OK;
    } else if (slot != NULL && !regx_file_is_ours(&cells->file)) {
        status = REGX_FAILED;
    } else if (slot != NULL) {
        status = regx_uring_begin(&pinned->uring, copy, to_file, key->slot, slot->base + offset,
                                  length, cells->file.fd, regx_pinned_cell(number));
        slot->transfers += status == REGX_PENDING;
        reap_locked(pinned);
    }
    regx_unlock(&pinned->lock);
    pinned->copied += status == REGX_PENDING ? length : 0;
    return status;
}

bool regx_pinned_copy_ended(regx_pinned_t *pinned, const regx_uring_copy_t *copy)
{
    regx_lock(&pinned->lock);
    if (copy->under_way) {
        reap_locked(pinned);
    }
    const bool ended = !copy->under_way;
    regx_unlock(&pinned->lock);
    return ended;
}

/* A copy of a piece at most. */
void regx_pinned_copy_await(regx_pinned_t *pinned, const regx_uring_copy_t *copy)
{
    while (!regx_pinned_copy_ended(pinned, copy)) {
        sched_yield();
    }
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

/* From the first line on no transfer begins; then those under way end. */
void regx_pinned_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    regx_pinned_slot_t *slot = mr->handle;
    const uint32_t number = (uint32_t)(slot - pinned->slots);

    regx_lock(&pinned->lock);
    slot->used = false;
    slot->generation++;
    while (slot->transfers > 0) {
        reap_locked(pinned);
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
