/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A fragment: what Open MPI fills and sends, and the memory of it.
 *
 * What is short leaves as one frame of the transport, copied. What is longer is packed into a slot
 * of the pool and lent to the peer, until that has read it. A fragment that gets no slot has memory
 * of its own, for as much as a frame takes. So a peer that does not read keeps slots, but keeps
 * nobody from sending to another; and Open MPI is not refused a descriptor for its control
 * messages.
 *
 * Any thread; module->lock is taken inside.
 */
#ifndef REGX_BTL_FRAGMENT_H
#define REGX_BTL_FRAGMENT_H

#include "btl/btl.h"

struct regx_fragment {
    mca_btl_base_descriptor_t base; /* first: a descriptor is its fragment */
    mca_btl_base_segment_t segment;
    struct mca_btl_base_endpoint_t *endpoint;
    regx_fragment_t *next; /* in a free list or a queue */
    regx_lend_t lend;
    uint8_t *bytes; /* memory of its own, of max_frame; NULL: not yet */
    uint32_t slot;  /* or REGX_SLOT_NONE: the data is in bytes */
    mca_btl_base_tag_t tag;
};

/* A fragment of `size` bytes for the endpoint, which belongs to the caller; of as many as a frame
 * takes if it would need a slot and gets none. NULL: no memory. */
regx_fragment_t *regx_fragment_take(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                                    size_t size);
/* Whether `size` bytes of a message that is so long in all should wait until this very peer has
 * read: regx_fragment_take would give less, or they would go slower. */
bool regx_fragment_must_wait(const regx_module_t *module,
                             const struct mca_btl_base_endpoint_t *endpoint, size_t size,
                             size_t message);
void regx_fragment_return(regx_module_t *module, regx_fragment_t *fragment);

#endif
