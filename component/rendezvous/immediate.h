/* SPDX-License-Identifier: BSD-3-Clause
 *
 * WRITTEN and DONE in 24 bits, for wires that tell of a write by immediate data: one request and
 * one packet less than with a notice. It names what was granted, and the landing knows the rest; so
 * it is only for what was written as it was granted, and where no checksum is wanted. The source's
 * name is not in it: a landing that has more to grant must have had that before.
 *
 *     23     1: it is one
 *     22     0: WRITTEN, 1: DONE
 *     17-21  the lowest bits of the landing's generation
 *      0-16  WRITTEN: the slot's offset in the pool by 4 KiB (0-11), the lowest bits of the landing
 *            (12-16); DONE: the landing (0-9), and which chunk, by its offset (10-16)
 *
 * What does not fit goes by notice. A landing is not closed while honest peers write what it
 * granted, so those bits only have to tell apart what should not come at all.
 */
#ifndef REGX_RENDEZVOUS_IMMEDIATE_H
#define REGX_RENDEZVOUS_IMMEDIATE_H

#include "rendezvous/engine.h"

/* 0: it does not fit. `chunk_size`: the length of the first chunk that was granted. */
uint32_t regx_immediate_pack(const regx_control_t *notice, uint64_t chunk_size);

/* What it says of a landing of this process: as the message in its place, but that `from` is not
 * told. false: nothing that was granted. */
bool regx_immediate_unpack_locked(const regx_rndv_t *rndv, uint32_t immediate,
                                  regx_control_t *control);

#endif
