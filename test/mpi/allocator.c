/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's own allocator stands before libc's, for all libraries of the process.
 *
 *     allocator nested ROUNDS SIZE
 *
 * Hazard 8: what runs inside munmap and free allocates nothing. The allocator says when it is called
 * while this thread is in it or in munmap, or by the thread that reads the notifier's events (which
 * the one that unmaps waits for). In each round a buffer of each kind is sent, received and given
 * back: mapped, allocated, reallocated to elsewhere, trimmed off the heap.
 *
 *     allocator sender|receiver|nobody SIZE
 *
 * The component gets no more memory. Rank 0 sends rank 1 SIZE bytes, twice. Before the second message
 * the component of the one that is named is refused every malloc and calloc.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <sys/prctl.h>

#include "mapping.h"
#include "settle.h"

enum { SEED = 53, TAG = 1, READER_NAME = 16 };

#define SEEN __attribute__((visibility("default"))) /* by others, before libc's */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

static size_t size;
static bool starving;
static __thread unsigned inside; /* allocator or munmap, of this thread */
static atomic_uint nested, by_reader;

static void enter(void)
{
    char name[READER_NAME] = "";
    nested += inside++ > 0;
    if (prctl(PR_GET_NAME, name, 0, 0, 0) == 0) {
        by_reader += strcmp(name, "regx-notifier") == 0;
    }
}

static void leave(void)
{
    inside--;
}

static bool refused(void *caller)
{
    Dl_info object;
    return starving && dladdr(caller, &object) != 0 && object.dli_fname != NULL &&
           strstr(object.dli_fname, "mca_btl_regx") != NULL;
}

SEEN void *malloc(size_t length)
{
    if (refused(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    enter();
    void *memory = __libc_malloc(length);
    leave();
    return memory;
}

SEEN void *calloc(size_t count, size_t length)
{
    if (refused(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    enter();
    void *memory = __libc_calloc(count, length);
    leave();
    return memory;
}

SEEN void *realloc(void *memory, size_t length)
{
    enter();
    void *other = __libc_realloc(memory, length);
    leave();
    return other;
}

SEEN void free(void *memory)
{
    enter();
    __libc_free(memory);
    leave();
}

/* ---- nested ---- */

static void use(unsigned char *memory, uint64_t round, int number)
{
    check_that(memory != NULL, "no memory");
    settle();
    check_transfer(memory, size, stamp_key(SEED, round, 0, number), "a buffer to be given back");
}

static void play(uint64_t round)
{
    unsigned char *memory = mapping_make(NULL, size, false);
    use(memory, round, 0);
    enter();
    mapping_drop(memory, size, false);
    leave();

    memory = malloc(size);
    use(memory, round, 1);
    unsigned char *longer = realloc(memory, 16 * size);
    use(longer, round, 2);
    free(longer);

    mallopt(M_MMAP_THRESHOLD, (int)(2 * size)); /* now from the heap */
    memory = malloc(size);
    use(memory, round, 3);
    free(memory);
    enter();
    malloc_trim(0);
    leave();
    mallopt(M_MMAP_THRESHOLD, 64 * 1024);
}

static void nest(uint64_t rounds)
{
    nested = by_reader = 0;
    enter(); /* the control: it sees what it is to see, of libraries too */
    char *volatile call = strdup("another's call"); /* else GCC 15 leaves both calls out */
    free(call);
    leave();
    check_that(nested == 2, "calls within calls are not seen");
    nested = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        play(round);
    }
    check_that(nested == 0 && by_reader == 0,
               "%u allocations within an allocator's or munmap's call, %u by the reader", nested,
               by_reader);
}

/* ---- starved ---- */

static void starve(int rank, bool starves)
{
    unsigned char *memory[] = {check_memory(size), check_memory(size)};
    MPI_Request requests[2];
    check_transfer(memory[0], size, stamp_key(SEED, 0, 0, 0), "before");

    /* More at once than before: what has ended leaves records to be used again. Both are there before
     * one is received, and nothing makes progress between. */
    stamp_fill(memory[1], size, stamp_key(SEED, 0, 0, 1), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    starving = starves;
    if (rank == 1) {
        MPI_Probe(0, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int n = 0; n < 2; n++) {
        if (rank == 0) {
            MPI_Isend(memory[n], (int)size, MPI_BYTE, 1, TAG + n, MPI_COMM_WORLD, &requests[n]);
        } else {
            memset(memory[n], 0, size);
            MPI_Irecv(memory[n], (int)size, MPI_BYTE, 0, TAG + n, MPI_COMM_WORLD, &requests[n]);
        }
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    starving = false;
    for (int n = 0; n < 2; n++) {
        check_stamp(memory[n], size, stamp_key(SEED, 0, 0, n), 0, "starved");
        free(memory[n]);
    }
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    size = strtoul(argv[argc - 1], NULL, 0);
    if (strcmp(argv[1], "nested") == 0) {
        nest(strtoul(argv[2], NULL, 0));
    } else {
        starve(rank, strcmp(argv[1], rank == 0 ? "sender" : "receiver") == 0);
    }
    return check_end();
}
