/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/refusal.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/memlock.h"

typedef enum reason { LIMIT, SHARE, ROOM, MEMORY, GONE, READ_ONLY, OTHER, REASONS } reason_t;

static const char *const texts[][REASONS] = {
    [REGX_SENDER] = {[LIMIT] = "sender: over the limit of locked memory",
                     [SHARE] = "sender: over btl_regx_once_bytes",
                     [ROOM] = "sender: no room in kernel or device",
                     [MEMORY] = "sender: no memory to register",
                     [GONE] = "sender: not mapped",
                     [READ_ONLY] = "sender: not readable",
                     [OTHER] = "sender: registration refused"},
    [REGX_RECEIVER] = {[LIMIT] = "receiver: over the limit of locked memory",
                       [SHARE] = "receiver: over btl_regx_once_bytes",
                       [ROOM] = "receiver: no room in kernel or device",
                       [MEMORY] = "receiver: no memory to register",
                       [GONE] = "receiver: not mapped",
                       [READ_ONLY] = "receiver: not writable",
                       [OTHER] = "receiver: registration refused"}};

/* What of the range cannot be used: nothing of it (OTHER), or why. */
static reason_t look_at_mappings(regx_end_t end, uintptr_t start, uintptr_t beyond)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], may[2];
    uintptr_t from, to, at = start;
    reason_t reason = GONE;

    if (maps == NULL) {
        return OTHER;
    }
    while (at < beyond && fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c", &from, &to, &may[0], &may[1]) != 4 ||
            to <= at) {
            continue;
        }
        if (from > at) {
            break;
        }
        if (may[end == REGX_RECEIVER] == '-') {
            reason = READ_ONLY;
            break;
        }
        at = to;
    }
    fclose(maps);
    return at < beyond ? reason : OTHER;
}

/* Who had no room for it: the limit of locked memory, or else kernel or device. */
static reason_t look_at_limit(uintptr_t start, size_t length)
{
    const uint64_t limit = regx_memlock_limit(), page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t pages = (start % page + length + page - 1) & ~(page - 1);

    return limit != REGX_MEMLOCK_NONE && regx_memlock_pinned() + pages > limit ? LIMIT : ROOM;
}

/* Why there was no memory. */
static reason_t short_of(const regx_region_t *refused, uintptr_t start, size_t length, bool looks)
{
    if (refused->over_share) {
        return SHARE;
    }
    return looks ? look_at_limit(start, length) : MEMORY;
}

void regx_refusal_tally(regx_rndv_t *rndv, regx_end_t end, regx_status_t status,
                        const regx_region_t *refused, const void *base, size_t length)
{
    const bool looks = atomic_fetch_add(&rndv->refusals, 1) < REGX_REFUSALS_LOOKED_INTO;
    const uintptr_t start = (uintptr_t)base;
    reason_t reason = OTHER;

    if (status == REGX_NO_MEMORY) {
        reason = short_of(refused, start, length, looks);
    } else if (status == REGX_DENIED && looks) {
        reason = look_at_mappings(end, start, start + length);
    }
    regx_fall_back(rndv, texts[end][reason]);
}
