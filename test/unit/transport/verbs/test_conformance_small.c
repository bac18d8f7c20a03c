/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Verbs conforms to transport.h also on a device in memory that can do little: InfiniBand, no data
 * inline, short queues and messages.
 */
#include "fake_device.h"
#include "verbs_parties.h"

static void reset(void)
{
    fake_reset();
    fake_make_infiniband(&fake.ports[0], 0);
    fake.ports[0].inline_refused = fake.ports[0].inline_max = 40;
    fake.ports[0].depth = 18;
    fake.ports[0].message_max = 32768;
}

static int prepare(void **state)
{
    verbs_conformance.reset = reset;
    tested = &verbs_conformance;
    return 0;
}

const unit_group_t unit_group = {.setup = prepare};
