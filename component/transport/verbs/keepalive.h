/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Peers from whom something is only awaited. A device learns that a peer is gone when it sends to
 * it. So where nothing was sent for a while, a write of no bytes is. The peer's device answers it,
 * also while its process computes or stands still. Without an answer the endpoint breaks as for any
 * other request, after the retries that the parameters allow. Its end is always reported: nothing
 * may follow on an endpoint that we have left, and that one ends only when all of it has completed.
 */
#ifndef REGX_VERBS_KEEPALIVE_H
#define REGX_VERBS_KEEPALIVE_H

#include "transport/verbs/verbs.h"

void regx_keepalive_open(regx_verbs_t *verbs);
/* Asks peers to which nothing was sent for long; bounded. Looks at the clock. */
void regx_keepalive_progress(regx_verbs_t *verbs);

#endif
