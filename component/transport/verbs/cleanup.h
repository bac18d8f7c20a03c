/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of endpoints.
 *
 * Where completions of receives are still in the completion queue when a queue pair is destroyed,
 * some devices (mlx5) drop them, and the buffers that they took of the shared receive queue would
 * never come back. So the queue pair is first driven to error, which ends what it has taken. The
 * device reports when it takes no more; once the completion queue was seen empty after that,
 * nothing is left. Soft-RoCE drops nothing, and does not report in older kernels; hence the limit
 * in time of 0.1 s. That may also be over because the program was away. So what has completed by
 * then is taken out of the completion queue first: it must neither be dropped, nor be taken for
 * that of a queue pair that gets the same number.
 */
#ifndef REGX_VERBS_CLEANUP_H
#define REGX_VERBS_CLEANUP_H

#include "transport/verbs/ep.h"

/* Drives the queue pair to error, once; what it has received before is still handled. false: that
 * is refused, and it need not be waited for. */
bool regx_ep_rest(regx_ep_t *ep);
/* Whether it has come to rest. `empty`: the completion queue was, after the last look at the
 * device. `limit_ns`: how long the device's report is waited for. */
bool regx_ep_has_rested(const regx_ep_t *ep, bool empty, int64_t limit_ns);
/* Cuts and frees an endpoint. Nobody is to hear of what may still arrive by it. */
void regx_ep_delete(regx_ep_t *ep);
/* Ends the queue pair of an endpoint now, with work under way: puts and zcopies are completed with
 * REGX_FAILED from here. Waits for it to come to rest, and keeps what completes meanwhile of others
 * for the next progress. The endpoint is broken then. */
void regx_ep_abort(regx_ep_t *ep);
/* Progress: reports broken endpoints, and cuts them once nothing more comes of them; frees those
 * that were disconnected. empty: the completion queue was, after the last look at the device. */
void regx_cleanup_progress(regx_verbs_t *verbs, bool empty);

#endif
