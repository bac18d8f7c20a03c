/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/fragment.h"

#include <stdlib.h>

#define LENT_FROM 2048u /* bytes; as a frame less costs less */

/* Bytes that one peer is lent at a time; a peer that does not read keeps these from others. */
#define LENT_MOST (1u << 20)

/* … of a message that is longer than LONG, and so passes all of itself through the processor's own
 * cache: with more, what is packed has left that cache before the peer reads it, in some runs and
 * not in others, as the pages happen to lie. Vectors of 4 MiB on an Intel Xeon with 2 MiB of cache
 * for each core: 12 GB/s; with 640 KiB and more 9.5 or 13.5; without a limit 11.5. Shorter messages
 * lose by it (64 KiB: 9.4 GB/s, not 11). Not with threads (regx_prepare_src); over verbs it was not
 * measured. */
#define LENT_OF_LONG (512u << 10)
#define LONG (2u << 20)

static bool fits_frame(const regx_module_t *module, size_t size)
{
    return size <= module->transport->max_frame;
}

/* Whether `size` bytes for the endpoint may take a slot. A peer that does not read could keep what
 * it is lent for long: half of the pool stays for the rendezvous, which serve other peers. */
static bool may_lend(const regx_module_t *module, const struct mca_btl_base_endpoint_t *endpoint,
                     size_t size)
{
    return size > LENT_FROM && size <= module->pool.slot_size &&
           atomic_load_explicit(&endpoint->lent, memory_order_relaxed) < LENT_MOST &&
           regx_pool_unused(&module->pool) > module->pool.slots / 2;
}

bool regx_fragment_must_wait(const regx_module_t *module,
                             const struct mca_btl_base_endpoint_t *endpoint, size_t size,
                             size_t message)
{
    const size_t lent = atomic_load_explicit(&endpoint->lent, memory_order_relaxed);
    const bool enough = message > LONG && lent >= LENT_OF_LONG;

    return !fits_frame(module, size) && (enough || !may_lend(module, endpoint, size)) &&
           (lent > 0 || atomic_load_explicit(&endpoint->waiting, memory_order_relaxed));
}

static regx_fragment_t *fragment_new(void)
{
    regx_fragment_t *fragment = calloc(1, sizeof(*fragment));

    if (fragment == NULL) {
        return NULL;
    }
    OBJ_CONSTRUCT(&fragment->base, mca_btl_base_descriptor_t);
    fragment->slot = REGX_SLOT_NONE;
    fragment->base.des_segments = &fragment->segment;
    fragment->base.des_segment_count = 1;
    return fragment;
}

static bool own_memory(const regx_module_t *module, regx_fragment_t *fragment)
{
    if (fragment->bytes == NULL) {
        fragment->bytes = malloc(module->transport->max_frame);
    }
    return fragment->bytes != NULL;
}

regx_fragment_t *regx_fragment_take(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                                    size_t size)
{
    regx_lock(&module->lock);
    regx_fragment_t *fragment = module->fragments;
    if (fragment != NULL) {
        module->fragments = fragment->next;
    }
    regx_unlock(&module->lock);
    if (fragment == NULL && (fragment = fragment_new()) == NULL) {
        return NULL;
    }
    fragment->endpoint = endpoint;
    if (may_lend(module, endpoint, size)) {
        fragment->slot = regx_pool_get(&module->pool);
    }
    if (fragment->slot != REGX_SLOT_NONE) {
        fragment->segment.seg_addr.pval = regx_pool_slot(&module->pool, fragment->slot);
    } else if (own_memory(module, fragment)) {
        fragment->segment.seg_addr.pval = fragment->bytes;
        size = fits_frame(module, size) ? size : module->transport->max_frame;
    } else {
        regx_fragment_return(module, fragment);
        return NULL;
    }
    fragment->segment.seg_len = size;
    return fragment;
}

void regx_fragment_return(regx_module_t *module, regx_fragment_t *fragment)
{
    if (fragment->slot != REGX_SLOT_NONE) {
        regx_pool_put(&module->pool, fragment->slot);
        fragment->slot = REGX_SLOT_NONE;
    }
    regx_lock(&module->lock);
    fragment->next = module->fragments;
    module->fragments = fragment;
    regx_unlock(&module->lock);
}

void regx_fragments_free(regx_module_t *module)
{
    while (module->fragments != NULL) {
        regx_fragment_t *fragment = module->fragments;

        module->fragments = fragment->next;
        OBJ_DESTRUCT(&fragment->base);
        free(fragment->bytes);
        free(fragment);
    }
}
