/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways of changing memory, each made to a buffer that was sent from before and is sent from again.
 *
 *     kinds KIND[,KIND...] SIZE
 *
 * Of each kind rank 0 sends SIZE bytes (whole pages) twice, changes the buffer, and sends twice
 * more; rank 1 receives into a buffer left alone. The names are in the table below. Whether regx
 * saw the change is in its counters, of which rank 0 prints how far each kind has moved them:
 *
 *     kind NAME hits 2 misses 2 uncached 0 invalidations 1
 *
 * A kind that the kernel does not have is said to be absent.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"
#include "mapping.h"
#include "settle.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

enum { SEED = 73, PAGE = 4096, BOTH = PROT_READ | PROT_WRITE, SLACK = 64 << 20 };

static size_t size;
static unsigned char *buffer;
static int file; /* behind a mapped file */

/* ---- what a buffer may be ---- */

static void anonymous(void)
{
    buffer = mapping_make_below_room(size);
}

static void shared(void)
{
    file = memfd_create("kinds", MFD_CLOEXEC);
    if (ftruncate(file, (off_t)size) == 0) {
        anonymous();
        buffer = mmap(buffer, size, BOTH, MAP_SHARED | MAP_FIXED, file, 0);
    }
}

static void *segment(void *at, int flags)
{
    const int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    void *memory = shmat(id, at, flags);
    shmctl(id, IPC_RMID, NULL);
    return memory;
}

static void attached(void)
{
    anonymous();
    buffer = segment(buffer, SHM_REMAP);
}

static void block(void)
{
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* a mapping of its own, also after one was freed */
    buffer = malloc(size);
}

/* malloc finds what it needs below, so that the end of the heap stays ours. */
static void end_of_heap(void)
{
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 2 * SLACK);
    void *volatile slack = malloc(SLACK);
    free(slack);
    buffer = sbrk(PAGE - (intptr_t)((uintptr_t)sbrk(0) % PAGE));
    buffer = sbrk((intptr_t)size);
}

/* ---- ways of changing it; false: this kernel does not have them ---- */

/* Not seen by hooks, and not a change: nothing is there. */
static void map_anew(unsigned char *at, size_t length)
{
    mapping_make(at, length, true);
}

static bool unmap(void)
{
    munmap(buffer, size);
    map_anew(buffer, size);
    return true;
}

static void *unmap_in_thread(void *unused)
{
    munmap(buffer, size);
    return unused;
}

static bool unmap_by_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, unmap_in_thread, NULL);
    pthread_join(thread, NULL);
    map_anew(buffer, size);
    return true;
}

static bool unmap_part(void)
{
    munmap(buffer + PAGE, PAGE);
    map_anew(buffer + PAGE, PAGE);
    return true;
}

/* The kernel takes the whole page. */
static bool unmap_one_byte(void)
{
    munmap(buffer + size - PAGE, 1);
    map_anew(buffer + size - PAGE, PAGE);
    return true;
}

static bool map_over(void)
{
    return mmap(buffer, size, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == buffer;
}

static bool move_away(void)
{
    mapping_make(buffer + size, PAGE, true); /* in the way of growing where it is */
    void *elsewhere = mremap(buffer, size, 2 * size, MREMAP_MAYMOVE);
    if (elsewhere == buffer) {
        check_fail("the buffer grew in place");
    }
    map_anew(buffer, size);
    return true;
}

static bool shrink(void)
{
    mremap(buffer, size, PAGE, 0);
    map_anew(buffer + PAGE, size - PAGE);
    return true;
}

static bool move_pages_only(void)
{
    /* Without a hint the kernel would look at whatever is in that register. */
    return mremap(buffer, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) != MAP_FAILED;
}

static bool advise(int advice)
{
    return madvise(buffer, size, advice) == 0;
}

static bool dontneed(void)
{
    return advise(MADV_DONTNEED);
}

static bool advise_free(void)
{
    return advise(MADV_FREE);
}

static bool advise_remove(void)
{
    return advise(MADV_REMOVE);
}

static bool dontneed_locked(void)
{
    return advise(MADV_DONTNEED_LOCKED);
}

static bool guard(void)
{
    return advise(MADV_GUARD_INSTALL) && advise(MADV_GUARD_REMOVE);
}

static bool shrink_heap_by_sbrk(void)
{
    return sbrk(-(intptr_t)size) == buffer + size && sbrk((intptr_t)size) == buffer;
}

static bool shrink_heap_by_brk(void)
{
    return brk(buffer) == 0 && brk(buffer + size) == 0;
}

static bool detach(void)
{
    shmdt(buffer);
    map_anew(buffer, size);
    return true;
}

static bool attach_over(void)
{
    return segment(buffer, SHM_REMAP) == buffer;
}

static bool give_back(void)
{
    free(buffer);
    block();
    return true;
}

static bool reallocate(void)
{
    void *other = realloc(buffer, 3 * size);
    if (other == NULL) {
        return false;
    }
    buffer = other;
    return true;
}

static bool trim(void)
{
    free(buffer);
    malloc_trim(0);
    block();
    return true;
}

static bool unmap_raw(void)
{
    syscall(SYS_munmap, buffer, size);
    map_anew(buffer, size);
    return true;
}

static bool dontneed_by_process(void)
{
    const struct iovec all = {buffer, size};
    const long self = syscall(SYS_pidfd_open, getpid(), 0);
    const bool done = process_madvise((int)self, &all, 1, MADV_DONTNEED, 0) == (ssize_t)size;
    close((int)self);
    return done;
}

static bool move_onto(void)
{
    /* Between pages of another kind, so that it is no part of a mapping that is watched. */
    unsigned char *other =
        mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    other += PAGE;
    mprotect(other, size, BOTH);
    return mremap(other, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, buffer) == buffer;
}

static bool punch(void)
{
    return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0;
}

static bool truncate_it(void)
{
    return ftruncate(file, 0) == 0 && ftruncate(file, (off_t)size) == 0;
}

static bool nothing(void)
{
    return true;
}

static const struct kind {
    const char *name;
    void (*make)(void);
    bool (*change)(void);
} kinds[] = {
    {"nothing", anonymous, nothing},
    {"munmap", anonymous, unmap},
    {"munmap-thread", anonymous, unmap_by_thread},
    {"munmap-part", anonymous, unmap_part},
    {"munmap-byte", anonymous, unmap_one_byte},
    {"mmap-fixed", anonymous, map_over},
    {"mremap-move", anonymous, move_away},
    {"mremap-shrink", anonymous, shrink},
    {"mremap-dontunmap", anonymous, move_pages_only},
    {"dontneed", anonymous, dontneed},
    {"madv-free", anonymous, advise_free},
    {"madv-remove", shared, advise_remove},
    {"sbrk", end_of_heap, shrink_heap_by_sbrk},
    {"brk", end_of_heap, shrink_heap_by_brk},
    {"shmdt", attached, detach},
    {"shm-remap", anonymous, attach_over},
    {"free", block, give_back},
    {"realloc", block, reallocate},
    {"trim", block, trim},
    {"munmap-raw", anonymous, unmap_raw},
    {"process-madvise", anonymous, dontneed_by_process},
    {"mremap-onto", anonymous, move_onto},
    {"dontneed-locked", anonymous, dontneed_locked},
    {"guard", anonymous, guard},
    {"punch", shared, punch},
    {"truncate", shared, truncate_it},
};

/* ---- regx's counters, by MPI_T ---- */

static const char *const counters[] = {"hits", "misses", "uncached", "invalidations"};
enum { COUNTERS = sizeof counters / sizeof counters[0] };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle handles[COUNTERS];
static unsigned long long values[COUNTERS]; /* as they were */

static void find_counters(void)
{
    int level, index, count;
    char name[128];
    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    MPI_T_pvar_session_create(&session);
    for (int n = 0; n < COUNTERS; n++) {
        snprintf(name, sizeof name, "btl_regx_%s", counters[n]);
        /* Of a job without regx there are none. */
        if ((MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index) != MPI_SUCCESS &&
             MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_LEVEL, &index) != MPI_SUCCESS) ||
            MPI_T_pvar_handle_alloc(session, index, NULL, &handles[n], &count) != MPI_SUCCESS) {
            handles[n] = MPI_T_PVAR_HANDLE_NULL;
        }
    }
}

static void print_counters(const char *kind, const char *how)
{
    char text[512];
    int used = snprintf(text, sizeof text, "%s %s", how, kind);
    for (int n = 0; n < COUNTERS && handles[n] != MPI_T_PVAR_HANDLE_NULL; n++) {
        const unsigned long long before = values[n];
        MPI_T_pvar_read(session, handles[n], &values[n]);
        used += snprintf(text + used, sizeof text - (size_t)used, " %s %llu", counters[n],
                         values[n] - before);
    }
    fprintf(stderr, "%s\n", text);
}

static const struct kind *find(const char *name)
{
    for (size_t n = 0; n < sizeof kinds / sizeof kinds[0]; n++) {
        if (strcmp(kinds[n].name, name) == 0) {
            return &kinds[n];
        }
    }
    check_fail("there is no kind %s", name);
}

static void play(const struct kind *kind, int rank)
{
    bool there = true;
    (rank == 0 ? kind->make : anonymous)();
    if (buffer == NULL || buffer == MAP_FAILED) {
        check_fail("no memory");
    }
    for (uint64_t round = 0; round < 4; round++) {
        there = there && (round != 2 || rank != 0 || kind->change());
        settle();
        check_transfer(buffer, size, stamp_key(SEED, round, 0, 0), "a buffer that was changed");
    }
    if (rank == 0) {
        print_counters(kind->name, there ? "kind" : "absent");
    }
}

int main(int argc, char **argv)
{
    int rank;

    MPI_Init(&argc, &argv);
    find_counters();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        check_fail("kinds and a size are needed");
    }
    size = strtoul(argv[2], NULL, 0);
    for (char *name = strtok(argv[1], ","); name != NULL; name = strtok(NULL, ",")) {
        play(find(name), rank);
    }
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
