/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A proof that two processes have the same bytes (revoke.h): a checksum of memory that may be gone.
 */
#ifndef REGX_RENDEZVOUS_PROOF_H
#define REGX_RENDEZVOUS_PROOF_H

#include <stdint.h>

/* What is read and summed at once. */
#define REGX_PROOF_BLOCK (64u * 1024u)

typedef enum regx_proof {
    REGX_PROOF_NONE, /* there was no memory to make it, or it was not tried */
    REGX_PROOF_MADE,
    REGX_PROOF_UNREADABLE
} regx_proof_t;

/* The checksum of the blocks' checksums. The memory may be gone: then *gap is the block that could
 * not be read. */
regx_proof_t regx_prove(const char *base, uint64_t length, uint64_t *sum, uint64_t *gap);

#endif
