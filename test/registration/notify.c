/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module of component/kernel by itself (test_notify.py has loaded it).
 *
 *   notify rows             each way of changing memory, and whether it was told: lines of "way TAB told",
 *                           "way TAB still" or "way TAB refused" (the kernel refuses the change)
 *   notify check            what the device must hold, one line of "ok" each; ends at the first that it does
 *                           not
 *   notify many             watches 10,000 ranges, and waits for the end of its input
 *   notify fuzz SECONDS SEED
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernel/regx_notify.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define RW (PROT_READ | PROT_WRITE)

static size_t page;
static int device;
static const struct regx_notify_page *told;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "notify: %s (%s)\n", what, strerror(errno));
    exit(1);
}

#define MUST(condition) ((condition) ? (void)0 : fail(#condition))

static uint64_t count(void)
{
    return __atomic_load_n(&told->told, __ATOMIC_ACQUIRE);
}

/* 0 or the errno. */
static int ask(int file, unsigned long what, uintptr_t start, uintptr_t end)
{
    struct regx_notify_range range = {.start = start, .end = end};

    return ioctl(file, what, &range) == 0 ? 0 : errno;
}

static int watch(const void *base, size_t length)
{
    return ask(device, REGX_NOTIFY_WATCH, (uintptr_t)base, (uintptr_t)base + length);
}

static int unwatch(const void *base, size_t length)
{
    return ask(device, REGX_NOTIFY_UNWATCH, (uintptr_t)base, (uintptr_t)base + length);
}

static int agree(int file, uint32_t version, uint32_t size)
{
    struct regx_notify_agree agree = {.version = version, .size = size};

    return ioctl(file, REGX_NOTIFY_AGREE, &agree) == 0 ? 0 : errno;
}

static void open_device(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    device = open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC);
    MUST(device >= 0);
    MUST(agree(device, REGX_NOTIFY_VERSION, sizeof(*told)) == 0);
    told = mmap(NULL, sizeof(*told), PROT_READ, MAP_SHARED, device, 0);
    MUST(told != MAP_FAILED);
}

/* Whether a change from number `since` on was of it. */
static bool was_told(uint64_t since, const void *base, size_t length)
{
    for (; since != count(); since++) {
        const struct regx_notify_range *range = &told->ring[since % REGX_NOTIFY_RING];

        if (range->start < (uintptr_t)base + length && (uintptr_t)base < range->end) {
            return true;
        }
    }
    return false;
}

/* ---- ways to change memory ---- */

enum { PAGES = 8 };
#define LENGTH (PAGES * page)

typedef struct place {
    char *base;
    size_t length;
    int file; /* behind it; -1: none */
} place_t;

static place_t map(int flags)
{
    place_t place = {.length = LENGTH, .file = -1};

    place.base = mmap(NULL, place.length, RW, flags | MAP_ANONYMOUS, -1, 0);
    MUST(place.base != MAP_FAILED);
    memset(place.base, 1, place.length);
    return place;
}

static place_t private_memory(void)
{
    return map(MAP_PRIVATE);
}

/* With a page of the same kind before and behind. */
static place_t amid_memory(void)
{
    place_t place = {.length = LENGTH, .file = -1};

    place.base = mmap(NULL, place.length + 2 * page, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(place.base != MAP_FAILED);
    place.base += page;
    memset(place.base, 1, place.length);
    return place;
}

static place_t shared_memory(void)
{
    return map(MAP_SHARED);
}

static place_t map_file(int flags, unsigned huge, size_t length)
{
    place_t place = {.length = length, .file = memfd_create("notify", huge)};

    MUST(place.file >= 0 && ftruncate(place.file, (off_t)length) == 0);
    place.base = mmap(NULL, length, RW, flags, place.file, 0);
    MUST(place.base != MAP_FAILED);
    memset(place.base, 1, length);
    return place;
}

static place_t file_memory(void)
{
    return map_file(MAP_SHARED, 0, LENGTH);
}

static place_t private_file(void)
{
    return map_file(MAP_PRIVATE, 0, LENGTH);
}

static place_t huge_memory(void)
{
    return map_file(MAP_SHARED, MFD_HUGETLB, 2u << 20);
}

static place_t segment(void)
{
    const int id = shmget(IPC_PRIVATE, LENGTH, IPC_CREAT | 0600);
    place_t place = {.base = shmat(id, NULL, 0), .length = LENGTH, .file = -1};

    MUST(place.base != (void *)-1);
    MUST(shmctl(id, IPC_RMID, NULL) == 0);
    memset(place.base, 1, place.length);
    return place;
}

static place_t heap_end(void)
{
    place_t place = {.length = LENGTH, .file = -1};

    /* From a round address on. */
    const uintptr_t top = (uintptr_t)sbrk(0);
    MUST(sbrk((intptr_t)((page - top % page) % page)) != (void *)-1);
    place.base = sbrk((intptr_t)place.length);
    MUST(place.base != (void *)-1);
    memset(place.base, 1, place.length);
    return place;
}

static bool do_munmap(const place_t *place)
{
    return munmap(place->base, place->length) == 0;
}

static bool munmap_last_page(const place_t *place)
{
    return munmap(place->base + place->length - page, page) == 0;
}

static bool munmap_around(const place_t *place)
{
    return syscall(SYS_munmap, place->base - page, place->length + 2 * page) == 0;
}

static bool move(const place_t *place)
{
    void *to = mmap(NULL, place->length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return mremap(place->base, place->length, place->length, MREMAP_MAYMOVE | MREMAP_FIXED, to) ==
           to;
}

static bool move_onto(const place_t *place)
{
    void *from = mmap(NULL, place->length, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return mremap(from, place->length, place->length, MREMAP_MAYMOVE | MREMAP_FIXED, place->base) ==
           place->base;
}

static bool shrink(const place_t *place)
{
    return mremap(place->base, place->length, page, 0) == place->base;
}

static bool map_over(const place_t *place)
{
    return mmap(place->base, place->length, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
           place->base;
}

static bool advise(const place_t *place, int advice)
{
    return madvise(place->base, place->length, advice) == 0;
}

static bool dontneed(const place_t *place)
{
    return advise(place, MADV_DONTNEED);
}

static bool dontneed_last_page(const place_t *place)
{
    return madvise(place->base + place->length - page, page, MADV_DONTNEED) == 0;
}

static bool free_lazily(const place_t *place)
{
    return advise(place, MADV_FREE);
}

static bool remove_pages(const place_t *place)
{
    return advise(place, MADV_REMOVE);
}

static bool install_guard(const place_t *place)
{
    return advise(place, MADV_GUARD_INSTALL);
}

static bool punch(const place_t *place)
{
    return fallocate(place->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                     (off_t)place->length) == 0;
}

static bool truncate_file(const place_t *place)
{
    return ftruncate(place->file, 0) == 0;
}

static bool in_a_child(bool (*change)(const place_t *place), const place_t *place)
{
    int status = -1;
    const pid_t child = fork();

    if (child == 0) {
        _exit(change(place) ? 0 : 1);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child);
    return status == 0;
}

static bool truncate_in_child(const place_t *place)
{
    return in_a_child(truncate_file, place);
}

static bool munmap_in_child(const place_t *place)
{
    return in_a_child(do_munmap, place);
}

static bool write_in_child_too(const place_t *place)
{
    memset(place->base, 2, place->length);
    return true;
}

static bool write_in_child(const place_t *place)
{
    return in_a_child(write_in_child_too, place);
}

static bool munmap_by_vfork(const place_t *place)
{
    int status = -1;
    const pid_t child = vfork();

    if (child == 0) {
        syscall(SYS_munmap, place->base, place->length);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child;
}

static bool detach(const place_t *place)
{
    return shmdt(place->base) == 0;
}

static bool attach_over(const place_t *place)
{
    const int id = shmget(IPC_PRIVATE, place->length, IPC_CREAT | 0600);
    void *at = shmat(id, place->base, SHM_REMAP);

    shmctl(id, IPC_RMID, NULL);
    return at == place->base;
}

static bool lower_break(const place_t *place)
{
    return brk(place->base) == 0;
}

static bool protect(const place_t *place)
{
    return mprotect(place->base, place->length, PROT_READ) == 0;
}

static bool lock(const place_t *place)
{
    return mlock(place->base, place->length) == 0;
}

static bool will_need(const place_t *place)
{
    return advise(place, MADV_WILLNEED);
}

static bool clear_refs(const place_t *place)
{
    const int file = open("/proc/self/clear_refs", O_WRONLY);
    const bool done = file >= 0 && write(file, "4", 1) == 1;

    (void)place;
    close(file);
    return done;
}

static bool change_the_page_before(const place_t *place)
{
    return syscall(SYS_munmap, place->base - page, page) == 0;
}

static bool change_the_page_behind(const place_t *place)
{
    return syscall(SYS_munmap, place->base + place->length, page) == 0;
}

typedef struct row {
    const char *way;
    place_t (*make)(void);
    bool (*change)(const place_t *place);
} row_t;

static const row_t rows[] = {
    {"munmap", private_memory, do_munmap},
    {"munmap of the last page", private_memory, munmap_last_page},
    {"munmap of more", amid_memory, munmap_around},
    {"munmap by a vfork child", private_memory, munmap_by_vfork},
    {"munmap of shared memory", shared_memory, do_munmap},
    {"munmap of a file", file_memory, do_munmap},
    {"munmap of a private file", private_file, do_munmap},
    {"munmap of a huge page", huge_memory, do_munmap},
    {"mremap elsewhere", private_memory, move},
    {"mremap elsewhere of shared memory", shared_memory, move},
    {"mremap onto it", private_memory, move_onto},
    {"mremap to less", private_memory, shrink},
    {"mmap FIXED", private_memory, map_over},
    {"brk", heap_end, lower_break},
    {"shmdt", segment, detach},
    {"shmat SHM_REMAP", private_memory, attach_over},
    {"MADV_DONTNEED", private_memory, dontneed},
    {"MADV_DONTNEED of the last page", private_memory, dontneed_last_page},
    {"MADV_DONTNEED of a huge page", huge_memory, dontneed},
    {"MADV_FREE", private_memory, free_lazily},
    {"MADV_REMOVE", shared_memory, remove_pages},
    {"MADV_GUARD_INSTALL", private_memory, install_guard},
    {"PUNCH_HOLE", file_memory, punch},
    {"PUNCH_HOLE of a huge page", huge_memory, punch},
    {"ftruncate", file_memory, truncate_file},
    {"ftruncate of a private file", private_file, truncate_file},
    {"ftruncate by a child", file_memory, truncate_in_child},
    {"mprotect", private_memory, protect},
    {"mlock", private_memory, lock},
    {"MADV_WILLNEED", private_memory, will_need},
    {"clear_refs", private_memory, clear_refs},
    {"munmap in a child", private_memory, munmap_in_child},
    {"write in a child", private_memory, write_in_child},
    {"munmap of the page before", amid_memory, change_the_page_before},
    {"munmap of the page behind", amid_memory, change_the_page_behind},
};

static void try_row(const row_t *row)
{
    const place_t place = row->make();

    MUST(watch(place.base, place.length) == 0);
    const uint64_t before = count();
    const bool done = row->change(&place);

    printf("%s\t%s\n", row->way,
           !done                                        ? "refused"
           : was_told(before, place.base, place.length) ? "told"
           : count() == before                          ? "still"
                                                        : "told of another");
    MUST(unwatch(place.base, place.length) == 0);
}

/* Each in a process of its own, which may take away what it likes. */
static int try_rows(void)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int status = -1;

        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            open_device();
            try_row(&rows[i]);
            fflush(stdout);
            _exit(0);
        }
        MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    return 0;
}

/* ---- what the device must hold ---- */

static void refuses_bad_ranges(void)
{
    const place_t place = private_memory();
    const uintptr_t start = (uintptr_t)place.base, end = start + place.length;
    const struct {
        uintptr_t start, end;
    } bad[] = {
        {start, start},   /* empty */
        {end, start},     /* backwards */
        {start + 1, end}, /* not where a page begins */
        {start, end - 1}, /* nor where one ends */
        {start, UINTPTR_MAX & ~(page - 1)},
        {UINTPTR_MAX - 2 * page + 1, 0},                      /* wraps */
        {UINTPTR_MAX - 2 * page + 1, UINTPTR_MAX - page + 1}, /* the kernel's */
        {(uintptr_t)1 << 60, ((uintptr_t)1 << 60) + page},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        MUST(ask(device, REGX_NOTIFY_WATCH, bad[i].start, bad[i].end) == EINVAL);
        MUST(ask(device, REGX_NOTIFY_UNWATCH, bad[i].start, bad[i].end) == EINVAL);
    }
    MUST(ioctl(device, REGX_NOTIFY_WATCH, NULL) == -1 && errno == EFAULT);
    MUST(ioctl(device, REGX_NOTIFY_WATCH, (void *)(UINTPTR_MAX - 64)) == -1 && errno == EFAULT);
    MUST(ioctl(device, REGX_NOTIFY_AGREE, NULL) == -1 && errno == EFAULT);
    MUST(ioctl(device, _IO('x', 0xd3), NULL) == -1 && errno == ENOTTY);
    MUST(unwatch(place.base, place.length) == ENOENT);
    MUST(watch(place.base, place.length) == 0 && watch(place.base, place.length) == 0);
    MUST(unwatch(place.base, page) == ENOENT);
    MUST(unwatch(place.base, place.length) == 0 && unwatch(place.base, place.length) == 0);
    MUST(unwatch(place.base, place.length) == ENOENT);
}

static void refuses_another_version(void)
{
    const place_t place = private_memory();
    const uintptr_t start = (uintptr_t)place.base;
    struct regx_notify_agree other = {.version = REGX_NOTIFY_VERSION + 1, .size = sizeof(*told)};
    const int file = open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC);

    MUST(file >= 0);
    MUST(ask(file, REGX_NOTIFY_WATCH, start, start + page) == EPROTO);
    MUST(ioctl(file, REGX_NOTIFY_AGREE, &other) == -1 && errno == EPROTO);
    MUST(other.version == REGX_NOTIFY_VERSION && other.size == sizeof(*told) && other.watches > 0);
    MUST(agree(file, REGX_NOTIFY_VERSION, 4096) == EPROTO);
    MUST(ask(file, REGX_NOTIFY_WATCH, start, start + page) == EPROTO);
    MUST(agree(file, REGX_NOTIFY_VERSION, sizeof(*told)) == 0);
    MUST(ask(file, REGX_NOTIFY_WATCH, start, start + page) == 0);
    close(file);
}

static void tells_two_files_apart(void)
{
    struct regx_notify_agree one = {.version = REGX_NOTIFY_VERSION, .size = sizeof(*told)};
    struct regx_notify_agree two = one;
    const int file = open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC);

    MUST(file >= 0);
    MUST(ioctl(device, REGX_NOTIFY_AGREE, &one) == 0 && ioctl(file, REGX_NOTIFY_AGREE, &two) == 0);
    MUST(one.file == told->file && two.file != one.file);
    close(file);
}

static void is_never_written(void)
{
    const int file = open(REGX_NOTIFY_PATH, O_RDWR | O_CLOEXEC);
    char *at;

    MUST(file >= 0);
    MUST(mmap(NULL, sizeof(*told), RW, MAP_SHARED, file, 0) == MAP_FAILED && errno == EPERM);
    MUST(mmap(NULL, sizeof(*told), PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED &&
         errno == EINVAL);
    MUST(mmap(NULL, page, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED && errno == EINVAL);
    MUST(mmap(NULL, sizeof(*told) + page, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED);
    MUST(mmap(NULL, sizeof(*told), PROT_READ, MAP_SHARED, file, (off_t)page) == MAP_FAILED);
    at = mmap(NULL, sizeof(*told), PROT_READ, MAP_SHARED, file, 0);
    MUST(at != MAP_FAILED);
    MUST(mprotect(at, page, RW) == -1 && errno == EACCES);
    MUST(mprotect(at, page, PROT_READ | PROT_EXEC) == -1 && errno == EACCES);
    /* Nor by way of the process's memory. */
    const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    MUST(memory >= 0 && pwrite(memory, "x", 1, (off_t)(uintptr_t)at) == -1);
    close(memory);
    close(file);
    MUST(munmap(at, sizeof(*told)) == 0);
}

static void what_changed_can_be_read(void)
{
    enum { CHANGES = REGX_NOTIFY_RING + 100 };
    const place_t place = private_memory();
    const uint64_t before = count();

    MUST(watch(place.base, place.length) == 0);
    for (unsigned i = 0; i < CHANGES; i++) {
        char *at = place.base + i % PAGES * page;

        *at = 1;
        MUST(madvise(at, page, MADV_DONTNEED) == 0);
        const struct regx_notify_range *range = &told->ring[(count() - 1) % REGX_NOTIFY_RING];
        MUST(range->start <= (uintptr_t)at && range->end >= (uintptr_t)at + page);
    }
    MUST(count() == before + CHANGES);
    for (uint64_t n = count() - REGX_NOTIFY_RING + 1; n != count(); n++) {
        const uintptr_t at = (uintptr_t)place.base + (n - before) % PAGES * page;

        MUST(told->ring[n % REGX_NOTIFY_RING].start == at);
    }
    MUST(unwatch(place.base, place.length) == 0);
    const uint64_t after = count();
    MUST(munmap(place.base, place.length) == 0);
    MUST(count() == after);
}

/* Ranges that overlap, of which one after the other ends: each tells until it does, whatever the others do.
 * Few at a time, so that it shows if one is not found. */
static void each_watch_stands_by_itself(unsigned *seed)
{
    enum { RANGES = 12, SPAN = 64 };
    char *base = mmap(NULL, SPAN * page, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct {
        unsigned first, count;
    } range[RANGES];

    MUST(base != MAP_FAILED);
    for (unsigned i = 0; i < RANGES; i++) {
        range[i].first = (unsigned)rand_r(seed) % (SPAN - 8);
        range[i].count = 1 + (unsigned)rand_r(seed) % 8;
        MUST(watch(base + range[i].first * page, range[i].count * page) == 0);
    }
    for (unsigned ended = 0; ended <= RANGES; ended++) {
        for (unsigned i = 0; i < SPAN; i++) {
            const uint64_t before = count();
            bool watched = false;

            for (unsigned j = ended; j < RANGES; j++) {
                watched |= i - range[j].first < range[j].count;
            }
            base[i * page] = 1;
            MUST(madvise(base + i * page, page, MADV_DONTNEED) == 0);
            MUST((count() != before) == watched);
        }
        if (ended < RANGES) {
            MUST(unwatch(base + range[ended].first * page, range[ended].count * page) == 0);
        }
    }
    MUST(munmap(base, SPAN * page) == 0);
}

static void a_child_gets_nothing(const char *self)
{
    const place_t place = private_memory();
    int status = -1;
    char file[16];

    MUST(watch(place.base, place.length) == 0);
    const uint64_t before = count();
    const pid_t child = fork();
    if (child == 0) {
        MUST(watch(place.base, page) == EPERM && unwatch(place.base, place.length) == EPERM);
        MUST(munmap(place.base, place.length) == 0 && count() == before);
        snprintf(file, sizeof(file), "%d", dup(device)); /* which exec leaves open */
        execl(self, self, "after-exec", file, NULL);
        _exit(9);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    MUST(count() == before);
    MUST(munmap(place.base, place.length) == 0 && was_told(before, place.base, place.length));
    MUST(unwatch(place.base, place.length) == 0);
}

static int after_exec(const char *file)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    const place_t place = private_memory();
    const uintptr_t start = (uintptr_t)place.base;

    MUST(ask(atoi(file), REGX_NOTIFY_WATCH, start, start + page) == EPERM);
    return 0;
}

static void a_mapping_outlives_its_descriptor(void)
{
    const place_t place = private_memory();
    const int file = open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC);
    const uintptr_t start = (uintptr_t)place.base;
    const struct regx_notify_page *other;

    MUST(file >= 0 && agree(file, REGX_NOTIFY_VERSION, sizeof(*told)) == 0);
    other = mmap(NULL, sizeof(*told), PROT_READ, MAP_SHARED, file, 0);
    MUST(other != MAP_FAILED);
    MUST(ask(file, REGX_NOTIFY_WATCH, start, start + place.length) == 0);
    close(file);
    MUST(munmap(place.base, place.length) == 0);
    MUST(other->told == 1 && other->ring[0].start <= start);
    MUST(munmap((void *)other, sizeof(*told)) == 0);
}

static struct {
    char *base;
    size_t length;
    _Atomic int turn; /* odd: the change is about to be made */
} change;

static void *change_again_and_again(void *argument)
{
    for (int turn = 0; turn < *(int *)argument; turn++) {
        memset(change.base, 1, change.length);
        atomic_store(&change.turn, 2 * turn + 1);
        MUST(madvise(change.base, change.length, MADV_DONTNEED) == 0);
        atomic_store(&change.turn, 2 * turn + 2);
        while (atomic_load(&change.turn) == 2 * turn + 2) { /* until the watcher has looked */
        }
    }
    return NULL;
}

/* Who sees that the first page is gone sees that it was told, though the change has far to go. The kernel is
 * asked about the page, since processors remember it until the end of the change. */
static void a_change_is_told_before_it_is_made(void)
{
    unsigned char resident;
    int turns = 6;
    pthread_t thread;

    MUST(watch(change.base, change.length) == 0);
    uint64_t before = count();
    MUST(pthread_create(&thread, NULL, change_again_and_again, &turns) == 0);
    for (int turn = 0; turn < turns; turn++) {
        while (atomic_load(&change.turn) < 2 * turn + 1) {
        }
        do {
            MUST(mincore(change.base, page, &resident) == 0);
        } while (resident % 2 == 1);
        MUST(count() != before);
        while (atomic_load(&change.turn) != 2 * turn + 2) {
        }
        before = count();
        atomic_store(&change.turn, -1);
    }
    MUST(pthread_join(thread, NULL) == 0);
    MUST(unwatch(change.base, change.length) == 0);
}

/* Begun within a change: what is there behind it is what the change leaves, or the change is told. Of a page
 * at the end of the range, which the kernel takes away last. */
static void a_watch_waits_for_what_is_under_way(void)
{
    int turns = 6;
    pthread_t thread;

    const char *last = change.base + change.length - page;
    MUST(pthread_create(&thread, NULL, change_again_and_again, &turns) == 0);
    for (int turn = 0; turn < turns; turn++) {
        while (atomic_load(&change.turn) < 2 * turn + 1) {
        }
        const uint64_t before = count();

        MUST(watch(last, page) == 0);
        const bool was_old = __atomic_load_n(last, __ATOMIC_RELAXED) != 0;
        while (atomic_load(&change.turn) != 2 * turn + 2) {
        }
        MUST(!was_old || was_told(before, last, page));
        MUST(unwatch(last, page) == 0);
        atomic_store(&change.turn, -1);
    }
    MUST(pthread_join(thread, NULL) == 0);
}

static int check(const char *self)
{
    open_device();
    refuses_bad_ranges();
    puts("ok bad ranges");
    refuses_another_version();
    tells_two_files_apart();
    puts("ok versions");
    is_never_written();
    puts("ok never written");
    what_changed_can_be_read();
    puts("ok ring");
    for (unsigned i = 0, seed = 7; i < 20; i++) {
        each_watch_stands_by_itself(&seed);
    }
    puts("ok overlapping watches");
    a_child_gets_nothing(self);
    puts("ok child");
    a_mapping_outlives_its_descriptor();
    puts("ok mapping");
    change.length = (size_t)32 << 20;
    change.base = mmap(NULL, change.length, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(change.base != MAP_FAILED && madvise(change.base, change.length, MADV_NOHUGEPAGE) == 0);
    a_change_is_told_before_it_is_made();
    puts("ok before");
    a_watch_waits_for_what_is_under_way();
    puts("ok under way");
    return 0;
}

/* ---- bounds ---- */

/* All watches that it may have, 10,000 of them; then waits. */
static int many(void)
{
    enum { MANY = 10000 };
    char *base = mmap(NULL, 2 * (MANY + 1) * (size_t)4096, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    open_device();
    MUST(base != MAP_FAILED);
    for (size_t i = 0; i < MANY; i++) {
        MUST(watch(base + 2 * i * page, page) == 0);
    }
    MUST(watch(base + (size_t)2 * MANY * page, page) == ENOSPC);
    MUST(watch(base, page) == ENOSPC);
    MUST(unwatch(base, page) == 0 && watch(base, page) == 0);
    puts("ok many");
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}

/* ---- random calls ---- */

static struct {
    char *base;
    time_t end;
} fuzz;

enum { FUZZ_PAGES = 64 };

static uintptr_t some_address(unsigned *seed)
{
    static const uintptr_t odd[] = {0, 1, 4096, (uintptr_t)1 << 60, UINTPTR_MAX, ~(uintptr_t)4095};

    return (unsigned)rand_r(seed) % 8 != 0
               ? (uintptr_t)fuzz.base + (unsigned)rand_r(seed) % (FUZZ_PAGES + 1) * page
               : odd[(unsigned)rand_r(seed) % 6] + (unsigned)rand_r(seed) % 2;
}

static void one_call(unsigned *seed)
{
    static const unsigned long commands[] = {REGX_NOTIFY_WATCH, REGX_NOTIFY_WATCH,
                                             REGX_NOTIFY_UNWATCH, REGX_NOTIFY_AGREE};
    struct regx_notify_range range = {some_address(seed), some_address(seed)};
    unsigned long command = commands[(unsigned)rand_r(seed) % 4];
    char *at = fuzz.base + (unsigned)rand_r(seed) % FUZZ_PAGES * page;

    switch ((unsigned)rand_r(seed) % 8) {
    case 0:
        madvise(at, page, MADV_DONTNEED);
        break;
    case 1:
        (void)mmap(at, page, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        break;
    case 2:
        command = (unsigned)rand_r(seed) % 2 != 0 ? (unsigned)rand_r(seed)
                                                  : command ^ (1ul << (unsigned)rand_r(seed) % 32);
        ioctl(device, command,
              (unsigned)rand_r(seed) % 2 != 0 ? (void *)&range : (void *)some_address(seed));
        break;
    case 3: {
        const int file = open(REGX_NOTIFY_PATH, (unsigned)rand_r(seed) % 3 | O_CLOEXEC);
        void *other = mmap(
            NULL, (unsigned)rand_r(seed) % 4 * page + (unsigned)rand_r(seed) % 2 * sizeof(*told),
            (unsigned)rand_r(seed) % 8, (unsigned)rand_r(seed) % 4, file,
            (off_t)((unsigned)rand_r(seed) % 2 * page));
        ioctl(file, command, &range);
        if (other != MAP_FAILED) {
            munmap(other, page); /* a part of it */
        }
        close(file);
        break;
    }
    default:
        *at = 1;
        ioctl(device, command, &range);
    }
}

static void *call_at_random(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    uint64_t last = 0;

    while (time(NULL) < fuzz.end) {
        for (int i = 0; i < 100; i++) {
            one_call(&seed);
        }
        MUST(count() >= last);
        last = count();
    }
    return NULL;
}

static int run_fuzz(const char *seconds, const char *seed)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    unsigned seeds[THREADS];

    fuzz.end = time(NULL) + atoi(seconds);
    open_device();
    fuzz.base = mmap(NULL, FUZZ_PAGES * page, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(fuzz.base != MAP_FAILED);
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = (unsigned)atoi(seed) * THREADS + i;
        MUST(pthread_create(&threads[i], NULL, call_at_random, &seeds[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL) == 0);
    }
    puts("ok fuzz");
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "rows") == 0) {
        return try_rows();
    }
    if (strcmp(what, "check") == 0) {
        return check(argv[0]);
    }
    if (strcmp(what, "after-exec") == 0 && argc == 3) {
        return after_exec(argv[2]);
    }
    if (strcmp(what, "many") == 0) {
        return many();
    }
    if (strcmp(what, "fuzz") == 0 && argc == 4) {
        return run_fuzz(argv[2], argv[3]);
    }
    fprintf(stderr, "notify rows|check|many|fuzz SECONDS SEED\n");
    return 2;
}
