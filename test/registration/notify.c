/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The module of component/kernel by itself (test_notify.py has loaded it).
 *
 *   notify rows             the changes of the table of staleness: lines of its name, "stale" or "right" (what
 *                           an unprotected cache has afterwards), and "told", "still" (nothing was) or
 *                           "refused" (there is no such thing here), with tabs between
 *   notify check            what the device must hold, one line of "ok" each; ends at the first that it does
 *                           not
 *   notify many             watches 10,000 ranges, and waits for the end of its input
 *   notify fuzz SECONDS SEED
 */
#include <time.h>

#include "notify.h"

size_t page;
int device;
const struct regx_notify_page *told;

_Noreturn void fail(const char *what)
{
    fprintf(stderr, "notify: %s (%s)\n", what, strerror(errno));
    exit(1);
}

int ask(int file, unsigned long what, uintptr_t start, uintptr_t end)
{
    struct regx_notify_range range = {.start = start, .end = end};

    return ioctl(file, what, &range) == 0 ? 0 : errno;
}

int watch(const void *base, size_t length)
{
    return ask(device, REGX_NOTIFY_WATCH, (uintptr_t)base, (uintptr_t)base + length);
}

int unwatch(const void *base, size_t length)
{
    return ask(device, REGX_NOTIFY_UNWATCH, (uintptr_t)base, (uintptr_t)base + length);
}

int agree(int file, uint32_t version, uint32_t size)
{
    struct regx_notify_agree agree = {.version = version, .size = size};

    return ioctl(file, REGX_NOTIFY_AGREE, &agree) == 0 ? 0 : errno;
}

void open_device(void)
{
    page = (size_t)sysconf(_SC_PAGESIZE);
    device = open(REGX_NOTIFY_PATH, O_RDONLY | O_CLOEXEC);
    MUST(device >= 0);
    MUST(agree(device, REGX_NOTIFY_VERSION, sizeof(*told)) == 0);
    told = mmap(NULL, sizeof(*told), PROT_READ, MAP_SHARED, device, 0);
    MUST(told != MAP_FAILED);
}

bool was_told(uint64_t since, const void *base, size_t length)
{
    for (; since != count(); since++) {
        const struct regx_notify_range *range = &told->ring[since % REGX_NOTIFY_RING];

        if (range->start < (uintptr_t)base + length && (uintptr_t)base < range->end) {
            return true;
        }
    }
    return false;
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
        const int file = open(REGX_NOTIFY_PATH, rand_r(seed) % 3 | O_CLOEXEC);
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
