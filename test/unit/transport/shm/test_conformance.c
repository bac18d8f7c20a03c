/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Shared memory conforms to transport.h.
 */
#include "../conformance.h"

#include "transport/shm/shm_internal.h"

int main(void)
{
    const conformance_t shm = {.name = "shm", .ops = &regx_shm_ops, .neighbours = 2};

    return conformance_run(&shm);
}
