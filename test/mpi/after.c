/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 27: the address space changes after MPI_Finalize.
 *
 *     after SIZE
 *
 * Buffers that were sent and received from are unmapped in every way, by this thread, another
 * and a child. Nothing of regx may be left: with a thread it hangs, with a userfaultfd unread it would too.
 * Ends with 0, or with 4 and a line.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

#include "mapping.h"
#include "settle.h"

enum { TAG = 3, SEED = 71, BUFFERS = 6, LEFT = 4 };

static size_t size;
static unsigned char *buffers[BUFFERS];

/* With a gap on either side, so that the kernel makes it no part of another mapping. */
static void *map_alone(void)
{
    const size_t gap = 4096, whole = (size + 2 * gap + 4095) & ~(size_t)4095;
    unsigned char *memory = mapping_make(NULL, whole, false);
    mapping_drop(memory, gap, false);
    mapping_drop(memory + whole - gap, gap, false);
    return memory + gap;
}

static void exchange(int number, unsigned char *in)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    stamp_fill(buffers[number], size, stamp_key(SEED, 0, rank, number), 0);
    MPI_Sendrecv(buffers[number], (int)size, MPI_BYTE, 1 - rank, TAG, in, (int)size, MPI_BYTE,
                 1 - rank, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(in, size, stamp_key(SEED, 0, 1 - rank, number), 0, "before the end");
}

static void *unmap(void *memory)
{
    munmap(memory, size);
    return NULL;
}

static void change(void)
{
    pthread_t thread;
    void *moved;
    free(buffers[0]);
    free(buffers[2]);
    malloc_trim(0);
    memset(buffers[4], 1, size);
    pthread_create(&thread, NULL, unmap, buffers[1]);
    pthread_join(thread, NULL);
    const pid_t child = fork();
    if (child == 0) {
        munmap(buffers[3], size);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    madvise(buffers[3], size, MADV_DONTNEED);
    moved = mremap(buffers[3], size, 2 * size, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED || syscall(SYS_munmap, moved, 2 * size) != 0 ||
        mmap(buffers[5], size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != buffers[5]) {
        perror("after");
        exit(LEFT);
    }
    free(buffers[4]);
    unmap(buffers[5]);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 2);
    size = strtoul(argv[1], NULL, 0);
    unsigned char *in = mapping_make(NULL, size, false);
    for (int n = 0; n < BUFFERS; n++) {
        buffers[n] = n % 2 == 0 ? malloc(size) : map_alone();
    }
    for (int n = 0; n < 2 * BUFFERS; n++) { /* each twice */
        exchange(n % BUFFERS, in);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    change();
    settle_ended("regx-");
    return 0;
}
