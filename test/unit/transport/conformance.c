/* SPDX-License-Identifier: BSD-3-Clause */
#include "parties.h"

int conformance_reset(void **state)
{
    if (tested->reset != NULL) {
        tested->reset();
    }
    return 0;
}
