/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 4: another library patches libc's functions after MPI's hooks, and the hooks fall silent.
 *
 *     stolen SIZE all|munmap|mmap|mremap|madvise|shmat|shmdt|brk|sbrk
 *
 * Rank 0 sends twice from a buffer, puts the functions' first bytes, or those of the one that is
 * named, back to what they are in libc's file (an Open MPI that is linked with UCX has them patched
 * before main), and unmaps the buffer. Then it sends twice from a second buffer, and twice from the
 * memory that is at the first one's address now. Rank 1 receives in the same way.
 */
#include <dlfcn.h>

#include "check.h"
#include "mapping.h"
#include "settle.h"

enum { SEED = 83, CODE = 32, BOTH = PROT_READ | PROT_WRITE };

static const char *const names[] = {"munmap", "mmap",  "mremap", "madvise",
                                    "shmat",  "shmdt", "brk",    "sbrk"};
enum { FUNCTIONS = sizeof names / sizeof names[0] };

static unsigned char *functions[FUNCTIONS];
static unsigned char before[FUNCTIONS][CODE];
static size_t size;
static uint64_t round_;

static void remember(void)
{
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    Dl_info info;
    for (int n = 0; n < FUNCTIONS; n++) {
        functions[n] = dlsym(libc, names[n]);
        dladdr(functions[n], &info);
        const int file = open(info.dli_fname, O_RDONLY);
        const off_t offset = functions[n] - (unsigned char *)info.dli_fbase;
        check_that(pread(file, before[n], CODE, offset) == CODE, "%s: %s", info.dli_fname,
                   strerror(errno));
        close(file);
    }
}

/* Answers how many functions were different. */
static int put_back(const char *which)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int changed = 0;
    for (int n = 0; n < FUNCTIONS; n++) {
        if (strcmp(which, "all") != 0 && strcmp(which, names[n]) != 0) {
            continue;
        }
        void *start = (void *)((uintptr_t)functions[n] & ~(page - 1));
        changed += memcmp(before[n], functions[n], CODE) != 0;
        check_that(mprotect(start, 2 * page, BOTH | PROT_EXEC) == 0, "mprotect: %s",
                   strerror(errno));
        memcpy(functions[n], before[n], CODE);
        mprotect(start, 2 * page, PROT_READ | PROT_EXEC);
    }
    return changed;
}

static void transfer_twice(unsigned char *memory)
{
    for (int n = 0; n < 2; n++) {
        settle();
        check_transfer(memory, size, stamp_key(SEED, round_++, 0, 0),
                       "after the hooks were stolen");
    }
}

int main(int argc, char **argv)
{
    remember();
    const int rank = check_begin(&argc, &argv, 3);
    size = strtoul(argv[1], NULL, 0);
    unsigned char *first = mapping_make_below_room(size);
    unsigned char *second = mmap(NULL, size, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    transfer_twice(first);
    if (rank == 0) {
        fprintf(stderr, "stolen: %d functions were patched\n", put_back(argv[2]));
        mapping_drop(first, size, false);
        mapping_make(first, size, true);
    }
    transfer_twice(second);
    transfer_twice(first);
    return check_end();
}
