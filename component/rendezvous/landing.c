/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/landing.h"

#include <assert.h>
#include <string.h>

#include "base/copy.h"

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

#define DONTNEED_LOCKED                                                                            \
    24               /* MADV_DONTNEED_LOCKED of Linux 5.18: as MADV_DONTNEED, also if the program
                              has locked all its memory */
#define MAX_TRIES 16 /* where the kernel answers that something else is in its way */

void regx_landings_init(regx_landings_t *landings, const regx_rndv_config_t *config,
                        regx_counters_t *counters)
{
    *landings =
        (regx_landings_t){.config = config,
                          .counters = counters,
                          .count = (unsigned)regx_min(2 * config->chunk_depth, REGX_LANDINGS_MAX),
                          .page = regx_page_size(),
                          .uffd = {.fd = -1}};
    regx_lock_init(&landings->lock, config->threads);
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

static const char *open_all(regx_landings_t *landings)
{
    const size_t size = landings->config->chunk_size;
    const size_t bytes = 2 * size * landings->count;
    const int fd = regx_uffd_create(UFFD_USER_MODE_ONLY, UFFD_FEATURE_MOVE);

    if (fd < 0) {
        return fd != REGX_UFFD_LACKS && errno != ENOSYS
                   ? "remap: userfaultfd is refused here"
                   : "remap: this kernel has no UFFDIO_MOVE (Linux 6.8)";
    }
    landings->uffd = regx_file_of(fd);
    char *const areas = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (areas == MAP_FAILED) {
        close(fd);
        return "remap: no memory for landing pages";
    }
    /* A child does not get them, or after a fork none of them could be moved. */
    madvise(areas, bytes, MADV_DONTFORK);
    madvise(areas, bytes, MADV_NOHUGEPAGE);
    const uintptr_t start = (uintptr_t)areas;
    if (regx_uffd_register(fd, start, start + bytes) != 0 || regx_maps_open(&landings->maps) != 0) {
        munmap(areas, bytes);
        close(fd);
        return "remap: refused by the kernel here";
    }
    landings->areas = areas;
    for (unsigned i = 0; i < landings->count; i++) {
        regx_landing_t *landing = &landings->all[i];

        landing->memory = areas + 2 * i * size;
        landing->next = landings->free;
        landings->free = landing;
    }
    return NULL;
}

void regx_landings_fini(regx_landings_t *landings)
{
    if (landings->areas != NULL) {
        munmap(landings->areas, 2 * landings->config->chunk_size * landings->count);
        regx_file_close(&landings->maps.file);
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
    *start = regx_align_up((uintptr_t)base, landings->page);
    *end = ((uintptr_t)base + length) & ~(landings->page - 1);
    return *start < *end;
}

const char *regx_landings_refusal(regx_landings_t *landings, const void *base, size_t length)
{
    look_t look = {.refusal = NULL};

    if (!whole_pages(landings, base, length, &look.at, &look.end)) {
        return "remap: no whole page in it";
    }
    regx_lock(&landings->lock);
    if (landings->areas == NULL && landings->refusal == NULL) {
        landings->refusal = open_all(landings);
    }
    if (landings->areas != NULL) {
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
    size_t in;  /* bytes of the landing's that are the user's now, as the kernel reported */
} part_t;

static void report_change(const regx_landings_t *landings, const part_t *part)
{
    const regx_rndv_config_t *config = landings->config;

    if (config->changes != NULL) {
        config->changes(config->context, (uintptr_t)part->to, (uintptr_t)part->to + part->length);
    }
}

/* NULL, or why not all of it was moved. */
static const char *move_part(const regx_landings_t *landings, const regx_landing_t *landing,
                             part_t *part)
{
    char *const from = landing->memory + part->at;
    char *const spare = from + landings->config->chunk_size;
    const uintptr_t start = (uintptr_t)part->to, end = start + part->length;

    if (!regx_file_is_ours(&landings->uffd)) {
        return "remap: its userfaultfd was closed by the program";
    }
    /* The kernel moves pages only to memory that the userfaultfd watches. The user's is watched for this
     * delivery alone; if it is watched already, that is no error. */
    int error = regx_uffd_register(landings->uffd.fd, start, end);
    if (error == 0) {
        report_change(landings, part); /* before the first move */
        part->out = move_pages(landings, spare, part->to, part->length, true, &error);
        part->in = move_pages(landings, part->to, from, part->out, false, &error);
        (void)regx_uffd_unregister(landings->uffd.fd, start, end);
        report_change(landings, part);
    }
    if (part->in == part->length) {
        return NULL;
    }
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

const char *regx_landing_deliver(regx_landings_t *landings, regx_landing_t *landing, void *to,
                                 size_t length)
{
    const char *const from = regx_landing_at(landings, landing, to);
    const size_t skew = (uintptr_t)to % landings->page;
    regx_counters_t *counters = landings->counters;
    const char *reason = NULL;
    size_t moved = 0;
    uintptr_t start, end;

    if (whole_pages(landings, to, length, &start, &end)) {
        const size_t head = start - (uintptr_t)to;
        part_t part = {.to = (char *)to + head, .at = skew + head, .length = end - start};

        memcpy(to, from, head);
        reason = move_part(landings, landing, &part);
        /* What has not been moved is copied. The kernel may have moved more pages than it said: it forgets
         * some if it had to wait for one before (Linux 6.18). A page that was moved reads as zeros in the
         * landing. So a page of zeros is not copied: either it was moved, or zeros are what was written. Then
         * the user's old page is gone, too (out of the buffer, into the spare), and zeros are read there. */
        moved = part.in;
        for (size_t at = part.in; at < part.length; at += landings->page) {
            const char *const page = landing->memory + part.at + at;

            if (at < part.out && page[0] == 0 && memcmp(page, page + 1, landings->page - 1) == 0) {
                moved += landings->page;
            } else {
                memcpy(part.to + at, page, landings->page);
            }
        }
        memcpy(part.to + part.length, from + head + part.length, length - head - part.length);
        madvise(landing->memory, 2 * landings->config->chunk_size, DONTNEED_LOCKED);
    } else {
        regx_copy(to, from, length);
    }
    regx_count(counters, &counters->remap_pages, moved / landings->page);
    regx_count(counters, &counters->remap_copied_bytes, length - moved);
    return reason;
}
