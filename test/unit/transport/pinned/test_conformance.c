/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The pinned device conforms to transport.h.
 */
#include "../conformance.h"

#include "transport/pinned/pinned.h"

int main(void)
{
    const conformance_t pinned = {.name = "pinned", .ops = &regx_pinned_ops};

    return conformance_run(&pinned);
}
