/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks; the component gets no more memory from malloc.
 *
 *     starved sender|receiver|nobody SIZE
 *
 * Rank 0 sends rank 1 SIZE bytes, twice. Before the second message the component of the one that is
 * named is refused every malloc and calloc. This program's functions stand before libc's.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"

enum { SEED = 89, TAG = 1 };

#define SEEN __attribute__((visibility("default"))) /* by the component, before libc's */

static bool starving;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);

static bool refused(void *caller)
{
    Dl_info object;
    return starving && dladdr(caller, &object) != 0 && object.dli_fname != NULL &&
           strstr(object.dli_fname, "mca_btl_regx") != NULL;
}

SEEN void *malloc(size_t size)
{
    if (refused(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(size);
}

SEEN void *calloc(size_t count, size_t size)
{
    if (refused(__builtin_return_address(0))) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_calloc(count, size);
}

int main(int argc, char **argv)
{
    int rank;
    rank = check_begin(&argc, &argv, 3);
    const size_t size = strtoul(argv[2], NULL, 0);
    unsigned char *first = check_memory(size), *second = check_memory(size);
    check_transfer(first, size, stamp_key(SEED, 0, 0, 0), "before");

    /* More at once than before: what has ended leaves records to be used again. */
    stamp_fill(second, size, stamp_key(SEED, 0, 0, 2), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    starving = strcmp(argv[1], rank == 0 ? "sender" : "receiver") == 0;
    MPI_Request requests[2];
    for (int n = 0; n < 2; n++) {
        unsigned char *memory = n == 0 ? first : second;
        if (rank == 0) {
            MPI_Isend(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[n]);
        } else {
            memset(memory, 0, size);
            MPI_Irecv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[n]);
        }
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    starving = false;
    if (rank == 1) {
        check_stamp(first, size, stamp_key(SEED, 0, 0, 0), 0, "the first, starved");
        check_stamp(second, size, stamp_key(SEED, 0, 0, 2), 0, "the second, starved");
    }
    free(first);
    free(second);
    return check_end();
}
