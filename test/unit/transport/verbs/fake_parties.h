/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parties over two ports in memory, fake0:1 and fake1:1, of which tests tell that of `one` what to do.
 */
#pragma once

#include "fake_parts.h"
#include "verbs_parties.h"

/* `one` and `two` are open, by RoCE; or, by InfiniBand. */
static inline void fake_open_two(bool infiniband)
{
    fake_reset();
    fake_add(0, 2);
    if (infiniband) {
        fake_make_infiniband(&fake.ports[0], 1);
        fake_make_infiniband(&fake.ports[1], 1);
    }
    verbs_conformance.devices[0] = "fake0:1";
    verbs_conformance.devices[1] = "fake1:1";
    parties_open(false);
}

/* And have exchanged a frame. */
static inline void fake_open_connected(bool infiniband)
{
    fake_open_two(infiniband);
    parties_exchange();
}
