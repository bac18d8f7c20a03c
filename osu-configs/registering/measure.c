// SPDX-License-Identifier: BSD-3-Clause
//
// Measures one way of keeping registrations:
//
//   regx|ucx|grdma SUBJECT [METRIC…]
//
// and prints one line "METRIC VALUE" for each metric; registering/metrics.py says what they are.
// A value is the median of several, each over many operations where they are short. What should
// have been a hit and was not ends the program: it would be a measurement of something else.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "subject.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define REGION (64 * KIB)
#define STRIDE (2 * REGION) // regions do not touch: nobody may merge them
#define HUGE (2 * MIB)
#define TIMES 7 // of which the median is taken
#define BATCH_SECONDS 0.01
#define CANNOT 3 // exit status: the subject cannot be had here

static size_t page;
static subject_kind_t kind;
static int cores[2]; // the first two that we may use
static int core_count;

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "registration: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static void print(const char *metric, double value)
{
    printf("%s %.6g\n", metric, value);
    fflush(stdout);
}

// ---- memory

static unsigned char *map(size_t bytes, int flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
    if (memory == MAP_FAILED) {
        fail("cannot map %zu bytes", bytes);
    }
    return memory;
}

// Who is blind to it must not meet the address again.
static void unmap(void *memory, size_t bytes)
{
    if ((kind == BLIND ? madvise(memory, bytes, MADV_DONTNEED) : munmap(memory, bytes)) != 0) {
        fail("cannot unmap");
    }
}

// Memory between pages that nobody may touch: a mapping of its own. Of small pages, so that one
// address does not cost what another does not.
static unsigned char *map_apart(size_t bytes)
{
    unsigned char *memory = map(bytes + 2 * page, 0);
    if (mprotect(memory, page, PROT_NONE) != 0 ||
        mprotect(memory + page + bytes, page, PROT_NONE) != 0 ||
        madvise(memory + page, bytes, MADV_NOHUGEPAGE) != 0) {
        fail("cannot protect");
    }
    return memory + page;
}

static void unmap_apart(unsigned char *memory, size_t bytes)
{
    unmap(memory - page, bytes + 2 * page);
}

static void use_once(void *base, size_t length)
{
    subject_use_t use;
    if (!subject_acquire(base, length, &use)) {
        fail("not registered: %zu bytes", length);
    }
    subject_release(&use);
}

// What was to be so many misses was; the domain counts.
static void check_misses(uint64_t registrations, size_t misses)
{
    if (subject_registrations() - registrations != misses) {
        fail("%zu misses made %llu registrations", misses,
             (unsigned long long)(subject_registrations() - registrations));
    }
}

// A field of /proc/self/status or smaps_rollup, in bytes.
static double proc(const char *file, const char *field)
{
    char line[256];
    double kib = 0;
    FILE *text = fopen(file, "r");
    if (text == NULL) {
        fail("cannot read %s", file);
    }
    while (fgets(line, sizeof(line), text) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0) {
            kib += strtod(line + strlen(field), NULL);
        }
    }
    fclose(text);
    return kib * 1024;
}

static double resident(void)
{
    return proc("/proc/self/smaps_rollup", "Rss:") + proc("/proc/self/status", "VmPTE:");
}

static double mappings(void)
{
    int c;
    double lines = 0;
    FILE *text = fopen("/proc/self/maps", "r");
    while (text != NULL && (c = getc(text)) != EOF) {
        lines += c == '\n';
    }
    if (text != NULL) {
        fclose(text);
    }
    return lines;
}

// ---- threads

static void bind_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void unbind(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cores[0], &set);
    CPU_SET((size_t)cores[1], &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void find_cores(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && core_count < 2; core++) {
        if (CPU_ISSET((size_t)core, &set)) {
            cores[core_count++] = core;
        }
    }
    if (core_count == 1) {
        cores[1] = cores[0];
    }
}

// ---- hits

typedef struct walk {
    unsigned char **regions; // shuffled
    size_t count;
    uint64_t operations; // of one batch
    double times[TIMES]; // of the batches
    int core;
    pthread_barrier_t *start;
} walk_t;

static void run_walk(walk_t *walk, uint64_t operations)
{
    subject_use_t use;
    size_t at = 0;
    for (uint64_t i = 0; i < operations; i++) {
        if (!subject_acquire(walk->regions[at], REGION, &use)) {
            fail("not registered");
        }
        subject_release(&use);
        at = at + 1 == walk->count ? 0 : at + 1;
    }
}

static double timed_walk(walk_t *walk)
{
    const double start = now();
    run_walk(walk, walk->operations);
    return now() - start;
}

static void *walk_thread(void *argument)
{
    walk_t *walk = argument;
    bind_to(walk->core);
    run_walk(walk, 2 * walk->count); // finds them; the second time by the fast way, if there is one
    for (int time = 0; time < TIMES; time++) {
        pthread_barrier_wait(walk->start);
        walk->times[time] = timed_walk(walk);
    }
    return NULL;
}

static unsigned char **shuffled(unsigned char *memory, size_t count)
{
    unsigned char **regions = malloc(count * sizeof(*regions));
    uint64_t random = 88172645463325252u;
    if (regions == NULL) {
        fail("out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        regions[i] = memory + i * STRIDE;
    }
    for (size_t i = count - 1; i > 0; i--) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const size_t other = random % (i + 1);
        unsigned char *held = regions[i];
        regions[i] = regions[other];
        regions[other] = held;
    }
    return regions;
}

// As many that one batch takes a while.
static uint64_t operations_for(walk_t *walk)
{
    walk->operations = walk->count < 64 ? 64 : walk->count;
    for (;;) {
        const double seconds = timed_walk(walk);
        if (seconds >= BATCH_SECONDS / 2) {
            return (uint64_t)((double)walk->operations * BATCH_SECONDS / seconds) + 1;
        }
        walk->operations *= 2;
    }
}

static void hits(const char *metric, size_t count, int threads, bool same)
{
    const size_t sets = threads == 1 || same ? 1 : 2;
    walk_t walks[2] = {{.count = count, .core = cores[0]}, {.count = count, .core = cores[1]}};
    double value = 0;

    if (kind == PER_USE || threads > core_count) { // one after the other is not at once
        return;
    }
    unsigned char *memory = map(sets * count * STRIDE, 0);
    walks[0].regions = shuffled(memory, count);
    walks[1].regions = sets == 1 ? walks[0].regions : shuffled(memory + count * STRIDE, count);
    bind_to(cores[0]);
    run_walk(&walks[0], 2 * count);
    run_walk(&walks[1], 2 * count);
    const uint64_t registrations = subject_registrations();
    walks[0].operations = walks[1].operations = operations_for(&walks[0]);
    if (threads == 1) {
        for (int time = 0; time < TIMES; time++) {
            walks[0].times[time] = timed_walk(&walks[0]);
        }
        value = median(walks[0].times, TIMES);
    } else {
        pthread_t others[2];
        pthread_barrier_t start;
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            walks[i].start = &start;
            if (pthread_create(&others[i], NULL, walk_thread, &walks[i]) != 0) {
                fail("no thread");
            }
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(others[i], NULL);
        }
        pthread_barrier_destroy(&start);
        value = (median(walks[0].times, TIMES) + median(walks[1].times, TIMES)) / 2;
    }
    if (subject_registrations() != registrations) {
        fail("%s: %llu were not hits", metric,
             (unsigned long long)(subject_registrations() - registrations));
    }
    print(metric, 1e9 * value / (double)walks[0].operations);
    unbind();
    if (sets == 2) {
        free(walks[1].regions);
    }
    free(walks[0].regions);
    unmap(memory, sets * count * STRIDE);
    subject_settle();
}

static void null_call(const char *metric)
{
    enum { CALLS = 20000 };
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        const double start = now();
        for (int i = 0; i < CALLS; i++) {
            syscall(SYS_getppid);
        }
        times[time] = (now() - start) / CALLS;
    }
    print(metric, 1e9 * median(times, TIMES));
}

static void hit_1(const char *metric)
{
    hits(metric, 1, 1, true);
}

static void hit_100(const char *metric)
{
    hits(metric, 100, 1, true);
}

static void hit_10000(const char *metric)
{
    hits(metric, 10000, 1, true);
}

static void same_1(const char *metric)
{
    hits(metric, 1, 2, true);
}

static void same_100(const char *metric)
{
    hits(metric, 100, 2, true);
}

static void same_10000(const char *metric)
{
    hits(metric, 10000, 2, true);
}

static void apart_1(const char *metric)
{
    hits(metric, 1, 2, false);
}

static void apart_100(const char *metric)
{
    hits(metric, 100, 2, false);
}

static void apart_10000(const char *metric)
{
    hits(metric, 10000, 2, false);
}

// ---- misses

// Ranges of one mapping, as of one large array.
static void miss_near(const char *metric)
{
    enum { COUNT = 2000 };
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        unsigned char *memory = map(COUNT * STRIDE, 0);
        use_once(memory, page); // what is near is watched
        const uint64_t registrations = subject_registrations();
        const double start = now();
        for (size_t i = 1; i < COUNT; i++) {
            use_once(memory + i * STRIDE, REGION);
        }
        times[time] = (now() - start) / (COUNT - 1);
        check_misses(registrations, COUNT - 1);
        unmap(memory, COUNT * STRIDE);
        subject_settle();
    }
    print(metric, 1e9 * median(times, TIMES));
}

// Each in a mapping of its own.
static void miss_apart(const char *metric)
{
    enum { COUNT = 200 };
    unsigned char *memory[COUNT];
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        for (size_t i = 0; i < COUNT; i++) {
            memory[i] = map_apart(REGION);
        }
        const uint64_t registrations = subject_registrations();
        const double start = now();
        for (size_t i = 0; i < COUNT; i++) {
            use_once(memory[i], REGION);
        }
        times[time] = (now() - start) / COUNT;
        check_misses(registrations, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            unmap_apart(memory[i], REGION);
        }
        subject_settle();
    }
    print(metric, 1e9 * median(times, TIMES));
}

// ---- invalidation

enum { MANY = 5000 };

// The munmap, the next acquire of something else, and all that is left then.
typedef struct ending {
    double unmapped, next, settled;
} ending_t;

static ending_t end_many(bool registered)
{
    const size_t bytes = (size_t)MANY * 2 * page;
    unsigned char *other = map_apart(REGION), *memory = map(bytes, 0);
    ending_t ending;

    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
    use_once(other, REGION);
    for (size_t i = 0; registered && i < MANY; i++) {
        use_once(memory + i * 2 * page, page);
    }
    const uint64_t deregistrations = subject_deregistrations();
    const double start = now();
    unmap(memory, bytes);
    const double unmapped = now();
    use_once(other, REGION);
    const double next = now();
    subject_settle();
    ending = (ending_t){unmapped - start, next - unmapped, now() - next};
    if (registered && kind == TOLD && subject_deregistrations() - deregistrations < MANY) {
        fail("of %d regions that were unmapped, %llu were deregistered", MANY,
             (unsigned long long)(subject_deregistrations() - deregistrations));
    }
    unmap_apart(other, REGION);
    subject_settle();
    return ending;
}

static double ended(bool registered, double (*part)(const ending_t *))
{
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        const ending_t ending = end_many(registered);
        times[time] = part(&ending);
    }
    return 1e6 * median(times, TIMES);
}

static double part_unmapped(const ending_t *ending)
{
    return ending->unmapped;
}

static double part_next(const ending_t *ending)
{
    return ending->next;
}

static double part_settled(const ending_t *ending)
{
    return ending->next + ending->settled;
}

static void many_unmapped(const char *metric)
{
    print(metric, ended(true, part_unmapped));
}

static void many_bare(const char *metric)
{
    print(metric, ended(false, part_unmapped));
}

static void many_next(const char *metric)
{
    print(metric, ended(true, part_next));
}

static void many_settled(const char *metric)
{
    print(metric, ended(true, part_settled));
}

// ---- munmap of 64 KiB

enum { UNMAPS = 201 };

static void unmap_64k(const char *metric, bool registered, bool worst)
{
    double times[UNMAPS];
    for (int i = 0; i < UNMAPS; i++) {
        unsigned char *memory = map_apart(REGION);
        memset(memory, 1, REGION);
        if (registered) {
            use_once(memory, REGION);
        }
        const double start = now();
        unmap(memory, REGION);
        times[i] = now() - start;
        unmap(memory - page, page);
        unmap(memory + REGION, page);
        subject_settle();
    }
    const double middle = median(times, UNMAPS);
    print(metric, 1e6 * (worst ? times[UNMAPS - 1] : middle));
}

static void unmap_watched(const char *metric)
{
    unmap_64k(metric, true, false);
}

// Of what was never registered, while other memory is.
static void unmap_unwatched(const char *metric)
{
    unsigned char *memory = map(1000 * STRIDE, 0);
    for (size_t i = 0; i < 1000; i++) {
        use_once(memory + i * STRIDE, REGION);
    }
    unmap_64k(metric, false, false);
    unmap(memory, 1000 * STRIDE);
    subject_settle();
}

static _Atomic bool spinning;

static void *spin(void *core)
{
    bind_to(*(const int *)core);
    while (atomic_load_explicit(&spinning, memory_order_relaxed)) {
    }
    return NULL;
}

// While each core has something else to do.
static void busily(const char *metric, bool worst)
{
    pthread_t spinners[2];
    atomic_store(&spinning, true);
    for (int i = 0; i < core_count; i++) {
        if (pthread_create(&spinners[i], NULL, spin, &cores[i]) != 0) {
            fail("no thread");
        }
    }
    unmap_64k(metric, true, worst);
    atomic_store(&spinning, false);
    for (int i = 0; i < core_count; i++) {
        pthread_join(spinners[i], NULL);
    }
}

static void unmap_busy(const char *metric)
{
    busily(metric, false);
}

static void unmap_busy_worst(const char *metric)
{
    busily(metric, true);
}

// ---- fork

static void fork_full(const char *metric)
{
    enum { COUNT = 1000 };
    unsigned char *memory = map(COUNT * STRIDE, 0);
    double times[TIMES];
    madvise(memory, COUNT * STRIDE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < COUNT; i++) {
        memset(memory + i * STRIDE, 1, REGION);
        use_once(memory + i * STRIDE, REGION);
    }
    for (int time = 0; time < TIMES; time++) {
        const double start = now();
        const pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        times[time] = now() - start;
        if (child < 0 || waitpid(child, NULL, 0) != child) {
            fail("cannot fork");
        }
    }
    print(metric, 1e6 * median(times, TIMES));
    unmap(memory, COUNT * STRIDE);
    subject_settle();
}

// ---- memory held

static void region_bytes(const char *metric)
{
    enum { COUNT = 10000 };
    unsigned char *memory = map(COUNT * STRIDE, 0);
    use_once(memory, REGION);
    const double before = resident();
    for (size_t i = 1; i < COUNT; i++) {
        use_once(memory + i * STRIDE, REGION);
    }
    print(metric, (resident() - before) / (COUNT - 1));
    unmap(memory, COUNT * STRIDE);
    subject_settle();
}

static void gib_bytes(const char *metric)
{
    unsigned char *memory = map(GIB, 0);
    const double before = resident();
    use_once(memory, GIB);
    print(metric, resident() - before);
    unmap(memory, GIB);
    subject_settle();
}

// More mappings there are for 512 regions in 1 GiB.
static void gib_mappings(const char *metric)
{
    unsigned char *memory = map(GIB, 0);
    const double before = mappings();
    for (size_t at = 0; at < GIB; at += HUGE) {
        use_once(memory + at + MIB, REGION);
    }
    print(metric, mappings() - before);
    unmap(memory, GIB);
    subject_settle();
}

// ---- first touch

static double touch(int advice, bool registered, double *huge)
{
    const size_t bytes = 64 * MIB, step = advice == MADV_HUGEPAGE ? HUGE : page;
    unsigned char *memory = map(bytes + HUGE, 0);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + HUGE - 1) / HUGE * HUGE);

    madvise(base, bytes, advice);
    if (registered) {
        use_once(base, bytes);
    }
    const double before = huge != NULL ? proc("/proc/self/smaps_rollup", "AnonHugePages:") : 0;
    const double start = now();
    for (size_t at = 0; at < bytes; at += step) {
        *(volatile unsigned char *)(base + at) = 1;
    }
    const double seconds = now() - start;
    if (huge != NULL) {
        *huge = (proc("/proc/self/smaps_rollup", "AnonHugePages:") - before) / (double)bytes;
    }
    unmap(memory, bytes + HUGE);
    subject_settle();
    return seconds / (double)(bytes / step);
}

static void touches(const char *metric, int advice, bool registered)
{
    double times[TIMES];
    for (int time = 0; time < TIMES; time++) {
        times[time] = touch(advice, registered, NULL);
    }
    print(metric, 1e9 * median(times, TIMES));
}

static void touch_small(const char *metric)
{
    touches(metric, MADV_NOHUGEPAGE, true);
}

static void touch_small_bare(const char *metric)
{
    touches(metric, MADV_NOHUGEPAGE, false);
}

static void touch_huge(const char *metric)
{
    touches(metric, MADV_HUGEPAGE, true);
}

static void touch_huge_bare(const char *metric)
{
    touches(metric, MADV_HUGEPAGE, false);
}

// Percent of watched memory that gets huge pages when it is touched.
static void huge_got(const char *metric)
{
    double share;
    touch(MADV_HUGEPAGE, true, &share);
    print(metric, 100 * share);
}

// Percent of memory in huge pages that still is after 64 KiB of each were registered.
static void huge_kept(const char *metric)
{
    const size_t bytes = 64 * MIB;
    unsigned char *memory = map(bytes + HUGE, 0);
    unsigned char *base = (unsigned char *)(((uintptr_t)memory + HUGE - 1) / HUGE * HUGE);
    const char *file = "/proc/self/smaps_rollup", *field = "AnonHugePages:";
    const double others = proc(file, field);

    madvise(base, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += HUGE) {
        base[at] = 1;
    }
    const double before = proc(file, field) - others;
    for (size_t at = 0; at < bytes; at += HUGE) {
        use_once(base + at + MIB, REGION);
    }
    if (before > 0) {
        print(metric, 100 * (proc(file, field) - others) / before);
    }
    unmap(memory, bytes + HUGE);
    subject_settle();
}

// ---- all of them

static const struct metric {
    const char *name;
    void (*measure)(const char *name);
    bool unmaps; // measures an munmap: who is blind to it does nothing then
} metrics[] = {
    // first, as long as nobody has memory to use again
    {"region_bytes", region_bytes, false},
    {"gib_bytes", gib_bytes, false},
    {"gib_mappings", gib_mappings, false},
    {"null_call", null_call, false},
    {"hit_1", hit_1, false},
    {"hit_100", hit_100, false},
    {"hit_10000", hit_10000, false},
    {"hit_same_1", same_1, false},
    {"hit_same_100", same_100, false},
    {"hit_same_10000", same_10000, false},
    {"hit_apart_1", apart_1, false},
    {"hit_apart_100", apart_100, false},
    {"hit_apart_10000", apart_10000, false},
    {"miss_near", miss_near, false},
    {"miss_apart", miss_apart, false},
    {"many_bare", many_bare, true},
    {"many_unmapped", many_unmapped, true},
    {"many_next", many_next, true},
    {"many_settled", many_settled, true},
    {"unmap_unwatched", unmap_unwatched, true},
    {"unmap_watched", unmap_watched, true},
    {"unmap_busy", unmap_busy, true},
    {"unmap_busy_worst", unmap_busy_worst, true},
    {"fork_full", fork_full, false},
    {"touch_small_bare", touch_small_bare, false},
    {"touch_small", touch_small, false},
    {"touch_huge_bare", touch_huge_bare, false},
    {"touch_huge", touch_huge, false},
    {"huge_got", huge_got, false},
    {"huge_kept", huge_kept, false},
};

enum { METRICS = sizeof(metrics) / sizeof(metrics[0]) };

static bool is_wanted(const char *name, char **wanted)
{
    bool any = false;
    for (; *wanted != NULL; wanted++) {
        any = true;
        if (strcmp(*wanted, name) == 0) {
            return true;
        }
    }
    return !any;
}

static void check_names(char **wanted)
{
    for (; *wanted != NULL; wanted++) {
        size_t i = 0;
        while (i < METRICS && strcmp(*wanted, metrics[i].name) != 0) {
            i++;
        }
        if (i == METRICS) {
            fail("unknown metric \"%s\"", *wanted);
        }
    }
}

int main(int argc, char **argv)
{
    char why[512] = "";

    if (argc < 2 || argv[1][0] == '-') {
        fail("usage: SUBJECT [METRIC...]; subjects: %s", subject_names);
    }
    check_names(argv + 2);
    page = (size_t)sysconf(_SC_PAGESIZE);
    find_cores();
    if (!subject_open(argv[1], &kind, why, sizeof(why))) {
        fprintf(stderr, "registration: %s: %s\n", argv[1], why);
        return CANNOT;
    }
    for (size_t i = 0; i < METRICS; i++) {
        if (is_wanted(metrics[i].name, argv + 2) && (kind != BLIND || !metrics[i].unmaps)) {
            metrics[i].measure(metrics[i].name);
        }
    }
    fflush(stdout);
    _exit(0); // the libraries' own ends are not measured
}
