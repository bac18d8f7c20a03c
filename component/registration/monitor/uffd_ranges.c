/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/monitor/uffd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_BY_DEFAULT (65530 / 10)
#define MAX_PASSES 100               /* over memory that other threads move all the time */
#define MAX_PASSES_UNASKED 3         /* where each of them costs as much as the first */
#define REFUSED_BEFORE_COUNTING 1000 /* counting takes a microsecond for each mapping there is */
#define MIN_BETWEEN_COUNTS 256       /* mappings watched, between two counts */

/* A mapping that was touched beside a watched one never merges with it, so that each that is
 * watched may be one more for good. Buffers that are mapped, touched and used one after the other
 * would so reach the limit. From MANY on, one more is watched only after one range was put off for
 * each MANY_PER that are watched. So n uses of n such buffers watch some sqrt(2 MANY_PER n)
 * mappings. What was put off merges, and is watched as one mapping. */
#define MANY 2048u
#define MANY_PER 256u

static uint32_t max_mappings(void)
{
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    unsigned count;

    if (file == NULL) {
        return MAX_BY_DEFAULT;
    }
    const uint32_t max = fscanf(file, "%u", &count) == 1 ? count / 10 : MAX_BY_DEFAULT;
    fclose(file);
    return max;
}

int regx_uffd_ranges_open(regx_uffd_ranges_t *ranges, const regx_uffd_t *uffd,
                          regx_inval_log_t *log)
{
    *ranges =
        (regx_uffd_ranges_t){.uffd = uffd, .log = log, .count_again = MANY, .max = max_mappings()};
    pthread_mutex_init(&ranges->lock, NULL);
    return regx_maps_open(&ranges->maps);
}

void regx_uffd_ranges_close(regx_uffd_ranges_t *ranges)
{
    regx_maps_close(&ranges->maps);
    pthread_mutex_destroy(&ranges->lock);
}

/* Whether the kernel can be asked what is watched (Linux 6.7). Where it cannot, a mapping is
 * watched anew whenever a region is made in it, which does nothing to one that is watched. */
static bool can_ask(const regx_uffd_ranges_t *ranges)
{
    return ranges->uffd->pagemap >= 0;
}

/* A mapping is watched as a whole or not at all: by any page of it. */
static bool is_registered(const regx_uffd_ranges_t *ranges, uintptr_t at)
{
    return can_ask(ranges) && regx_uffd_is_registered(ranges->uffd, at, at + 1);
}

/* ---- what is there ---- */

typedef struct look {
    regx_uffd_ranges_t *ranges;
    uintptr_t start, end;             /* the range */
    uintptr_t at;                     /* looked at so far */
    uintptr_t whole_start, whole_end; /* the range, with the rest of huge pages' mappings */
    uintptr_t new_start, new_end;     /* from the first to the last mapping that is unwatched */
    uint32_t unregistered;            /* how many these are (that cannot be asked: all), */
    uint32_t mappings;                /* of how many */
    const char *reason;               /* why it cannot be watched */
} look_t;

/* Whether the mapping goes on where the last one ended, and is of a kind that can be watched. */
static bool suits(look_t *look, const regx_vma_t *mapping)
{
    if (mapping->kind == REGX_VMA_SHARED) {
        look->reason = "not watched: shared memory";
    } else if (mapping->kind == REGX_VMA_FILE) {
        look->reason = "not watched: a mapping of a file";
    }
    return mapping->start <= look->at && look->reason == NULL; /* else a hole, as look_over finds */
}

static bool look_at(void *context, const regx_vma_t *mapping)
{
    look_t *look = context;

    if (!suits(look, mapping)) {
        return false;
    }
    /* Judged by a page of the range: others may be changing what is outside. */
    if (!is_registered(look->ranges, look->at)) {
        look->new_start = look->unregistered == 0 ? mapping->start : look->new_start;
        look->new_end = mapping->end;
        look->unregistered++;
        if (can_ask(look->ranges)) {
            /* Regions that were made in it are of something that is no longer there. */
            regx_inval_log_write(look->ranges->log, mapping->start, mapping->end);
        }
    }
    if (mapping->kind == REGX_VMA_HUGE) { /* of which no part can be watched */
        look->whole_start = mapping->start < look->start ? mapping->start : look->whole_start;
        look->whole_end = mapping->end > look->end ? mapping->end : look->whole_end;
    }
    look->mappings++;
    look->at = mapping->end;
    return true;
}

static void look_over(look_t *look, regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end)
{
    *look = (look_t){.ranges = ranges,
                     .start = start,
                     .end = end,
                     .at = start,
                     .whole_start = start,
                     .whole_end = end};
    regx_maps_each(&ranges->maps, start, end, look_at, look);
    if (look->reason == NULL && look->at < end) {
        look->reason = "not watched: not all of it is mapped";
    }
}

/* ---- how much is watched ---- */

typedef struct count {
    const regx_uffd_ranges_t *of;
    uint32_t ranges; /* or may be */
} count_t;

static bool can_be_registered(const regx_vma_t *mapping)
{
    return mapping->kind == REGX_VMA_PRIVATE || mapping->kind == REGX_VMA_HUGE;
}

static bool count_one(void *context, const regx_vma_t *mapping)
{
    count_t *count = context;

    if (can_be_registered(mapping) &&
        (!can_ask(count->of) || is_registered(count->of, mapping->start))) {
        count->ranges++;
    }
    return true;
}

/* The count does not hear of what changes unregister: it is counted anew whenever there may be
 * twice as many as the last time, and MANY (nobody asks whether there are fewer), and at the limit
 * now and then. */
static bool has_room(regx_uffd_ranges_t *ranges, uint32_t for_mappings)
{
    count_t count = {.of = ranges};
    const uint32_t again = ranges->count_again < ranges->max ? ranges->count_again : ranges->max;

    if (ranges->count + for_mappings <= again) {
        return true;
    }
    if (ranges->refused > 0 && ranges->refused < REFUSED_BEFORE_COUNTING) {
        ranges->refused++;
        return false;
    }
    regx_maps_each(&ranges->maps, 0, UINTPTR_MAX, count_one, &count);
    ranges->count = count.ranges;
    ranges->count_again =
        count.ranges + MIN_BETWEEN_COUNTS < MANY ? MANY : 2 * count.ranges + MIN_BETWEEN_COUNTS;
    /* With some to spare, or the next would count again. */
    ranges->refused = ranges->count + for_mappings <= ranges->max - ranges->max / 8 ? 0 : 1;
    return ranges->refused == 0;
}

static bool is_put_off(regx_uffd_ranges_t *ranges)
{
    if (!can_ask(ranges) || ranges->count < MANY || ranges->put_off >= ranges->count / MANY_PER) {
        ranges->put_off = 0;
        return false;
    }
    ranges->put_off++;
    return true;
}

/* ---- watching ---- */

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

/* Watches what lies in the range again: it may be watched by somebody else. Not what is outside of
 * it, where memory that nobody watches may just have come into the place of what was: the regions
 * there would seem true again. */
static const char *register_again(const look_t *look)
{
    return reason_of(regx_uffd_register(look->ranges->uffd, look->whole_start, look->whole_end));
}

/* Watches the whole of a mapping that is unwatched, and of one that is what lies in the range: of
 * several, each as it is now. */
static bool register_one(void *context, const regx_vma_t *mapping)
{
    look_t *look = context;
    const uintptr_t last = mapping->end < look->end ? mapping->end : look->end;

    if (!suits(look, mapping)) {
        return false;
    }
    const bool old = is_registered(look->ranges, look->at);
    const bool part = old && mapping->kind != REGX_VMA_HUGE;

    if (!old && (mapping->start < look->new_start || mapping->end > look->new_end)) {
        look->reason = "not watched: it is changing"; /* it is not what we have logged */
        return false;
    }
    look->reason = reason_of(regx_uffd_register(
        look->ranges->uffd, part ? look->at : mapping->start, part ? last : mapping->end));
    look->at = mapping->end;
    return look->reason == NULL;
}

static const char *register_anew(look_t *look, uint64_t *since)
{
    regx_uffd_ranges_t *ranges = look->ranges;

    if (!has_room(ranges, look->unregistered)) {
        return reason_of(ENOMEM);
    }
    if (is_put_off(ranges)) {
        return "not watched yet: many mappings are";
    }
    ranges->count += look->unregistered;
    /* Behind what we have just logged ourselves, before watching begins. */
    *since = atomic_load(&ranges->log->head);
    if (look->mappings == 1) {
        look->reason = reason_of(regx_uffd_register(ranges->uffd, look->new_start, look->new_end));
    } else {
        look->at = look->start;
        regx_maps_each(&ranges->maps, look->start, look->end, register_one, look);
    }
    if (look->reason != NULL) {
        return look->reason;
    }
    /* Before it was watched, what we looked at may have been replaced by what must not be kept;
     * from here on it cannot be without our being told. */
    look_over(look, ranges, look->start, look->end);
    if (look->reason != NULL) {
        return look->reason;
    }
    if (!can_ask(ranges)) { /* what was a hole when it was watched is none any
                               more */
        return register_again(look);
    }
    return look->unregistered > 0 ? "not watched: it is changing" : NULL;
}

static const char *subscribe(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end,
                             uint64_t *since)
{
    look_t look;

    *since = atomic_load(&ranges->log->head);
    look_over(&look, ranges, start, end);
    if (look.reason != NULL) {
        return look.reason;
    }
    return look.unregistered == 0 ? register_again(&look) : register_anew(&look, since);
}

const char *regx_uffd_ranges_add(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end,
                                 uint64_t *since)
{
    pthread_mutex_lock(&ranges->lock);
    const char *reason = subscribe(ranges, start, end, since);
    pthread_mutex_unlock(&ranges->lock);
    return reason;
}

/* ---- the end ---- */

typedef struct pass {
    const regx_uffd_ranges_t *of;
    uint32_t found; /* mappings that were seen to be watched */
} pass_t;

static bool unregister_one(void *context, const regx_vma_t *mapping)
{
    pass_t *pass = context;
    const regx_uffd_ranges_t *ranges = pass->of;

    if (!can_be_registered(mapping) ||
        (can_ask(ranges) && !is_registered(ranges, mapping->start))) {
        return true;
    }
    /* What is another userfaultfd's cannot be watched, and is to stay so. */
    if (regx_uffd_register(ranges->uffd, mapping->start, mapping->end) == 0) {
        (void)regx_uffd_unregister(ranges->uffd, mapping->start, mapping->end);
        pass->found += can_ask(ranges) ? 1 : 0;
    }
    return true;
}

/* Whether nothing watched can have come into a place that it had passed. A move counts as under way
 * before anything moves, until the reader has taken it, and the reader then raises the sequence. */
static bool unregister_all(regx_uffd_ranges_t *ranges)
{
    pass_t pass = {.of = ranges};
    const uint64_t sequence = atomic_load(&ranges->log->sequence);

    regx_maps_each(&ranges->maps, 0, UINTPTR_MAX, unregister_one, &pass);
    return pass.found == 0 && sequence % 2 == 0 && regx_uffd_is_idle(ranges->uffd->fd) &&
           atomic_load(&ranges->log->sequence) == sequence;
}

void regx_uffd_ranges_clear(regx_uffd_ranges_t *ranges)
{
    const int max = can_ask(ranges) ? MAX_PASSES : MAX_PASSES_UNASKED;

    pthread_mutex_lock(&ranges->lock);
    for (int i = 0; i < max && !unregister_all(ranges); i++) {
    }
    pthread_mutex_unlock(&ranges->lock);
}
