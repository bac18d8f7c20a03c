/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/pairing.h"

#include <string.h>

static bool is_like(const regx_candidate_t *one, const regx_candidate_t *other)
{
    return one->kind_length == other->kind_length &&
           memcmp(one->kind, other->kind, one->kind_length) == 0;
}

/* The places of one kind in a list. */
typedef struct places {
    unsigned count;
    unsigned at[REGX_PAIRING_MAX];
} places_t;

static places_t find_places(const regx_candidate_t *list, unsigned count,
                            const regx_candidate_t *kind)
{
    places_t places = {.count = 0};

    for (unsigned i = 0; i < count; i++) {
        if (is_like(&list[i], kind)) {
            places.at[places.count++] = i;
        }
    }
    return places;
}

static void pair_up(const regx_pairing_t *pairing, const regx_candidate_t *kind,
                    int talks_to[REGX_PAIRING_MAX])
{
    const places_t ours = find_places(pairing->ours, pairing->our_count, kind);
    const places_t theirs = find_places(pairing->theirs, pairing->their_count, kind);
    const unsigned longer = ours.count > theirs.count ? ours.count : theirs.count;
    bool taken[REGX_PAIRING_MAX] = {false};

    for (unsigned apart = 0; apart < longer; apart++) {
        for (unsigned k = 0; k < 2 * longer; k++) {
            const unsigned i = k / 2 + (k % 2 == 0 ? 0 : apart);
            const unsigned j = k / 2 + (k % 2 == 0 ? apart : 0);

            if (i < ours.count && j < theirs.count && talks_to[ours.at[i]] < 0 && !taken[j] &&
                pairing->reaches(pairing->context, ours.at[i], theirs.at[j])) {
                talks_to[ours.at[i]] = (int)theirs.at[j];
                taken[j] = true;
            }
        }
    }
}

/* Whether one that has found its other is for the node (or is not). */
static bool has_pair(const regx_pairing_t *pairing, const int talks_to[REGX_PAIRING_MAX],
                     bool for_node)
{
    for (unsigned i = 0; i < pairing->our_count; i++) {
        if (talks_to[i] >= 0 && pairing->ours[i].for_node == for_node) {
            return true;
        }
    }
    return false;
}

void regx_pair(const regx_pairing_t *pairing, int talks_to[REGX_PAIRING_MAX])
{
    for (unsigned i = 0; i < REGX_PAIRING_MAX; i++) {
        talks_to[i] = REGX_PAIRING_NONE;
    }
    for (unsigned i = 0; i < pairing->our_count; i++) {
        if (i == 0 || !is_like(&pairing->ours[i], &pairing->ours[i - 1])) {
            pair_up(pairing, &pairing->ours[i], talks_to);
        }
    }
    const bool for_node =
        has_pair(pairing, talks_to, pairing->same_node) ? pairing->same_node : !pairing->same_node;
    for (unsigned i = 0; i < pairing->our_count; i++) {
        if (talks_to[i] >= 0 && pairing->ours[i].for_node != for_node) {
            talks_to[i] = REGX_PAIRING_OTHERS;
        }
    }
}
