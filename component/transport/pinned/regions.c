/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is registered, and transfers to and from it.
 */
#include "transport/pinned/pinned.h"

#include <string.h>

#if REGX_HAVE_PINNED

/* ---- transfers ---- */

regx_status_t regx_pinned_copy(regx_pinned_t *pinned, bool to_file, const regx_pinned_key_t *key,
                               uint64_t offset, uint32_t length, unsigned access,
                               const regx_file_t *cells, uint32_t number)
{
    const uint64_t cell = (uint64_t)(number % REGX_PINNED_CELLS) * REGX_PINNED_PIECE_MAX;
    const regx_handle_t name = {.id = key->slot, .generation = key->generation};
    regx_status_t status = REGX_DENIED;

    regx_lock(&pinned->lock);
    const regx_pinned_slot_t *slot =
        regx_handle_table_find(&pinned->names, name) != NULL ? &pinned->slots[name.id] : NULL;
    /* A child of fork has none: the ring is its parent's, and is not mapped there. */
    if (slot != NULL && !pinned->shm->super.forked && regx_within(offset, length, slot->length) &&
        (access == 0 || (slot->access & access) != 0)) {
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

/* ---- what a registration is to take: pinning by io_uring takes less than registering with an adapter,
 * which has tables of its own to fill in ---- */

#define PAGE 4096u       /* bytes, whatever the machine's are: profiles are of such */
#define MOST 1000000000u /* ns of one registration, and of one page */

/* Each with its source. */
static const struct {
    const char *name;
    regx_pin_cost_t cost;
} profiles[] = {
    /* UCX, src/uct/ib/base/ib_md.c: MEM_REG_OVERHEAD 16us, MEM_REG_GROWTH 0.06ns (a byte): what it
     * reckons with where a device says nothing. */
    {"ucx", {.call = 16000, .page = 246}},
    /* ibv_reg_mr takes 93 us on average (rdma-core, pull request 767); 500 GB take 49.2 s, which is
     * 375 ns a page (Mooncake, pull request 855): osu-configs/pin-costs.md. */
    {"nic", {.call = 93000, .page = 375}},
};

bool regx_pin_cost_read(const char *text, regx_pin_cost_t *cost, regx_error_t error)
{
    unsigned long call, page;
    int end = 0;

    *cost = (regx_pin_cost_t){0, 0};
    if (*text == '\0' || strcmp(text, "none") == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
        if (strcmp(text, profiles[i].name) == 0) {
            *cost = profiles[i].cost;
            return true;
        }
    }
    /* sscanf would take signs and blanks as well. */
    if (strspn(text, "0123456789:") == strlen(text) &&
        sscanf(text, "%10lu:%10lu%n", &call, &page, &end) == 2 && text[end] == '\0' &&
        call <= MOST && page <= MOST) {
        *cost = (regx_pin_cost_t){.call = (uint32_t)call, .page = (uint32_t)page};
        return true;
    }
    regx_option_refuse("pin_cost", text,
                       "none, ucx, nic, CALL:PAGE (ns of a registration, and more for each page)",
                       error);
    return false;
}

/* ---- regions ---- */

static void free_slot(regx_pinned_t *pinned, uint32_t number)
{
    regx_lock(&pinned->lock);
    regx_handle_table_remove(&pinned->names, (regx_handle_t){.id = number});
    regx_unlock(&pinned->lock);
}

regx_status_t regx_pinned_reg(regx_transport_t *transport, void *base, size_t length,
                              unsigned access, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    const regx_pin_cost_t *cost = &pinned->cost;
    regx_handle_t name;

    if ((access & REGX_ACCESS_ON_DEMAND) != 0 || transport->forked) {
        return REGX_INVALID;
    }
    if (length > REGX_URING_PIN_MAX) {
        return REGX_DENIED;
    }
    /* A region's name begins with the number of its slot. The table only compares: that the object is there. */
    regx_lock(&pinned->lock);
    bool taken = regx_handle_table_add(&pinned->names, pinned, &name);
    if (taken && name.id >= transport->mr_count) { /* there is no free slot */
        regx_handle_table_remove(&pinned->names, name);
        taken = false;
    }
    regx_unlock(&pinned->lock);
    if (!taken) {
        return REGX_NO_MEMORY;
    }
    const int64_t begun = regx_now_ns();
    const int refused = regx_uring_set(&pinned->uring, name.id, base, length);
    if (refused != 0) { /* ENOMEM: the limit of locked memory */
        free_slot(pinned, name.id);
        return refused == -ENOMEM || refused == -EAGAIN ? REGX_NO_MEMORY : REGX_DENIED;
    }
    if (cost->call != 0 || cost->page != 0) {
        const uintptr_t start = (uintptr_t)base & ~(uintptr_t)(PAGE - 1);
        const uint64_t pages = ((uintptr_t)base + length - start + PAGE - 1) / PAGE;
        const int64_t until = begun + cost->call + (int64_t)(pages * cost->page);

        /* Spins: a pipeline may hide it, or not, as it does with an adapter. */
        while (regx_now_ns() < until) {
        }
    }
    regx_pinned_slot_t *slot = &pinned->slots[name.id];
    const regx_pinned_key_t key = {
        .slot = name.id, .generation = name.generation, .length = length};
    regx_lock(&pinned->lock);
    *slot = (regx_pinned_slot_t){.access = access, .base = (uintptr_t)base, .length = length};
    regx_unlock(&pinned->lock);
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = slot};
    memcpy(mr->key.bytes, &key, sizeof(key));
    return REGX_OK;
}

/* Once the slot is empty no transfer begins. One that is under way has the lock. In a child of fork the
 * slot is still its parent's. */
void regx_pinned_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_pinned_t *pinned = regx_pinned_of(transport);
    regx_pinned_slot_t *slot = mr->handle;
    const uint32_t number = (uint32_t)(slot - pinned->slots);

    if (transport->forked) {
        return;
    }
    regx_lock(&pinned->lock);
    *slot = (regx_pinned_slot_t){.length = 0};
    regx_unlock(&pinned->lock);
    regx_uring_set(&pinned->uring, number, NULL, 0);
    free_slot(pinned, number);
}

#endif
