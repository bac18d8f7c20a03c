/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Verbs conforms to transport.h.
 */
#include "verbs_parties.h"

const conformance_t *tested = &verbs_conformance;
