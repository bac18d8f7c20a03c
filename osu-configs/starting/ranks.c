// SPDX-License-Identifier: BSD-3-Clause
//
// What "startup" starts: each rank begins and ends MPI, and tells of itself in one line,
//
//   startup RANK INIT_US FINALIZE_US PSS_KIB
//
// Init counts from the begin of main. The proportional set size shares each page among the
// processes that map it, so that a sum over the ranks counts no page twice; all ranks are there
// while it is read, and each has exchanged messages in two barriers.

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

// 0 where the kernel does not tell.
static long pss_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    if (!file)
        return 0;
    char line[256];
    long pss = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "Pss: %ld kB", &pss) == 1)
            break;
    }
    fclose(file);
    return pss;
}

int main(int argc, char **argv)
{
    double begin = now_us();
    MPI_Init(&argc, &argv);
    double init = now_us() - begin;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    long pss = pss_kib();
    MPI_Barrier(MPI_COMM_WORLD);
    begin = now_us();
    MPI_Finalize();
    double finalize = now_us() - begin;

    // One write: lines of several ranks do not mix.
    char line[128];
    snprintf(line, sizeof line, "startup %d %.0f %.0f %ld\n", rank, init, finalize, pss);
    return write(STDOUT_FILENO, line, strlen(line)) == (ssize_t)strlen(line) ? 0 : 1;
}
