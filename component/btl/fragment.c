/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/module.h"

#include <assert.h>
#include <stdlib.h>

#include "base/copy.h"

/* Bytes of a small fragment: Open MPI's longest header, of a put with its registration handle, is
 * shorter. */
#define SMALL 512u

/* So many of each kind are kept for use, at most. */
static const unsigned kept_max[] = {[REGX_FRAGMENT_SMALL] = 1024, [REGX_FRAGMENT_FRAME] = 64};

/* Zero-copy sends are for more than this many bytes; below, a copied frame costs less. */
#define ZCOPY_FROM 2048u

/* Bytes of zero-copy sends that one peer may have unread: one that does not read would take the pool
 * from the others. What waits in the endpoint's queue is not counted. */
#define ZCOPY_MAX (1u << 20)

/* The same for messages longer than LONG. With more, what was packed has left the core's cache
 * before the peer reads it. Vectors of 4 MiB on an Intel Xeon (2 MiB of cache for each core):
 * 12 GB/s; with 640 KiB 9.5 or 13.5 from run to run; without a limit 11.5. Shorter messages lose by
 * it (64 KiB: 9.4 GB/s, not 11). It acts where several messages go to a peer at once: of one ob1 has
 * three fragments under way (pml_ob1_send_pipeline_depth). Not with threads (regx_btl_prepare_src); over
 * verbs it was not measured. */
#define ZCOPY_MAX_LONG (512u << 10)
#define LONG (2u << 20)

/* Whether `size` bytes for the endpoint may take a slot. A peer that does not read could keep it
 * for long: half of the pool stays for receives, which serve other peers. */
static bool may_take_slot(const regx_module_t *module, const regx_endpoint_t *endpoint, size_t size)
{
    return size > ZCOPY_FROM && size <= module->pool.slot_size &&
           atomic_load_explicit(&endpoint->zcopy_bytes, memory_order_relaxed) < ZCOPY_MAX &&
           regx_pool_unused(&module->pool) > module->pool.slots / 2;
}

bool regx_fragment_must_wait(const regx_module_t *module, const regx_endpoint_t *endpoint,
                             size_t size, size_t message)
{
    const size_t unread = atomic_load_explicit(&endpoint->zcopy_bytes, memory_order_relaxed);
    const bool enough = message > LONG && unread >= ZCOPY_MAX_LONG;
    const bool is_last =
        size <= module->transport->max_frame && size < module->super.btl_max_send_size;

    return !is_last && (enough || !may_take_slot(module, endpoint, size)) &&
           (unread > 0 || regx_endpoint_is_blocked(endpoint));
}

static size_t capacity(const regx_module_t *module, regx_fragment_kind_t kind)
{
    return kind == REGX_FRAGMENT_SMALL ? SMALL : module->transport->max_frame;
}

static void fragment_free(regx_fragment_t *fragment)
{
    OBJ_DESTRUCT(&fragment->base);
    free(fragment);
}

/* One that is kept, or a new one. */
static regx_fragment_t *get(regx_module_t *module, regx_fragment_kind_t kind)
{
    regx_lock(&module->lock);
    regx_fragment_t *fragment = module->unused.first[kind];
    if (fragment != NULL) {
        module->unused.first[kind] = fragment->next;
        module->unused.count[kind]--;
    }
    regx_unlock(&module->lock);
    if (fragment != NULL) {
        return fragment;
    }
    fragment = malloc(sizeof(*fragment) + capacity(module, kind) + REGX_COPY_LINE);
    if (fragment != NULL) {
        memset(fragment, 0, sizeof(*fragment));
        OBJ_CONSTRUCT(&fragment->base, mca_btl_base_descriptor_t);
        fragment->kind = kind;
        fragment->slot = REGX_SLOT_NONE;
        fragment->base.des_segments = &fragment->segment;
    }
    return fragment;
}

regx_fragment_t *regx_fragment_take(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                                    size_t skew)
{
    uint32_t slot = REGX_SLOT_NONE;

    if (may_take_slot(module, endpoint, size)) {
        slot = regx_pool_get(&module->pool);
    }
    const regx_fragment_kind_t kind =
        slot != REGX_SLOT_NONE || size <= SMALL ? REGX_FRAGMENT_SMALL : REGX_FRAGMENT_FRAME;
    regx_fragment_t *fragment = get(module, kind);
    if (fragment == NULL) {
        if (slot != REGX_SLOT_NONE) {
            regx_pool_put(&module->pool, slot);
        }
        return NULL;
    }
    assert(fragment->kind == kind && fragment->slot == REGX_SLOT_NONE);
    fragment->endpoint = endpoint;
    fragment->slot = slot;
    if (slot != REGX_SLOT_NONE) {
        skew = size + skew <= module->pool.slot_size ? skew : 0;
        fragment->segment.seg_addr.pval = regx_pool_slot(&module->pool, slot) + skew;
    } else {
        skew = (skew - (uintptr_t)fragment->bytes) % REGX_COPY_LINE;
        fragment->segment.seg_addr.pval = fragment->bytes + skew;
        size = regx_min(size, module->transport->max_frame);
        assert(size <= capacity(module, kind));
    }
    fragment->segment.seg_len = size;
    fragment->base.des_segment_count = 1;
    return fragment;
}

void regx_fragment_return(regx_module_t *module, regx_fragment_t *fragment)
{
    const regx_fragment_kind_t kind = fragment->kind;

    if (fragment->slot != REGX_SLOT_NONE) {
        regx_pool_put(&module->pool, fragment->slot);
        fragment->slot = REGX_SLOT_NONE;
    }
    regx_lock(&module->lock);
    const bool keep = module->unused.count[kind] < kept_max[kind];
    if (keep) {
        fragment->next = module->unused.first[kind];
        module->unused.first[kind] = fragment;
        module->unused.count[kind]++;
    }
    regx_unlock(&module->lock);
    if (!keep) {
        fragment_free(fragment);
    }
}

void regx_fragments_free(regx_module_t *module)
{
    for (int kind = 0; kind < REGX_FRAGMENT_KINDS; kind++) {
        while (module->unused.first[kind] != NULL) {
            fragment_free(get(module, (regx_fragment_kind_t)kind));
        }
    }
}
