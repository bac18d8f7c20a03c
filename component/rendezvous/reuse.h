/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Whether the program receives into the same buffers again. Over an RDMA device it costs more to
 * register a buffer at both ends, and to deregister it, than to copy a short message twice. That
 * pays only if the buffer comes back while it is registered. So, by `auto`, a short message into a
 * buffer that is not registered goes by bounce where buffers have not come back lately.
 *
 * The guess is made as processors guess branches (a saturating counter; J. E. Smith, 1981): a
 * buffer that is found registered gives credit, one that is not takes some. Without credit one new
 * buffer in REGX_REUSE_SAMPLE is registered all the same, by which a program is noticed that begins
 * to use its buffers again.
 *
 * One per engine, under the engine's lock.
 */
#ifndef REGX_RENDEZVOUS_REUSE_H
#define REGX_RENDEZVOUS_REUSE_H

#include <stdbool.h>

/* Bytes of a message that may go so. Measured on Soft-RoCE, one way, a new buffer for each: bounce
 * takes 0.65 of pipeline's time at 32 KiB, 0.88 at 64 KiB, and 1.4 times as long at 128 KiB. */
#define REGX_REUSE_MAX (64u * 1024u)

#define REGX_REUSE_FIRST 8u       /* new buffers that are registered at first */
#define REGX_REUSE_GAIN 2u        /* credit for a buffer that is found */
#define REGX_REUSE_CREDIT_MAX 32u /* new buffers in a row until the guess changes, at most */
#define REGX_REUSE_SAMPLE 16u

typedef struct regx_reuse {
    unsigned credit;
    unsigned passed; /* new buffers without credit, since one was registered */
} regx_reuse_t;

void regx_reuse_init(regx_reuse_t *reuse);

/* A buffer is to be received into; `known`: it is registered already. Whether to go on with that
 * buffer registered. Always true if it is known. */
bool regx_reuse_expects(regx_reuse_t *reuse, bool known);

#endif
