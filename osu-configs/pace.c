// SPDX-License-Identifier: BSD-3-Clause
//
// A library that compare loads into OSU's benchmarks, unmodified: it parks all ranks behind MPI_Init, and at the first
// MPI_Barrier after their slice is used up, until compare lets them go on.
//
//   mpirun -x LD_PRELOAD=pace.so -x REGX_PACE="ADDRESS NAME MILLISECONDS" osu_bw
//
// Each rank connects as the companion's do. A line lets it go on; it answers "parked" when it waits again. OSU's
// benchmarks meet at barriers before each size, some before each iteration, and time nothing there.

#include <mpi.h>
#include <stdlib.h>

#include "connection.h"

static int to = -1, rank;
static double slice, since;

static void park(void)
{
    char line[64];
    if (!next_line(to, line, sizeof line))
        exit(1); // compare has gone
    PMPI_Barrier(MPI_COMM_WORLD);
    since = PMPI_Wtime();
}

static void begin(void)
{
    char address[256], name[64], hello[96];
    const char *told = getenv("REGX_PACE");
    if (told == NULL || sscanf(told, "%255s %63s %lf", address, name, &slice) != 3)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    to = connected(address);
    snprintf(hello, sizeof hello, "%s %d\n", name, rank);
    if (to < 0 || !say(to, hello))
        exit(1);
    park();
}

int MPI_Init(int *argc, char ***argv)
{
    int status = PMPI_Init(argc, argv);
    begin();
    return status;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int status = PMPI_Init_thread(argc, argv, required, provided);
    begin();
    return status;
}

int MPI_Barrier(MPI_Comm comm)
{
    int status = PMPI_Barrier(comm);
    if (to < 0 || comm != MPI_COMM_WORLD)
        return status;
    int stop = rank == 0 && 1e3 * (PMPI_Wtime() - since) >= slice;
    PMPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (stop) {
        if (!say(to, "parked\n"))
            exit(1);
        park();
    }
    return status;
}
