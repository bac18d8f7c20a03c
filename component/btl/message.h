/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Eager messages and fragments, sent: Open MPI's calls, with the contract of each
 * (opal/mca/btl/btl.h). What finds no room waits at its endpoint, and goes in order. Any thread.
 */
#ifndef REGX_BTL_MESSAGE_H
#define REGX_BTL_MESSAGE_H

#include "btl/module.h"

mca_btl_base_descriptor_t *regx_alloc(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                                      uint8_t order, size_t size, uint32_t flags);
int regx_free(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor);
mca_btl_base_descriptor_t *regx_prepare_src(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
                                            struct opal_convertor_t *convertor, uint8_t order,
                                            size_t reserve, size_t *size, uint32_t flags);
int regx_send(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
              mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag);
int regx_sendi(mca_btl_base_module_t *btl, regx_endpoint_t *endpoint,
               struct opal_convertor_t *convertor, void *header, size_t header_size,
               size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
               mca_btl_base_descriptor_t **descriptor);

/* Sends what waits, endpoint by endpoint; returns how many fragments went. From progress only. */
int regx_send_queued(regx_module_t *module);
/* Takes what waits at this endpoint and reports it as unreachable. From progress only. */
void regx_fail_queued(regx_module_t *module, regx_endpoint_t *endpoint);

/* ---- fragment.c ---- */

/* A fragment: what Open MPI fills and sends, and the memory of it.
 *
 * Short data leaves as one frame of the transport, copied. Longer data is packed into a slot of the
 * pool, and the peer reads it there: a zero-copy send, which ends when the peer has read. A
 * fragment that gets no slot has memory of its own, for as much as a frame takes. So a peer that
 * does not read keeps slots, but keeps no thread from sending to another peer; and Open MPI is not
 * refused a descriptor for its control messages.
 *
 * Fragments are kept for the next message. Most are for headers, which are short: these are small;
 * of those with memory for a whole frame only a few are kept.
 *
 * Any thread; the module's lock is taken inside.
 */

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
