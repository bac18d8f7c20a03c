/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/proof.h"

#include <stdlib.h>

#include "base/util.h"
#include "rendezvous/checksum.h"
#include "rendezvous/safe_copy.h"

regx_proof_t regx_prove(const char *base, uint64_t length, uint64_t *sum, uint64_t *gap)
{
    char *block = malloc(REGX_PROOF_BLOCK);
    uint64_t sums[2] = {0, 0};
    bool readable = true;

    if (block == NULL) {
        return REGX_PROOF_NONE;
    }
    for (uint64_t done = 0; done < length && readable; done += REGX_PROOF_BLOCK) {
        const size_t size = regx_min(REGX_PROOF_BLOCK, length - done);

        *gap = done;
        readable = regx_safe_read(block, base + done, size);
        sums[1] = regx_checksum(block, size);
        sums[0] = regx_checksum(sums, sizeof(sums));
    }
    free(block);
    *sum = sums[0];
    return readable ? REGX_PROOF_MADE : REGX_PROOF_UNREADABLE;
}
