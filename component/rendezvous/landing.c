/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rendezvous/landing.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/util.h"

/* linux/userfaultfd.h of Linux 6.8; older headers lack it. */
#ifndef UFFDIO_MOVE
struct uffdio_move {
    uint64_t dst, src, len, mode;
    int64_t move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#define UFFDIO_MOVE_MODE_DONTWAKE 0x1
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES 0x2
#define UFFD_FEATURE_MOVE (1u << 16)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define MAX_TRIES 16 /* where the kernel answers that something else is in its way */

static const char denied[] = "remap: userfaultfd is refused here";
static const char no_move[] = "remap: this kernel has no UFFDIO_MOVE (Linux 6.8)";
static const char closed[] = "remap: its userfaultfd was closed by the program";

void regx_landings_init(regx_landings_t *landings, const regx_landings_config_t *config)
{
    *landings = (regx_landings_t){.config = *config, .page = regx_page_size(), .uffd = {.fd = -1}};
    landings->config.count = (unsigned)regx_min(config->count, REGX_LANDINGS_MAX);
    regx_lock_init(&landings->lock, config->threads);
}

/* ---- the system calls ---- */

/* Mappings that changed hands may be watched again and again: it stays as it is. */
static bool watch(const regx_landings_t *landings, const char *start, size_t length, int *error)
{
    struct uffdio_register range = {.range = {.start = (uintptr_t)start, .len = length},
                                    .mode = UFFDIO_REGISTER_MODE_WP};

    if (ioctl(landings->uffd.fd, UFFDIO_REGISTER, &range) == 0) {
        return true;
    }
    *error = errno;
    return false;
}

static void unwatch(const regx_landings_t *landings, const char *start, size_t length)
{
    struct uffdio_range range = {.start = (uintptr_t)start, .len = length};

    ioctl(landings->uffd.fd, UFFDIO_UNREGISTER, &range);
}

/* Moves pages to where there are none; returns how many bytes of the beginning were moved.
 * `holes`: where there is no page, none is moved. */
static size_t move_pages(const regx_landings_t *landings, char *to, char *from, size_t length,
                         bool holes, int *error)
{
    size_t moved = 0;
    unsigned tries = 0;

    while (moved < length) {
        struct uffdio_move move = {.dst = (uintptr_t)to + moved,
                                   .src = (uintptr_t)from + moved,
                                   .len = length - moved,
                                   .mode = UFFDIO_MOVE_MODE_DONTWAKE |
                                           (holes ? UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES : 0)};

        if (ioctl(landings->uffd.fd, UFFDIO_MOVE, &move) == 0) {
            return length;
        }
        *error = errno;
        if (move.move > 0) {
            moved += (size_t)move.move;
        } else if (errno != EAGAIN || ++tries == MAX_TRIES) {
            break;
        }
    }
    return moved;
}

/* ---- opening ---- */

/* -1: none, and `why` is the reason. */
static int create(const char **why)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MOVE};
    const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

    *why = fd < 0 && errno != ENOSYS ? denied : no_move;
    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Does it once, in memory of our own. */
static bool moves(regx_landings_t *landings)
{
    int error = 0;
    char *const from = landings->areas, *const to = from + landings->config.size;

    if (!watch(landings, from, 2 * landings->config.size * landings->config.count, &error)) {
        return false;
    }
    memset(from, 0x5a, landings->page);
    const bool moved = move_pages(landings, to, from, landings->page, false, &error) > 0 &&
                       to[0] == 0x5a && to[landings->page - 1] == 0x5a && from[0] == 0;
    madvise(from, landings->page, MADV_DONTNEED);
    madvise(to, landings->page, MADV_DONTNEED);
    return moved;
}

static const char *open_all(regx_landings_t *landings)
{
    const size_t size = landings->config.size;
    const size_t bytes = 2 * size * landings->config.count;
    const char *why;

    landings->uffd = regx_file_of(create(&why));
    if (landings->uffd.fd < 0) {
        return why;
    }
    landings->areas = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (landings->areas == MAP_FAILED) {
        close(landings->uffd.fd);
        return "remap: no memory for landing pages";
    }
    /* A child does not get them, or after a fork none of them could be moved. */
    madvise(landings->areas, bytes, MADV_DONTFORK);
    madvise(landings->areas, bytes, MADV_NOHUGEPAGE);
    if (!moves(landings) || regx_maps_open(&landings->maps) != 0) {
        munmap(landings->areas, bytes);
        close(landings->uffd.fd);
        return "remap: refused by the kernel here";
    }
    for (unsigned i = 0; i < landings->config.count; i++) {
        regx_landing_t *landing = &landings->all[i];

        landing->memory = landings->areas + 2 * i * size;
        landing->spare = landing->memory + size;
        landing->next = landings->free;
        landings->free = landing;
    }
    return NULL;
}

static void open_once_locked(regx_landings_t *landings)
{
    if (landings->state == REGX_LANDINGS_CLOSED) {
        landings->refusal = open_all(landings);
        landings->state = landings->refusal == NULL ? REGX_LANDINGS_OPEN : REGX_LANDINGS_REFUSED;
    }
}

void regx_landings_fini(regx_landings_t *landings)
{
    if (landings->state == REGX_LANDINGS_OPEN) {
        munmap(landings->areas, 2 * landings->config.size * landings->config.count);
        regx_maps_close(&landings->maps);
        regx_file_close(&landings->uffd);
    }
    regx_lock_fini(&landings->lock);
}

/* ---- what can be moved ---- */

typedef struct look {
    uintptr_t at;  /* looked at so far */
    uintptr_t end; /* of the range */
    const char *refusal;
} look_t;

static bool look_at(void *context, const regx_vma_t *mapping)
{
    static const char *const refusals[] = {[REGX_VMA_PRIVATE] = NULL,
                                           [REGX_VMA_HUGE] =
                                               "remap: memory of huge pages (hugetlb)",
                                           [REGX_VMA_FILE] = "remap: a mapping of a file",
                                           [REGX_VMA_SHARED] = "remap: shared memory"};
    look_t *look = context;

    if (mapping->start > look->at) {
        return false;
    }
    look->refusal = refusals[mapping->kind];
    if (look->refusal == NULL && mapping->end < look->end) {
        look->refusal = "remap: more than one mapping"; /* the kernel moves within one */
    }
    look->at = mapping->end;
    return false;
}

/* The whole pages of [base, base + length). false: there are none. */
static bool whole_pages(const regx_landings_t *landings, const void *base, size_t length,
                        uintptr_t *start, uintptr_t *end)
{
    const uintptr_t mask = landings->page - 1;

    *start = ((uintptr_t)base + mask) & ~mask;
    *end = ((uintptr_t)base + length) & ~mask;
    return *start < *end;
}

const char *regx_landings_refusal(regx_landings_t *landings, const void *base, size_t length)
{
    look_t look = {.refusal = NULL};

    if (!whole_pages(landings, base, length, &look.at, &look.end)) {
        return "remap: no whole page in it";
    }
    regx_lock(&landings->lock);
    open_once_locked(landings);
    if (landings->state == REGX_LANDINGS_OPEN) {
        regx_maps_each(&landings->maps, look.at, look.end, look_at, &look);
    } else {
        look.refusal = landings->refusal;
    }
    regx_unlock(&landings->lock);
    return look.refusal == NULL && look.at < look.end ? "remap: not mapped" : look.refusal;
}

/* ---- landings ---- */

regx_landing_t *regx_landing_get(regx_landings_t *landings, const void *to, size_t length)
{
    assert(length <= regx_landing_room(landings, to));
    regx_lock(&landings->lock);
    regx_landing_t *landing = landings->free;
    if (landing != NULL) {
        landings->free = landing->next;
    }
    regx_unlock(&landings->lock);
    if (landing != NULL) {
        const size_t mask = landings->page - 1;
        const size_t used = ((uintptr_t)to % landings->page + length + mask) & ~mask;

        landing->used = regx_max(landing->used, used);
    }
    return landing;
}

void regx_landing_put(regx_landings_t *landings, regx_landing_t *landing)
{
    regx_lock(&landings->lock);
    landing->next = landings->free;
    landings->free = landing;
    regx_unlock(&landings->lock);
}

/* ---- delivery ---- */

/* One delivery's whole pages. */
typedef struct part {
    char *to;
    size_t at; /* of the first, from the start of the landing */
    size_t length;
    size_t out; /* bytes of the user's old pages that are in the spare now */
    size_t in;  /* bytes of the landing's that are the user's now */
} part_t;

static const char *reason_of(int error)
{
    switch (error) {
    case EBUSY:
        return "remap: pages pinned, shared with a child, or watched";
    case EINVAL:
        return "remap: memory that is locked or protected otherwise";
    case ENOMEM:
        return "remap: no memory, or too many mappings";
    default:
        return "remap: refused by the kernel";
    }
}

static void report_change(const regx_landings_t *landings, const part_t *part)
{
    if (landings->config.changes != NULL) {
        landings->config.changes(landings->config.context, (uintptr_t)part->to,
                                 (uintptr_t)part->to + part->length);
    }
}

static const char *move_part(const regx_landings_t *landings, const regx_landing_t *landing,
                             part_t *part)
{
    int error = 0;

    if (!regx_file_is_ours(&landings->uffd)) {
        return closed;
    }
    if (watch(landings, part->to, part->length, &error)) {
        report_change(landings, part); /* before the first move */
        part->out =
            move_pages(landings, landing->spare + part->at, part->to, part->length, true, &error);
        part->in =
            move_pages(landings, part->to, landing->memory + part->at, part->out, false, &error);
        unwatch(landings, part->to, part->length);
        report_change(landings, part);
    }
    return part->in == part->length ? NULL : reason_of(error);
}

/* Makes the spare empty again, so that the user's old pages are what is written into next. */
static void tidy(const regx_landings_t *landings, regx_landing_t *landing, const part_t *part,
                 size_t used)
{
    char *const memory = landing->memory, *const spare = landing->spare;
    const size_t at = part->at, behind = at + part->length;
    bool tidied = false;
    int error;

    if (part->out == 0) {
        return; /* nothing has moved */
    }
    if (part->out == part->length && part->in == part->length && landing->used == used) {
        /* Nothing else is left than the pages at the edges: they follow the others. */
        tidied = move_pages(landings, spare, memory, at, true, &error) == at &&
                 move_pages(landings, spare + behind, memory + behind, used - behind, true,
                            &error) == used - behind;
        if (tidied) {
            landing->memory = spare;
            landing->spare = memory;
        }
    } else if (part->in == part->length) {
        tidied = move_pages(landings, memory + at, spare + at, part->length, true, &error) ==
                 part->length;
    }
    if (!tidied) {
        madvise(memory, landings->config.size, MADV_DONTNEED);
        madvise(spare, landings->config.size, MADV_DONTNEED);
        landing->used = 0;
    }
}

const char *regx_landing_deliver(regx_landings_t *landings, regx_landing_t *landing, void *to,
                                 size_t length)
{
    const char *const from = regx_landing_at(landings, landing, to);
    const size_t mask = landings->page - 1;
    const size_t skew = (uintptr_t)to & mask;
    regx_counters_t *counters = landings->config.counters;
    const char *reason = NULL;
    part_t part = {0};
    uintptr_t start, end;

    assert(skew + length <= landing->used);
    if (whole_pages(landings, to, length, &start, &end)) {
        const size_t head = start - (uintptr_t)to;

        part = (part_t){.to = (char *)to + head, .at = skew + head, .length = end - start};
        memcpy(to, from, head);
        reason = move_part(landings, landing, &part);
        memcpy(part.to + part.in, from + head + part.in, length - head - part.in);
        tidy(landings, landing, &part, (skew + length + mask) & ~mask);
    } else {
        regx_copy(to, from, length);
    }
    regx_count(counters, &counters->remap_pages, part.in / landings->page);
    regx_count(counters, &counters->remap_copied_bytes, length - part.in);
    return reason;
}
