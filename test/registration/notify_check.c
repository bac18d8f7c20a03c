/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the device must hold. Ends at the first that it does not.
 */
#include <sys/syscall.h>
#include <time.h>

#include "notify.h"

enum { PAGES = 8 };

/* Private memory, in use, with a page of the same kind before and behind. */
typedef struct area {
    char *base;
    size_t length;
} area_t;

static area_t private_area(void)
{
    char *memory = mmap(NULL, (PAGES + 2) * page, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    MUST(memory != MAP_FAILED);
    memset(memory, 1, (PAGES + 2) * page);
    return (area_t){memory + page, PAGES * page};
}

static void refuses_bad_ranges(void)
{
    const area_t place = private_area();
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
    const area_t place = private_area();
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
    const area_t place = private_area();
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
    const area_t place = private_area();
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

int after_exec(const char *file)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    const area_t place = private_area();
    const uintptr_t start = (uintptr_t)place.base;

    MUST(ask(atoi(file), REGX_NOTIFY_WATCH, start, start + page) == EPERM);
    return 0;
}

static void a_mapping_outlives_its_descriptor(void)
{
    const area_t place = private_area();
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

/* Memory of which some threads change all, without pause: they leave its pages where they are. */
static struct {
    char *base;
    pthread_mutex_t gate; /* held until all threads are there */
    _Atomic bool over;
    pthread_t threads[200];
    unsigned count;
} busy = {.gate = PTHREAD_MUTEX_INITIALIZER};

enum { BUSY_BYTES = 128 << 20 };

static void *free_without_pause(void *none)
{
    pthread_mutex_lock(&busy.gate);
    pthread_mutex_unlock(&busy.gate);
    while (!atomic_load(&busy.over)) {
        MUST(madvise(busy.base, BUSY_BYTES, MADV_FREE) == 0);
    }
    return none;
}

/* They wait for each other: to make a thread is to change mappings, and in older kernels (6.12) that waits for
 * all who change memory meanwhile, for minutes if they are many. */
static void busy_begin(unsigned count)
{
    busy.base = mmap(NULL, BUSY_BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(busy.base != MAP_FAILED && madvise(busy.base, BUSY_BYTES, MADV_NOHUGEPAGE) == 0);
    memset(busy.base, 1, BUSY_BYTES);
    atomic_store(&busy.over, false);
    pthread_mutex_lock(&busy.gate);
    for (busy.count = 0; busy.count < count; busy.count++) {
        MUST(pthread_create(&busy.threads[busy.count], NULL, free_without_pause, NULL) == 0);
    }
    pthread_mutex_unlock(&busy.gate);
}

static void busy_end(void)
{
    atomic_store(&busy.over, true);
    while (busy.count > 0) {
        MUST(pthread_join(busy.threads[--busy.count], NULL) == 0);
    }
    MUST(munmap(busy.base, BUSY_BYTES) == 0);
}

/* So many threads, and of so much memory, that more than 64 are within the call at once: who has to leave the
 * processor does so mostly there. Refused, and not until it pleases them. */
static void more_changes_than_it_knows_are_not_awaited(void)
{
    const area_t area = private_area();
    int answer;

    busy_begin(200);
    do {
        answer = watch(area.base, area.length);
        MUST(answer == 0 || answer == EAGAIN);
        MUST(unwatch(area.base, area.length) == (answer == 0 ? 0 : ENOENT));
    } while (answer != EAGAIN);
    busy_end();
    MUST(watch(area.base, area.length) == 0 && unwatch(area.base, area.length) == 0);
}

static int compare(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

static uint64_t nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Says how long it takes; under emulation that is no judgement. */
static void a_watch_beside_changes_elsewhere(unsigned threads)
{
    enum { TIMES = 301 };
    const area_t area = private_area();
    uint64_t took[TIMES];

    busy_begin(threads);
    for (unsigned i = 0; i < TIMES; i++) {
        const uint64_t before = nanoseconds();

        MUST(watch(area.base, area.length) == 0);
        took[i] = nanoseconds() - before;
        MUST(unwatch(area.base, area.length) == 0);
    }
    busy_end();
    qsort(took, TIMES, sizeof(took[0]), compare);
    printf("ok beside %u: median %.1f us, longest %.1f us\n", threads,
           (double)took[TIMES / 2] / 1e3, (double)took[TIMES - 1] / 1e3);
}

/* What is told of is what touches the range: its first and last page, and no other. */
static void what_lies_beside_is_not_told(void)
{
    const area_t area = private_area();
    uint64_t before;

    MUST(watch(area.base, area.length) == 0);
    before = count();
    MUST(munmap(area.base - page, page) == 0 && munmap(area.base + area.length, page) == 0);
    MUST(count() == before);
    MUST(madvise(area.base, page, MADV_DONTNEED) == 0 && count() > before);
    before = count();
    MUST(madvise(area.base + area.length - page, page, MADV_DONTNEED) == 0 && count() > before);
    MUST(unwatch(area.base, area.length) == 0 && munmap(area.base, area.length) == 0);
}

/* A child of vfork runs in the address space of its parent. */
static void what_a_vfork_child_unmaps_is_told(void)
{
    const area_t area = private_area();
    int status = -1;

    MUST(watch(area.base, area.length) == 0);
    const uint64_t before = count();
    const pid_t child = vfork();
    if (child == 0) {
        syscall(SYS_munmap, area.base, area.length);
        _exit(0);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child);
    MUST(was_told(before, area.base, area.length));
    MUST(unwatch(area.base, area.length) == 0);
}

/* The pages stay where they are. */
static void cleared_dirty_bits_are_not_told(void)
{
    const area_t area = private_area();
    const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

    MUST(file >= 0 && watch(area.base, area.length) == 0);
    const uint64_t before = count();
    MUST(write(file, "4", 1) == 1 && count() == before);
    MUST(unwatch(area.base, area.length) == 0);
    close(file);
}

int check(const char *self)
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
    what_lies_beside_is_not_told();
    what_a_vfork_child_unmaps_is_told();
    cleared_dirty_bits_are_not_told();
    puts("ok ranges");
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
    a_watch_beside_changes_elsewhere(0);
    a_watch_beside_changes_elsewhere(8);
    more_changes_than_it_knows_are_not_awaited();
    puts("ok many under way");
    return 0;
}
