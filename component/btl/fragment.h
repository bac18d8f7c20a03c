/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A fragment: what Open MPI fills and sends, and the memory of it.
 *
 * Short data leaves as one frame of the transport, copied. Longer data is packed into a slot of the
 * pool, and the peer reads it there: a zero-copy send, which ends when the peer has read. A
 * fragment that gets no slot has memory of its own, for as much as a frame takes. So a peer that
 * does not read keeps slots, but keeps nobody from sending to another; and Open MPI is not refused
 * a descriptor for its control messages.
 *
 * Fragments are kept for the next message. Most are for headers, which are short: these are small;
 * of those with memory for a whole frame only a few are kept.
 *
 * Any thread; the module's lock is taken inside.
 */
#ifndef REGX_BTL_FRAGMENT_H
#define REGX_BTL_FRAGMENT_H

#include "btl/endpoint.h"
#include "btl/module.h"

struct regx_fragment {
    mca_btl_base_descriptor_t base; /* first: a descriptor is its fragment */
    mca_btl_base_segment_t segment;
    regx_endpoint_t *endpoint;
    regx_fragment_t *next; /* among the unused, or in an endpoint's queue */
    regx_zcopy_t zcopy;
    uint32_t slot; /* REGX_SLOT_NONE: the data is in bytes */
    mca_btl_base_tag_t tag;
    regx_fragment_kind_t kind;
    _Alignas(16) uint8_t bytes[]; /* as many as its kind has, and a cache line */
};

/* A fragment of `size` bytes for the endpoint, which belongs to the caller. Its segment begins
 * `skew` bytes behind a cache line's beginning (base/copy.h), or with its slot, if it fills that.
 * If it needs a slot and gets none, the segment is shorter: as long as a frame. NULL: no memory. */
regx_fragment_t *regx_fragment_take(regx_module_t *module, regx_endpoint_t *endpoint, size_t size,
                                    size_t skew);
void regx_fragment_return(regx_module_t *module, regx_fragment_t *fragment);

/* Whether the next `size` bytes of a message of `message` bytes should wait until this very peer
 * has read what was sent: regx_fragment_take would give less than `size`, or they would go slower.
 */
bool regx_fragment_must_wait(const regx_module_t *module, const regx_endpoint_t *endpoint,
                             size_t size, size_t message);

/* Frees those that are kept. */
void regx_fragments_free(regx_module_t *module);

#endif
