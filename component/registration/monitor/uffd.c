/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/monitor/uffd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* What headers older than Linux 6.7 lack. */
#ifndef UFFD_FEATURE_EXACT_ADDRESS
#define UFFD_FEATURE_EXACT_ADDRESS (1 << 11)
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef PAGEMAP_SCAN
#define PAGE_IS_WPALLOWED (1 << 0)
#define PM_SCAN_CHECK_WPASYNC (1 << 1)
struct pm_scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#endif

/* All are required. The last is not used: it shows Linux 5.18 or later. Before 5.15 the kernel did
 * not count the changes under way, and regx_uffd_is_idle would be wrong. */
#define NEEDED                                                                                     \
    ((uint64_t)(UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |  \
                UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EXACT_ADDRESS))
/* What PAGEMAP_SCAN needs. */
#define FOR_SCAN ((uint64_t)(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED))

static const char *reason_of_refusal(int error)
{
    switch (error) {
    case EPERM:
    case EACCES:
        return ": refused by a seccomp filter or security module (as it takes no privilege, "
               "vm.unprivileged_userfaultfd does not matter)";
    case ENOSYS:
        return ": not in this kernel, or hidden by a seccomp filter";
    case EINVAL:
        return ": this kernel knows none without privilege (Linux 5.11)";
    default:
        return "";
    }
}

int regx_uffd_create(int flags, uint64_t features)
{
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    const int fd =
        regx_descriptor_move((int)syscall(SYS_userfaultfd, flags | O_CLOEXEC | O_NONBLOCK));

    if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
        close(fd);
        return REGX_UFFD_LACKS;
    }
    return fd;
}

/* 0: none of what is mapped in the range is unwatched; 1: some is; -1: the kernel does not know. */
static int scan_unregistered(int pagemap, uintptr_t start, uintptr_t end)
{
    /* Refused at the first mapping that is unwatched; of what is, no page is looked at. Asking for
     * the unwatched pages themselves takes 0.25 us more where there are any. */
    struct pm_scan_arg scan = {.size = sizeof(scan),
                               .flags = PM_SCAN_CHECK_WPASYNC,
                               .start = start,
                               .end = end,
                               .category_inverted = PAGE_IS_WPALLOWED,
                               .category_mask = PAGE_IS_WPALLOWED};

    if (ioctl(pagemap, PAGEMAP_SCAN, &scan) == 0) {
        return 0;
    }
    return errno == EPERM ? 1 : -1;
}

regx_status_t regx_uffd_open(regx_uffd_t *uffd, regx_error_t error)
{
    const int scans = regx_uffd_create(UFFD_USER_MODE_ONLY, NEEDED | FOR_SCAN);
    const int fd = scans == REGX_UFFD_LACKS ? regx_uffd_create(UFFD_USER_MODE_ONLY, NEEDED) : scans;

    if (fd == REGX_UFFD_LACKS) {
        return regx_refuse(error, REGX_DENIED,
                           "userfaultfd: this kernel's lacks a feature (Linux 5.18)");
    }
    if (fd < 0) {
        return regx_refuse(error, REGX_DENIED, "userfaultfd: %s%s", strerror(errno),
                           reason_of_refusal(errno));
    }
    const uintptr_t page = regx_page_size(), here = (uintptr_t)&page & ~(page - 1);
    int pagemap = -1;

    uffd->file = regx_file_of(fd);
    if (scans >= 0) {
        pagemap = regx_descriptor_move(open(REGX_PROC "pagemap", O_RDONLY | O_CLOEXEC));
    }
    /* An empty range is refused by a filter alone. */
    if (pagemap >= 0 && (scan_unregistered(pagemap, here, here) != 0 ||
                         scan_unregistered(pagemap, here, here + page) != 1)) {
        close(pagemap);
        pagemap = -1;
    }
    uffd->pagemap = regx_file_of(pagemap);
    return REGX_OK;
}

void regx_uffd_close(regx_uffd_t *uffd)
{
    regx_file_close(&uffd->file);
    regx_file_close(&uffd->pagemap);
}

int regx_uffd_register(int fd, uintptr_t start, uintptr_t end)
{
    struct uffdio_register range = {.range = {.start = start, .len = end - start},
                                    .mode = UFFDIO_REGISTER_MODE_WP};

    return ioctl(fd, UFFDIO_REGISTER, &range) == 0 ? 0 : errno;
}

int regx_uffd_unregister(int fd, uintptr_t start, uintptr_t end)
{
    struct uffdio_range range = {.start = start, .len = end - start};

    return ioctl(fd, UFFDIO_UNREGISTER, &range) == 0 ? 0 : errno;
}

int regx_uffd_wait(const regx_uffd_t *uffd, int other, int milliseconds)
{
    const struct timespec time = {.tv_sec = milliseconds / 1000,
                                  .tv_nsec = milliseconds % 1000 * 1000000L};
    struct pollfd fds[] = {{.fd = uffd->file.fd, .events = POLLIN},
                           {.fd = other, .events = POLLIN}};
    const long ready = regx_raw(SYS_ppoll, (long)fds, 2, (long)&time, 0, 0);

    if (ready < 0 && ready != -EINTR) {
        return -1;
    }
    return (fds[0].revents != 0 ? REGX_UFFD_EVENT : 0) |
           (fds[1].revents != 0 ? REGX_UFFD_OTHER : 0);
}

int regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES])
{
    struct uffd_msg messages[REGX_UFFD_CHANGES / 2];

    if (!regx_file_is_ours(&uffd->file)) {
        return -1;
    }
    const long got = regx_raw(SYS_read, uffd->file.fd, (long)messages, sizeof(messages), 0, 0);
    int count = 0;

    if (got < 0 && got != -EAGAIN && got != -EINTR) {
        return -1;
    }
    for (size_t i = 0; got > 0 && i < (size_t)got / sizeof(messages[0]); i++) {
        const struct uffd_msg *message = &messages[i];

        if (message->event == UFFD_EVENT_REMAP) {
            const uintptr_t from = message->arg.remap.from, to = message->arg.remap.to;
            const uintptr_t length = message->arg.remap.len;

            changes[count++] = (regx_change_t){.start = from, .end = from + length};
            changes[count++] = (regx_change_t){.start = to, .end = to + length};
        } else if (message->event == UFFD_EVENT_UNMAP || message->event == UFFD_EVENT_REMOVE) {
            changes[count++] =
                (regx_change_t){.start = message->arg.remove.start, .end = message->arg.remove.end};
        }
    }
    return count;
}

/* ---- memory that the program pages itself ---- */

void regx_paging_open(regx_paging_t *paging)
{
    int fd = regx_uffd_create(UFFD_USER_MODE_ONLY, 0);

    if (fd == -1 && errno == EINVAL) { /* before Linux 5.11, where it may take a privilege */
        fd = regx_uffd_create(0, 0);
    }
    paging->possible = fd != -1 || (errno != ENOSYS && errno != EPERM && errno != EACCES);
    paging->file = fd >= 0 ? regx_file_of(fd) : (regx_file_t){.fd = -1};
    paging->maps = (regx_maps_t){.file.fd = -1};
    (void)regx_maps_open(&paging->maps);
    paging->hole = mmap(NULL, regx_page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void regx_paging_close(regx_paging_t *paging)
{
    regx_file_close(&paging->file);
    regx_file_close(&paging->maps.file);
    if (paging->hole != NULL && paging->hole != MAP_FAILED) {
        munmap(paging->hole, regx_page_size());
    }
}

/* ---- which mappings are watched ---- */

#define MAX_BY_DEFAULT (65530 / 10)
#define MAX_PASSES 100       /* over memory that other threads move all the time */
#define MAX_PASSES_UNASKED 3 /* where each of them costs as much as the first */

/* A mapping that was touched beside a watched one never merges with it, so that each that is
 * watched may be one more for good. Buffers that are mapped, touched and used one after the other
 * would so reach the limit. From MANY on, one more is watched only after one range was put off for
 * each MANY_PER that are watched. So n uses of n such buffers watch some sqrt(2 MANY_PER n)
 * mappings. What was put off merges, and is watched as one mapping. */
#define MANY 2048u
#define MANY_PER 256u

int regx_uffd_ranges_open(regx_uffd_ranges_t *ranges, const regx_uffd_t *uffd,
                          regx_inval_log_t *log)
{
    char line[32];
    unsigned count;

    regx_read_line("/proc/sys/vm/max_map_count", line, sizeof(line));
    const uint32_t max = sscanf(line, "%u", &count) == 1 ? count / 10 : MAX_BY_DEFAULT;

    *ranges = (regx_uffd_ranges_t){
        .uffd = uffd, .log = log, .maps = {.file = {.fd = -1}}, .max = max, .uncounted = max};
    pthread_mutex_init(&ranges->lock, NULL);
    return regx_maps_open(&ranges->maps);
}

void regx_uffd_ranges_close(regx_uffd_ranges_t *ranges)
{
    regx_file_close(&ranges->maps.file);
    pthread_mutex_destroy(&ranges->lock);
}

/* Whether the kernel can be asked what is watched (Linux 6.7). Where it cannot, a mapping is
 * watched anew whenever a region is made in it, which does nothing to one that is watched. */
static bool can_ask(const regx_uffd_ranges_t *ranges)
{
    return ranges->uffd->pagemap.fd >= 0;
}

/* A mapping is watched as a whole or not at all: by any page of it. Whether it is watched, or looks
 * so since another userfaultfd has it in just this way. Only where there is a pagemap: nothing else
 * can be asked without touching what may be another's. */
static bool is_registered(const regx_uffd_ranges_t *ranges, uintptr_t at)
{
    return can_ask(ranges) && scan_unregistered(ranges->uffd->pagemap.fd, at, at + 1) == 0;
}

/* ---- what is there ---- */

typedef struct look {
    const regx_uffd_ranges_t *ranges;
    uintptr_t at, end;  /* of the range: looked at so far */
    uintptr_t from, to; /* to be watched: the range, and the whole of each mapping that is unwatched
                            or of huge pages, of which no part can be */
    regx_vma_t last;    /* mapping that was looked at */
    uint32_t unwatched; /* mappings (that cannot be asked: all) */
    const char *reason; /* why it cannot be watched */
} look_t;

static bool look_at(void *context, const regx_vma_t *mapping)
{
    look_t *look = context;

    if (mapping->kind == REGX_VMA_SHARED) {
        look->reason = "not watched: shared memory";
    } else if (mapping->kind == REGX_VMA_FILE) {
        look->reason = "not watched: a mapping of a file";
    }
    if (look->reason != NULL || mapping->start > look->at) { /* a hole, as look_over finds */
        return false;
    }
    /* Judged by a page of the range: others may be changing what is outside. */
    const bool unwatched = !is_registered(look->ranges, look->at);
    if (unwatched && can_ask(look->ranges)) {
        /* Regions that were made in it are of something that is no longer there. */
        regx_inval_log_write(look->ranges->log, mapping->start, mapping->end);
    }
    if (unwatched || mapping->kind == REGX_VMA_HUGE) {
        look->from = regx_min(look->from, mapping->start);
        look->to = regx_max(look->to, mapping->end);
    }
    look->unwatched += unwatched;
    look->at = mapping->end;
    look->last = *mapping;
    return true;
}

static void look_over(look_t *look, regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end)
{
    *look = (look_t){.ranges = ranges, .at = start, .end = end, .from = start, .to = end};
    regx_maps_each(&ranges->maps, start, end, look_at, look);
    if (look->reason == NULL && look->at < end) {
        look->reason = "not watched: not all of it is mapped";
    }
}

/* ---- how much is watched ---- */

/* All mappings, to be counted or unregistered. */
typedef struct pass {
    const regx_uffd_ranges_t *of;
    uint32_t found; /* that are watched, or may be */
} pass_t;

static bool may_be_watched(const regx_uffd_ranges_t *ranges, const regx_vma_t *mapping)
{
    return (mapping->kind == REGX_VMA_PRIVATE || mapping->kind == REGX_VMA_HUGE) &&
           (!can_ask(ranges) || is_registered(ranges, mapping->start));
}

static bool count_one(void *context, const regx_vma_t *mapping)
{
    pass_t *pass = context;

    pass->found += may_be_watched(pass->of, mapping);
    return true;
}

static const char too_many[] = "not watched: too many mappings (vm.max_map_count)";

/* NULL: so many mappings more may be watched, and are counted. */
static const char *why_not_more(regx_uffd_ranges_t *ranges, uint32_t mappings)
{
    /* The count does not hear of what changes unregister: where it matters, mappings are counted anew,
     * but not often, since that takes a microsecond for each mapping there is. */
    if (ranges->count + mappings > regx_min(MANY, ranges->max) &&
        ranges->uncounted >= ranges->max / 8) {
        pass_t pass = {.of = ranges};

        regx_maps_each(&ranges->maps, 0, UINTPTR_MAX, count_one, &pass);
        ranges->count = pass.found;
        ranges->uncounted = 0;
    }
    ranges->uncounted += mappings;
    if (ranges->count + mappings > ranges->max) {
        return too_many;
    }
    if (can_ask(ranges) && ranges->count >= MANY && ranges->put_off < ranges->count / MANY_PER) {
        ranges->put_off++;
        return "not watched yet: many mappings are";
    }
    ranges->put_off = 0;
    ranges->count += mappings;
    return NULL;
}

/* ---- watching ---- */

static const char *register_all(const look_t *look)
{
    switch (regx_uffd_register(look->ranges->uffd->file.fd, look->from, look->to)) {
    case 0:
        return NULL;
    case EBUSY:
        return "not watched: another userfaultfd has it";
    case ENOMEM:
        return too_many;
    default:
        return "not watched: the kernel refuses";
    }
}

/* Whether all of it is watched, by our userfaultfd, as was found before of the mapping that it is in. No change
 * has been heard of since, so that is still of its kind, and no descriptor has to be recognized: of one that has
 * become another file the kernel knows no such call, and another userfaultfd is refused what ours watches (once ours
 * is gone nothing is watched, or the reader has lost it). What was replaced unheard (SHM_REMAP) is not watched. */
static bool is_known(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end)
{
    const uint64_t sequence = atomic_load(&ranges->log->sequence);

    for (uint32_t i = 0; i < REGX_UFFD_KNOWN; i++) {
        regx_uffd_known_t *known = &ranges->known[i];

        if (known->sequence == sequence && known->start <= start && end <= known->end) {
            if (scan_unregistered(ranges->uffd->pagemap.fd, start, end) == 0 &&
                regx_uffd_register(ranges->uffd->file.fd, start, end) == 0) {
                return true;
            }
            known->end = 0; /* something else is there */
        }
    }
    return false;
}

const char *regx_uffd_ranges_add(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end,
                                 uint64_t *since)
{
    look_t look = {.reason = NULL};

    pthread_mutex_lock(&ranges->lock);
    *since = atomic_load(&ranges->log->head);
    if (is_known(ranges, start, end)) {
        goto out;
    }
    const uint64_t sequence = atomic_load(&ranges->log->sequence);

    if (!regx_file_is_ours(&ranges->uffd->file)) {
        look.reason = REGX_UFFD_LOST;
        goto out;
    }
    look_over(&look, ranges, start, end);
    if (look.reason == NULL && look.unwatched > 0) {
        look.reason = why_not_more(ranges, look.unwatched);
        /* Behind what we have just logged ourselves, before watching begins. */
        *since = atomic_load(&ranges->log->head);
    }
    /* The range is registered even if all of it looks watched: it may be another userfaultfd's (EBUSY).
     * But only the range: elsewhere in that mapping memory that is not watched may have come in, and
     * registering it would make the old regions there look true. */
    if (look.reason == NULL) {
        look.reason = register_all(&look);
    }
    if (look.reason == NULL && look.unwatched == 0 && look.last.kind == REGX_VMA_PRIVATE &&
        look.last.start <= start && sequence % 2 == 0) {
        ranges->known[ranges->next_known++ % REGX_UFFD_KNOWN] =
            (regx_uffd_known_t){look.last.start, look.last.end, sequence};
    }
    if (look.reason != NULL || look.unwatched == 0) {
        goto out;
    }
    /* Before it was watched, what we looked at may have been replaced by what must not be kept;
     * from here on it cannot be without our being told. */
    look_over(&look, ranges, start, end);
    if (look.reason == NULL && !can_ask(ranges)) {
        look.reason =
            register_all(&look); /* what was a hole when it was watched is none any more */
    } else if (look.reason == NULL && look.unwatched > 0) {
        look.reason = "not watched: it is changing";
    }
out:
    pthread_mutex_unlock(&ranges->lock);
    return look.reason;
}

/* ---- the end ---- */

static bool unregister_one(void *context, const regx_vma_t *mapping)
{
    pass_t *pass = context;
    const regx_uffd_ranges_t *ranges = pass->of;

    /* What is another userfaultfd's cannot be watched, and is to stay so. */
    if (may_be_watched(ranges, mapping) &&
        regx_uffd_register(ranges->uffd->file.fd, mapping->start, mapping->end) == 0) {
        (void)regx_uffd_unregister(ranges->uffd->file.fd, mapping->start, mapping->end);
        pass->found += can_ask(ranges) ? 1 : 0;
    }
    return true;
}

void regx_uffd_ranges_clear(regx_uffd_ranges_t *ranges)
{
    const int max = can_ask(ranges) ? MAX_PASSES : MAX_PASSES_UNASKED;
    bool all = false;

    pthread_mutex_lock(&ranges->lock);
    for (int i = 0; i < max && !all; i++) {
        pass_t pass = {.of = ranges};
        const uint64_t sequence = atomic_load(&ranges->log->sequence);

        regx_maps_each(&ranges->maps, 0, UINTPTR_MAX, unregister_one, &pass);
        /* Whether nothing watched can have come into a place that was passed. A move counts as under
         * way before anything moves, until the reader has taken it, and the reader then raises the
         * sequence. */
        all = pass.found == 0 && sequence % 2 == 0 && regx_uffd_is_idle(ranges->uffd->file.fd) &&
              atomic_load(&ranges->log->sequence) == sequence;
    }
    pthread_mutex_unlock(&ranges->lock);
}
