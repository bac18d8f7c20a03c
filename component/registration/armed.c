/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/armed.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MOST_BY_DEFAULT (65530 / 10)
#define MOST_PASSES 100              /* over memory that other threads move all the time */
#define MOST_PASSES_UNASKED 3        /* where each of them costs as much as the first */
#define REFUSED_BEFORE_COUNTING 1000 /* counting takes a microsecond for each mapping there is */
#define COUNTED_AT_LEAST 256         /* mappings armed, between two counts */

/* A mapping that was touched beside an armed one never merges with it, so that each that is armed
 * may be one more for good. Buffers that are mapped, touched and used one after the other would so
 * reach the limit. From MANY on, one more is armed only after as many ranges were put off as there
 * are MANY_PER armed: n uses of as many buffers arm some sqrt(2 MANY_PER n) mappings, and what was
 * put off merges and is armed as one. */
#define MANY 512u
#define MANY_PER 256u

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
    *armed = (regx_armed_t){
        .uffd = uffd, .changes = changes, .count_again = COUNTED_AT_LEAST, .most = most_mappings()};
    pthread_mutex_init(&armed->lock, NULL);
    return regx_maps_open(&armed->maps);
}

void regx_armed_close(regx_armed_t *armed)
{
    regx_maps_close(&armed->maps);
    pthread_mutex_destroy(&armed->lock);
}

/* Whether the kernel can be asked what is armed (Linux 6.7). Where it cannot, a mapping is armed
 * anew whenever a region is made in it, which does nothing to one that is armed. */
static bool can_ask(const regx_armed_t *armed)
{
    return armed->uffd->pagemap >= 0;
}

/* A mapping is armed as a whole or not at all: by any page of it. */
static bool is_armed(const regx_armed_t *armed, uintptr_t at)
{
    return can_ask(armed) && regx_uffd_armed(armed->uffd, at, at + 1);
}

/* ---- what is there ---- */

typedef struct look {
    regx_armed_t *armed;
    uintptr_t start, end;         /* the range */
    uintptr_t at;                 /* looked at so far */
    uintptr_t arm_start, arm_end; /* the range, with the rest of huge pages' mappings */
    uintptr_t new_start, new_end; /* from the first to the last mapping that is not armed */
    uint32_t unarmed;             /* how many these are (that cannot be asked: all), */
    uint32_t mappings;            /* of how many */
    const char *reason;           /* why it cannot be watched */
} look_t;

/* Whether the mapping goes on where the last one ended, and is of a kind that can be watched. */
static bool suits(look_t *look, const regx_mapping_t *mapping)
{
    if (mapping->kind == REGX_MAPPING_SHARED) {
        look->reason = "not watched: shared memory";
    } else if (mapping->kind == REGX_MAPPING_FILE) {
        look->reason = "not watched: a mapping of a file";
    }
    return mapping->start <= look->at && look->reason == NULL; /* else a hole, as look_over finds */
}

static bool look_at(void *context, const regx_mapping_t *mapping)
{
    look_t *look = context;

    if (!suits(look, mapping)) {
        return false;
    }
    /* Judged by a page of the range: others may be changing what is outside. */
    if (!is_armed(look->armed, look->at)) {
        look->new_start = look->unarmed == 0 ? mapping->start : look->new_start;
        look->new_end = mapping->end;
        look->unarmed++;
        if (can_ask(look->armed)) {
            /* Regions that were made in it are of something that is no longer there. */
            regx_changes_log(look->armed->changes, mapping->start, mapping->end);
        }
    }
    if (mapping->kind == REGX_MAPPING_HUGE) { /* of which no part can be armed */
        look->arm_start = mapping->start < look->start ? mapping->start : look->arm_start;
        look->arm_end = mapping->end > look->end ? mapping->end : look->arm_end;
    }
    look->mappings++;
    look->at = mapping->end;
    return true;
}

static void look_over(look_t *look, regx_armed_t *armed, uintptr_t start, uintptr_t end)
{
    *look = (look_t){.armed = armed,
                     .start = start,
                     .end = end,
                     .at = start,
                     .arm_start = start,
                     .arm_end = end};
    regx_maps_each(&armed->maps, start, end, look_at, look);
    if (look->reason == NULL && look->at < end) {
        look->reason = "not watched: not all of it is mapped";
    }
}

/* ---- how much is armed ---- */

typedef struct count {
    const regx_armed_t *of;
    uint32_t armed; /* or may be */
} count_t;

static bool can_be_armed(const regx_mapping_t *mapping)
{
    return mapping->kind == REGX_MAPPING_PRIVATE || mapping->kind == REGX_MAPPING_HUGE;
}

static bool count_one(void *context, const regx_mapping_t *mapping)
{
    count_t *count = context;

    if (can_be_armed(mapping) && (!can_ask(count->of) || is_armed(count->of, mapping->start))) {
        count->armed++;
    }
    return true;
}

/* The count does not hear of what changes disarm: it is counted anew whenever there may be twice as
 * many as the last time, and at the limit now and then. */
static bool has_room(regx_armed_t *armed, uint32_t for_mappings)
{
    count_t count = {.of = armed};
    const uint32_t again = armed->count_again < armed->most ? armed->count_again : armed->most;

    if (armed->count + for_mappings <= again) {
        return true;
    }
    if (armed->refused > 0 && armed->refused < REFUSED_BEFORE_COUNTING) {
        armed->refused++;
        return false;
    }
    regx_maps_each(&armed->maps, 0, UINTPTR_MAX, count_one, &count);
    armed->count = count.armed;
    armed->count_again = 2 * count.armed + COUNTED_AT_LEAST;
    /* With some to spare, or the next would count again. */
    armed->refused = armed->count + for_mappings <= armed->most - armed->most / 8 ? 0 : 1;
    return armed->refused == 0;
}

static bool is_put_off(regx_armed_t *armed)
{
    if (!can_ask(armed) || armed->count < MANY || armed->put_off >= armed->count / MANY_PER) {
        armed->put_off = 0;
        return false;
    }
    armed->put_off++;
    return true;
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
        return "not watched: too many mappings (vm.max_map_count)";
    default:
        return "not watched: the kernel refuses";
    }
}

/* Arms what lies in the range again: it may be armed by somebody else. Not what is outside of it,
 * where memory that nobody watches may just have come into the place of what was: the regions there
 * would seem true again. */
static const char *arm_again(const look_t *look)
{
    return reason_of(regx_uffd_arm(look->armed->uffd, look->arm_start, look->arm_end));
}

/* Arms the whole of a mapping that is not armed, and of one that is what lies in the range: of
 * several, each as it is now. */
static bool arm_one(void *context, const regx_mapping_t *mapping)
{
    look_t *look = context;
    const uintptr_t last = mapping->end < look->end ? mapping->end : look->end;

    if (!suits(look, mapping)) {
        return false;
    }
    const bool old = is_armed(look->armed, look->at);
    const bool part = old && mapping->kind != REGX_MAPPING_HUGE;

    if (!old && (mapping->start < look->new_start || mapping->end > look->new_end)) {
        look->reason = "not watched: it is changing"; /* it is not what we have logged */
        return false;
    }
    look->reason = reason_of(regx_uffd_arm(look->armed->uffd, part ? look->at : mapping->start,
                                           part ? last : mapping->end));
    look->at = mapping->end;
    return look->reason == NULL;
}

static const char *arm_anew(look_t *look, uint64_t *since)
{
    regx_armed_t *armed = look->armed;

    if (!has_room(armed, look->unarmed)) {
        return reason_of(ENOMEM);
    }
    if (is_put_off(armed)) {
        return "not watched yet: many mappings are";
    }
    armed->count += look->unarmed;
    /* Behind what we have just logged ourselves, before watching begins. */
    *since = atomic_load(&armed->changes->head);
    if (look->mappings == 1) {
        look->reason = reason_of(regx_uffd_arm(armed->uffd, look->new_start, look->new_end));
    } else {
        look->at = look->start;
        regx_maps_each(&armed->maps, look->start, look->end, arm_one, look);
    }
    if (look->reason != NULL) {
        return look->reason;
    }
    /* Before it was armed, what we looked at may have been replaced by what must not be kept; from
     * here on it cannot be without our being told. */
    look_over(look, armed, look->start, look->end);
    if (look->reason != NULL) {
        return look->reason;
    }
    if (!can_ask(armed)) { /* what was a hole when it was armed is none any more */
        return arm_again(look);
    }
    return look->unarmed > 0 ? "not watched: it is changing" : NULL;
}

static const char *cover(regx_armed_t *armed, uintptr_t start, uintptr_t end, uint64_t *since)
{
    look_t look;

    *since = atomic_load(&armed->changes->head);
    look_over(&look, armed, start, end);
    if (look.reason != NULL) {
        return look.reason;
    }
    return look.unarmed == 0 ? arm_again(&look) : arm_anew(&look, since);
}

const char *regx_armed_cover(regx_armed_t *armed, uintptr_t start, uintptr_t end, uint64_t *since)
{
    pthread_mutex_lock(&armed->lock);
    const char *reason = cover(armed, start, end, since);
    pthread_mutex_unlock(&armed->lock);
    return reason;
}

/* ---- the end ---- */

typedef struct pass {
    const regx_armed_t *of;
    uint32_t found; /* mappings that were seen to be armed */
} pass_t;

static bool disarm_one(void *context, const regx_mapping_t *mapping)
{
    pass_t *pass = context;
    const regx_armed_t *armed = pass->of;

    if (!can_be_armed(mapping) || (can_ask(armed) && !is_armed(armed, mapping->start))) {
        return true;
    }
    /* What is another userfaultfd's cannot be armed, and is to stay so. */
    if (regx_uffd_arm(armed->uffd, mapping->start, mapping->end) == 0) {
        (void)regx_uffd_disarm(armed->uffd, mapping->start, mapping->end);
        pass->found += can_ask(armed) ? 1 : 0;
    }
    return true;
}

/* Whether nothing armed can have come into a place that it had passed. A move counts as under way
 * before anything moves, until the reader has taken it, and the reader then raises the sequence. */
static bool disarm_all(regx_armed_t *armed)
{
    pass_t pass = {.of = armed};
    const uint64_t sequence = atomic_load(&armed->changes->sequence);

    regx_maps_each(&armed->maps, 0, UINTPTR_MAX, disarm_one, &pass);
    return pass.found == 0 && sequence % 2 == 0 && regx_uffd_quiet(armed->uffd->fd) &&
           atomic_load(&armed->changes->sequence) == sequence;
}

void regx_armed_off(regx_armed_t *armed)
{
    const int most = can_ask(armed) ? MOST_PASSES : MOST_PASSES_UNASKED;

    pthread_mutex_lock(&armed->lock);
    for (int i = 0; i < most && !disarm_all(armed); i++) {
    }
    pthread_mutex_unlock(&armed->lock);
}
