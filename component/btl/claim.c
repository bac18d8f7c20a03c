/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/claim.h"

#include <string.h>

static bool is_like(const regx_claimant_t *one, const regx_claimant_t *other)
{
    return one->kind_length == other->kind_length &&
           memcmp(one->kind, other->kind, one->kind_length) == 0;
}

/* The places of one kind in a list. */
typedef struct places {
    unsigned count;
    unsigned at[REGX_CLAIMS_MAX];
} places_t;

static places_t find_places(const regx_claimant_t *list, unsigned count,
                            const regx_claimant_t *kind)
{
    places_t places = {.count = 0};

    for (unsigned i = 0; i < count; i++) {
        if (is_like(&list[i], kind)) {
            places.at[places.count++] = i;
        }
    }
    return places;
}

static void pair_up(const regx_claim_t *claim, const regx_claimant_t *kind,
                    int talks_to[REGX_CLAIMS_MAX])
{
    const places_t ours = find_places(claim->ours, claim->our_count, kind);
    const places_t theirs = find_places(claim->theirs, claim->their_count, kind);
    const unsigned longer = ours.count > theirs.count ? ours.count : theirs.count;
    bool taken[REGX_CLAIMS_MAX] = {false};

    for (unsigned apart = 0; apart < longer; apart++) {
        for (unsigned k = 0; k < 2 * longer; k++) {
            const unsigned i = k / 2 + (k % 2 == 0 ? 0 : apart);
            const unsigned j = k / 2 + (k % 2 == 0 ? apart : 0);

            if (i < ours.count && j < theirs.count && talks_to[ours.at[i]] < 0 && !taken[j] &&
                claim->reaches(claim->context, ours.at[i], theirs.at[j])) {
                talks_to[ours.at[i]] = (int)theirs.at[j];
                taken[j] = true;
            }
        }
    }
}

/* Whether one that has found its other is for the node (or is not). */
static bool has_pair(const regx_claim_t *claim, const int talks_to[REGX_CLAIMS_MAX], bool for_node)
{
    for (unsigned i = 0; i < claim->our_count; i++) {
        if (talks_to[i] >= 0 && claim->ours[i].for_node == for_node) {
            return true;
        }
    }
    return false;
}

void regx_claim(const regx_claim_t *claim, int talks_to[REGX_CLAIMS_MAX])
{
    for (unsigned i = 0; i < REGX_CLAIMS_MAX; i++) {
        talks_to[i] = REGX_CLAIM_NONE;
    }
    for (unsigned i = 0; i < claim->our_count; i++) {
        if (i == 0 || !is_like(&claim->ours[i], &claim->ours[i - 1])) {
            pair_up(claim, &claim->ours[i], talks_to);
        }
    }
    const bool for_node =
        has_pair(claim, talks_to, claim->same_node) ? claim->same_node : !claim->same_node;
    for (unsigned i = 0; i < claim->our_count; i++) {
        if (talks_to[i] >= 0 && claim->ours[i].for_node != for_node) {
            talks_to[i] = REGX_CLAIM_OTHERS;
        }
    }
}
