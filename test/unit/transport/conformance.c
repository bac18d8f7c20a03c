/* SPDX-License-Identifier: BSD-3-Clause */
#include "parties.h"

#include <unistd.h>

int conformance_reset(void **state)
{
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all cases */
    if (tested->reset != NULL) {
        tested->reset();
    }
    return 0;
}

int conformance_run(const conformance_t *conformance)
{
    tested = conformance;
    return unit_run(NULL, NULL);
}
