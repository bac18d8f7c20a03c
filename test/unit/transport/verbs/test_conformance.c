/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Verbs conforms to transport.h.
 */
#include "verbs_parties.h"

int main(void)
{
    return conformance_run(&verbs_conformance);
}
