/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owned memory: what MPI_Alloc_mem gave, registered once, for its life (registry.h).
 */
#include "registration/owned.h"

#include <assert.h>
#include <search.h>
#include <signal.h>
#include <stdlib.h>

#include "base/fault.h"
#include "registration/once.h"

#define EVERY_ACCESS (REGX_ACCESS_LOCAL | REGX_ACCESS_ANY_WRITE | REGX_ACCESS_REMOTE_READ)

/* A block with one device. */
typedef struct owned_mr {
    struct owned_mr *next;
    regx_registry_t *registry;
    bool ready; /* else it was refused, or is being registered */
    regx_mr_t mr;
} owned_mr_t;

struct regx_owned_block {
    regx_link_t link; /* in the list */
    uintptr_t start;
    size_t length;
    uint64_t uses;
    bool freed;
    /* Uses that pass until it is tried again, since there was no room; and at the last refusal. */
    uint64_t left, pause;
    owned_mr_t *mrs;
};

#define PAUSE_MAX UINT64_C(1024)

void regx_owned_init(regx_owned_t *owned, bool threads,
                     void (*give_back)(void *base, size_t length))
{
    *owned = (regx_owned_t){.low = UINTPTR_MAX, .give_back = give_back};
    regx_list_init(&owned->list);
    regx_lock_init(&owned->lock, threads);
}

void regx_owned_fini(regx_owned_t *owned)
{
    tdestroy(owned->blocks, free);
    regx_lock_fini(&owned->lock);
    *owned = (regx_owned_t){.low = 0};
}

/* Blocks that share an address are the same. */
static int compare(const void *one, const void *other)
{
    const regx_owned_block_t *a = one, *b = other;

    if (a->start + a->length <= b->start) {
        return -1;
    }
    return a->start >= b->start + b->length;
}

bool regx_owned_add(regx_owned_t *owned, void *base, size_t length)
{
    regx_owned_block_t *block = malloc(sizeof(*block));

    if (block == NULL) {
        return false;
    }
    *block = (regx_owned_block_t){.start = (uintptr_t)base, .length = length};
    regx_lock(&owned->lock);
    const bool added = tsearch(block, &owned->blocks, compare) != NULL;
    if (added) {
        regx_list_append(&owned->list, &block->link);
        owned->low = regx_min(owned->low, block->start);
        owned->high = regx_max(owned->high, block->start + block->length);
    }
    regx_unlock(&owned->lock);
    if (!added) {
        free(block);
    }
    return added;
}

/* The block that has all of those bytes, and is not freed; NULL: none. */
static regx_owned_block_t *find_locked(const regx_owned_t *owned, const void *base, size_t length)
{
    const regx_owned_block_t first = {.start = (uintptr_t)base, .length = 1};
    regx_owned_block_t *const *found = tfind(&first, &owned->blocks, compare);
    regx_owned_block_t *block = found != NULL ? *found : NULL;

    return block != NULL && !block->freed &&
                   regx_within((uintptr_t)base - block->start, length, block->length)
               ? block
               : NULL;
}

static owned_mr_t **mr_locked(regx_owned_block_t *block, const regx_registry_t *registry)
{
    owned_mr_t **at = &block->mrs;

    while (*at != NULL && (*at)->registry != registry) {
        at = &(*at)->next;
    }
    return at;
}

/* Whether it may be registered, too. Half of the device's regions are left to other memory. */
static bool fits_locked(const regx_registry_t *registry, const regx_owned_block_t *block)
{
    const uint64_t most = registry->transport->mr_count;

    return block->left == 0 &&
           regx_within(registry->owned_bytes, block->length, registry->owned_max) &&
           (most == 0 || registry->owned_count < most / 2);
}

/* It is in no list any more. What a child of fork has of it is its parent's. */
static void end_mr(owned_mr_t *made, size_t length)
{
    regx_registry_t *registry = made->registry;

    if (made->ready) {
        if (!registry->transport->forked) {
            regx_mr_deregister(registry, &made->mr);
        }
        regx_lock(&registry->owned->lock);
        registry->owned_bytes -= length;
        registry->owned_count--;
        regx_unlock(&registry->owned->lock);
    }
    free(made);
}

void regx_owned_release(regx_owned_t *owned, regx_owned_block_t *block)
{
    regx_lock(&owned->lock);
    const bool last = --block->uses == 0 && block->freed;
    if (last) {
        tdelete(block, &owned->blocks, compare);
        regx_list_remove(&block->link);
    }
    regx_unlock(&owned->lock);
    if (!last) {
        return;
    }
    for (owned_mr_t *made = block->mrs, *next; made != NULL; made = next) {
        next = made->next;
        end_mr(made, block->length);
    }
    owned->give_back((void *)block->start, block->length);
    free(block);
}

void regx_owned_free(regx_owned_t *owned, const void *base)
{
    regx_lock(&owned->lock);
    regx_owned_block_t *block = find_locked(owned, base, 0);
    if (block != NULL) {
        assert(block->start == (uintptr_t)base);
        block->freed = true;
        block->uses++;
    }
    regx_unlock(&owned->lock);
    if (block != NULL) {
        regx_owned_release(owned, block);
    }
}

bool regx_owned_acquire(regx_registry_t *registry, const void *base, size_t length, bool registers,
                        regx_region_t *region)
{
    regx_owned_t *owned = registry->owned;
    const bool handled = regx_fault_has_handler(SIGSEGV);
    bool begins = false;

    regx_lock(&owned->lock);
    regx_owned_block_t *block = find_locked(owned, base, length);
    owned_mr_t *made = block != NULL && !handled ? *mr_locked(block, registry) : NULL;
    if (made == NULL && block != NULL && registers && !handled) { /* to be registered, if it may */
        made = fits_locked(registry, block) ? malloc(sizeof(*made)) : NULL;
        begins = made != NULL;
        block->left -= block->left > 0;
    }
    if (begins) {
        *made = (owned_mr_t){.next = block->mrs, .registry = registry};
        block->mrs = made;
        registry->owned_bytes += block->length;
        registry->owned_count++;
    }
    const bool served = made != NULL && (begins || made->ready);
    if (served) {
        block->uses++;
    }
    regx_unlock(&owned->lock);
    if (handled && registers && block != NULL) {
        regx_tally(registry->counters->fallbacks, "MPI_Alloc_mem: SIGSEGV is handled");
    }
    if (begins) {
        const regx_status_t status = regx_mr_register(registry, (void *)block->start, block->length,
                                                      EVERY_ACCESS, &made->mr);

        regx_lock(&owned->lock);
        made->ready = status == REGX_OK;
        if (!made->ready) {
            registry->owned_bytes -= block->length;
            registry->owned_count--;
        }
        if (status == REGX_NO_MEMORY) {
            /* It may pass, but each attempt may take long: the pauses between them become longer. */
            *mr_locked(block, registry) = made->next;
            free(made);
            block->pause = regx_min(2 * block->pause + 1, PAUSE_MAX);
            block->left = block->pause;
        }
        regx_unlock(&owned->lock);
        if (status != REGX_OK) {
            regx_owned_release(owned, block);
            return false;
        }
    }
    if (served) {
        region->mr = &made->mr;
        region->kept = 0;
        region->owned = block;
        regx_count(registry->counters, &registry->counters->uses_owned, 1);
    }
    return served;
}

bool regx_owned_seems_kept(const regx_registry_t *registry, const void *base, size_t length)
{
    regx_lock(&registry->owned->lock);
    regx_owned_block_t *block = find_locked(registry->owned, base, length);
    const owned_mr_t *made = block != NULL ? *mr_locked(block, registry) : NULL;
    const bool kept = block != NULL && (made == NULL ? fits_locked(registry, block) : made->ready);
    regx_unlock(&registry->owned->lock);
    return kept && !regx_fault_has_handler(SIGSEGV);
}

/* There may be no list yet. */
void regx_owned_close(regx_registry_t *registry)
{
    const regx_link_t *list = &registry->owned->list;

    for (regx_link_t *at = list->next; at != NULL && at != list; at = at->next) {
        regx_owned_block_t *block = REGX_CONTAINER_OF(at, regx_owned_block_t, link);
        owned_mr_t **place = mr_locked(block, registry), *made = *place;

        if (made != NULL) {
            *place = made->next;
            end_mr(made, block->length);
        }
    }
}
