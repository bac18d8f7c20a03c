/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/armed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OUTWARDS ((uintptr_t)2 << 20)
#define MOST_BY_DEFAULT (65530 / 10)
#define REFUSED_BEFORE_COUNTING 1000 /* counting takes a microsecond for each mapping there is */

static uint32_t most_mappings(void)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    unsigned count;

    if (file == NULL) {
        return MOST_BY_DEFAULT;
    }
    const uint32_t most = fscanf(file, "%u", &count) == 1 ? count / 10 : MOST_BY_DEFAULT;
    fclose(file);
    return most;
}

int regx_armed_open(regx_armed_t *armed, const regx_uffd_t *uffd, regx_changes_t *changes)
{
    *armed = (regx_armed_t){.uffd = uffd, .changes = changes, .most = most_mappings()};
    pthread_mutex_init(&armed->lock, NULL);
    return regx_maps_open(&armed->maps);
}

void regx_armed_close(regx_armed_t *armed)
{
    regx_maps_close(&armed->maps);
    pthread_mutex_destroy(&armed->lock);
}

/* ---- what is there ---- */

typedef struct look {
    regx_armed_t *armed;
    uintptr_t start, end;             /* the range */
    uintptr_t at;                     /* looked at so far */
    uintptr_t outer_start, outer_end; /* what to arm for it */
    uint32_t unarmed;                 /* mappings in it that are not */
    const char *reason;               /* why it cannot be watched */
} look_t;

static bool look_at(void *context, const regx_mapping_t *mapping)
{
    look_t *look = context;

    if (mapping->start > look->at) {
        return false; /* a hole, as look_over finds */
    }
    if (mapping->kind == REGX_MAPPING_SHARED) {
        look->reason = "not watched: shared memory";
        return false;
    }
    if (mapping->kind == REGX_MAPPING_FILE) {
        look->reason = "not watched: a mapping of a file";
        return false;
    }
    const bool huge = mapping->kind == REGX_MAPPING_HUGE; /* whole, whatever its page's size */
    const uintptr_t at = look->at; /* not outside of the range, which others may be changing */
    const uintptr_t down = look->start / OUTWARDS * OUTWARDS;
    const uintptr_t last = (look->end - 1) / OUTWARDS * OUTWARDS + (OUTWARDS - 1);
    const uintptr_t from = huge || mapping->start > down ? mapping->start : down;
    const uintptr_t to = huge || mapping->end - 1 < last ? mapping->end : last + 1;

    if (at == look->start) {
        look->outer_start = from;
    }
    look->outer_end = to;
    look->at = mapping->end;
    if (!regx_uffd_mapping_armed(look->armed->uffd, at, mapping->start, mapping->end)) {
        /* Regions that were made in it are of something that is no longer there. */
        look->unarmed++;
        regx_changes_log(look->armed->changes, from, to);
    }
    return true;
}

static void look_over(look_t *look, regx_armed_t *armed, uintptr_t start, uintptr_t end)
{
    *look = (look_t){.armed = armed, .start = start, .end = end, .at = start};
    regx_maps_each(&armed->maps, start, end, look_at, look);
    if (look->reason == NULL && look->at < end) {
        look->reason = "not watched: not all of it is mapped";
    }
}

/* ---- how much is armed ---- */

typedef struct count {
    const regx_uffd_t *uffd;
    uint32_t armed;
} count_t;

static bool count_one(void *context, const regx_mapping_t *mapping)
{
    count_t *count = context;

    if ((mapping->kind == REGX_MAPPING_PRIVATE || mapping->kind == REGX_MAPPING_HUGE) &&
        regx_uffd_mapping_armed(count->uffd, mapping->start, mapping->start, mapping->end)) {
        count->armed++;
    }
    return true;
}

static bool has_room(regx_armed_t *armed, uint32_t for_mappings)
{
    count_t count = {.uffd = armed->uffd};

    if (armed->count + for_mappings <= armed->most) {
        return true;
    }
    if (armed->refused > 0 && armed->refused < REFUSED_BEFORE_COUNTING) {
        armed->refused++;
        return false;
    }
    regx_maps_each(&armed->maps, 0, UINTPTR_MAX, count_one, &count);
    armed->count = count.armed;
    /* With some to spare, or the next would count again. */
    armed->refused = armed->count + for_mappings <= armed->most - armed->most / 8 ? 0 : 1;
    return armed->refused == 0;
}

/* ---- arming ---- */

static const char *reason_of(int error)
{
    switch (error) {
    case 0:
        return NULL;
    case EBUSY:
        return "not watched: another userfaultfd has it";
    case ENOMEM:
        return "not watched: too many mappings";
    default:
        return "not watched: the kernel refuses";
    }
}

static const char *cover(regx_armed_t *armed, uintptr_t start, uintptr_t end, uint64_t *since)
{
    look_t look;

    *since = atomic_load(&armed->changes->head);
    look_over(&look, armed, start, end);
    if (look.reason != NULL) {
        return look.reason;
    }
    if (look.unarmed == 0) {
        /* Again: it may be armed by somebody else. */
        return reason_of(regx_uffd_arm(armed->uffd, look.outer_start, look.outer_end));
    }
    if (!has_room(armed, look.unarmed)) {
        return reason_of(ENOMEM);
    }
    armed->count += look.unarmed;
    /* Behind what we have just logged ourselves, before watching begins. */
    *since = atomic_load(&armed->changes->head);
    const int error = regx_uffd_arm(armed->uffd, look.outer_start, look.outer_end);
    if (error != 0) {
        return reason_of(error);
    }
    /* Before it was armed, what we looked at may have been replaced by what must not be kept; from
     * here on it cannot be without our being told. */
    look_over(&look, armed, start, end);
    return look.reason == NULL && look.unarmed > 0 ? "not watched: it is changing" : look.reason;
}

const char *regx_armed_cover(regx_armed_t *armed, uintptr_t start, uintptr_t end, uint64_t *since)
{
    pthread_mutex_lock(&armed->lock);
    const char *reason = cover(armed, start, end, since);
    pthread_mutex_unlock(&armed->lock);
    return reason;
}

/* ---- the end ---- */

static bool disarm_one(void *context, const regx_mapping_t *mapping)
{
    if (mapping->kind == REGX_MAPPING_PRIVATE || mapping->kind == REGX_MAPPING_HUGE) {
        (void)regx_uffd_disarm(context, mapping->start, mapping->end);
    }
    return true;
}

void regx_armed_off(regx_armed_t *armed)
{
    regx_uffd_t uffd = *armed->uffd;

    pthread_mutex_lock(&armed->lock);
    regx_maps_each(&armed->maps, 0, UINTPTR_MAX, disarm_one, &uffd);
    pthread_mutex_unlock(&armed->lock);
}
