/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The counters that belong to one transport: counters->transport[REGX_COUNTER_name]. One row of
 * numbers for all of them, which counters.def lists; the report reads them by the table of
 * catalog.h.
 */
#ifndef REGX_TRANSPORT_COUNTERS_H
#define REGX_TRANSPORT_COUNTERS_H

#include "base/counters.h"

enum {
#define REGX_COUNTER(name, help) REGX_COUNTER_##name,
#include "transport/counters.def"
#undef REGX_COUNTER
    REGX_TRANSPORT_COUNTERS
};
_Static_assert(REGX_TRANSPORT_COUNTERS <= REGX_TRANSPORT_COUNTERS_MAX, "make more room for them");

#endif
