/* SPDX-License-Identifier: BSD-3-Clause */
#include "parties.h"

#include <stdlib.h>
#include <unistd.h>

const conformance_t *tested;

static int reset(void **state)
{
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all cases */
    if (tested->reset != NULL) {
        tested->reset();
    }
    return 0;
}

int conformance_run(const conformance_t *conformance)
{
    const struct CMUnitTest *const groups[] = {
        conformance_frames, conformance_puts, conformance_gets, conformance_ends, conformance_node};
    const size_t lacking = conformance->ops->node.copy == NULL; /* the last */
    struct CMUnitTest cases[64];
    size_t count = 0;

    for (size_t group = 0; group < sizeof(groups) / sizeof(groups[0]) - lacking; group++) {
        for (const struct CMUnitTest *at = groups[group]; at->name != NULL; at++) {
            if (count == sizeof(cases) / sizeof(cases[0])) {
                abort();
            }
            cases[count] = *at;
            cases[count++].setup_func = reset;
        }
    }
    tested = conformance;
    return _cmocka_run_group_tests(conformance->name, cases, count, NULL, NULL);
}
