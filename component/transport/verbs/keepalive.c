/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Peers from whom something is only awaited. A device learns that a peer is gone when it sends to
 * it; so where nothing was sent for a while, a write of no bytes is. The peer's device answers it,
 * also while its process computes or stands still; without an answer the pair breaks as it does
 * for any other request, after the retries that the parameters allow.
 */
#include "transport/verbs/internal.h"

#define IDLE_NS INT64_C(10000000000) /* ten seconds */
#define LOOKS 8                      /* so often in that time all pairs are looked at */
#define PROBES_LEAST 32u             /* that one look may make */

void regx_keepalive_open(regx_verbs_t *verbs)
{
    verbs->idle_ns = IDLE_NS;
}

/* Whether the peer should be asked and can be: nothing is known of it, and it has not said
 * goodbye. Without room, what fills the pair tells, or it is asked at a later look. */
static bool is_due(regx_pair_t *pair, int64_t now)
{
    if (pair->posted != pair->seen) {
        pair->seen = pair->posted;
        pair->seen_at = now;
    }
    return pair->state == REGX_PAIR_READY && !pair->parted && !pair->leaving &&
           now - pair->seen_at >= pair->verbs->idle_ns && regx_post_has_room(pair, 1);
}

void regx_keepalive_progress(regx_verbs_t *verbs)
{
    static const regx_work_t probe = {.kind = REGX_WORK_PLAIN, .what = "keepalive"};
    const int64_t now = regx_now_ns();
    /* So many that the looks of one idle time reach everybody. */
    const uint32_t share = verbs->pair_count / LOOKS + 1;
    uint32_t left = share > PROBES_LEAST ? share : PROBES_LEAST;

    if (now < verbs->look_next) {
        return;
    }
    verbs->look_next = now + verbs->idle_ns / LOOKS;
    for (regx_pair_t *pair = verbs->pairs; pair != NULL && left > 0; pair = pair->next) {
        if (is_due(pair, now)) {
            regx_post_empty(pair, &probe);
            pair->seen_at = now;
            left--;
        }
    }
}
