/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 4: somebody patches libc's functions after MPI's hooks, and the hooks fall silent.
 *
 *     stolen SIZE
 *
 * Rank 0 sends twice from a buffer, puts the functions' first bytes back to what they were before
 * MPI_Init, and unmaps the buffer by libc. Then it sends twice from a second buffer and twice from
 * new memory at the first one's address. Rank 1 receives into one buffer.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { TAG = 3, SEED = 83, CODE = 32, BOTH = PROT_READ | PROT_WRITE };

static const char *const names[] = {"munmap", "mmap",  "mremap", "madvise",
                                    "shmat",  "shmdt", "brk",    "sbrk"};
enum { FUNCTIONS = sizeof names / sizeof names[0] };

static unsigned char *functions[FUNCTIONS];
static unsigned char before[FUNCTIONS][CODE];
static int rank;
static size_t size;
static uint64_t round_;

static void remember(void)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    for (int n = 0; n < FUNCTIONS; n++) {
        functions[n] = dlsym(libc, names[n]);
        memcpy(before[n], functions[n], CODE);
    }
}

/* Answers how many functions were different. */
static int put_back(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int changed = 0;
    for (int n = 0; n < FUNCTIONS; n++) {
        void *start = (void *)((uintptr_t)functions[n] & ~(page - 1));
        changed += memcmp(before[n], functions[n], CODE) != 0;
        if (mprotect(start, 2 * page, BOTH | PROT_EXEC) != 0) {
            check_fail("mprotect: %s", strerror(errno));
        }
        memcpy(functions[n], before[n], CODE);
        mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
    }
    return changed;
}

static void transfer_twice(unsigned char *memory)
{
    for (int n = 0; n < 2; n++) {
        const uint64_t key = stamp_key(SEED, round_++, 0, 0);
        if (rank == 0) {
            stamp_fill(memory, size, key, 0);
            MPI_Send(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        } else {
            MPI_Recv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_stamp(memory, size, key, 0, "after the hooks were stolen");
        }
    }
}

int main(int argc, char **argv)
{
    remember();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 2) {
        check_fail("a size is needed");
    }
    size = strtoul(argv[1], NULL, 0);
    unsigned char *first = mmap(NULL, size, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *second = mmap(NULL, size, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    transfer_twice(first);
    if (rank == 0) {
        fprintf(stderr, "stolen: %d functions were patched\n", put_back());
        munmap(first, size);
        if (syscall(SYS_mmap, first, size, BOTH, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                    -1, 0L) != (long)first) {
            check_fail("cannot map again what was unmapped: %s", strerror(errno));
        }
    }
    transfer_twice(second);
    transfer_twice(first);
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
