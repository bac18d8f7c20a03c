/* SPDX-License-Identifier: BSD-3-Clause
 *
 * ATP in 24 bits, for wires that notify a write by immediate data: one request and one packet less
 * than with a notice. It names what was granted, and the receiver knows the rest. So it is only for
 * what was written as it was granted, and where no checksum is wanted. The send side's handle is
 * not in it: a receiver that has more to grant must have had that before.
 *
 *     23     1: it is an ATP
 *     22     0: of a slot, 1: of a chunk
 *     17-21  the lowest bits of the receive side's generation
 *      0-16  slot: its offset in the pool by 4 KiB (0-11), the lowest bits of the receive side's
 *            index (12-16); chunk: the index (0-9), and which chunk, by its offset (10-16)
 *
 * What does not fit goes by notice. A receive is not closed while honest peers write what it
 * granted, so those bits only have to tell apart what should not come at all.
 */
#ifndef REGX_RENDEZVOUS_IMMEDIATE_H
#define REGX_RENDEZVOUS_IMMEDIATE_H

#include "rendezvous/engine.h"

/* 0: it does not fit. `chunk_size`: the length of the first chunk that was granted. */
uint32_t regx_immediate_pack(const regx_control_t *notice, uint64_t chunk_size);

/* The message in whose place it came, as far as a receive of this process was granted that; but
 * `from` is not notified. false: nothing of the kind was granted. */
bool regx_immediate_unpack_locked(const regx_rndv_t *rndv, uint32_t immediate,
                                  regx_control_t *control);

#endif
