/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/pairing.h"

void regx_pair(const regx_pairing_t *pairing, int talks_to[REGX_PAIRING_MAX])
{
    const unsigned ours = pairing->our_count, theirs = pairing->their_count;
    const unsigned longer = ours > theirs ? ours : theirs;
    bool taken[REGX_PAIRING_MAX] = {false};

    for (unsigned i = 0; i < REGX_PAIRING_MAX; i++) {
        talks_to[i] = REGX_PAIRING_NONE;
    }
    for (unsigned apart = 0; apart < longer; apart++) {
        for (unsigned k = 0; k < 2 * longer; k++) {
            const unsigned i = k / 2 + (k % 2 == 0 ? 0 : apart);
            const unsigned j = k / 2 + (k % 2 == 0 ? apart : 0);

            if (i < ours && j < theirs && talks_to[i] == REGX_PAIRING_NONE && !taken[j] &&
                pairing->reaches(pairing->context, i, j)) {
                talks_to[i] = (int)j;
                taken[j] = true;
            }
        }
    }
}
