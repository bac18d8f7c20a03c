/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process that only waits for another one, which then cannot be reached any more.
 *
 *     awaited FILE COMMAND
 *
 * Rank 1 sends a small message. Rank 0, which sends nothing, makes FILE when it has come, and waits
 * for another one. Rank 1 then runs COMMAND, which is to cut it off, and does nothing more.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    int rank, probed, value = 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        check_fail("needs a file and a command");
    }
    if (rank == 0) {
        MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        close(open(argv[1], O_WRONLY | O_CREAT, 0666));
        MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        while (access(argv[1], F_OK) != 0) { /* and see to it that it leaves */
            MPI_Iprobe(0, 1, MPI_COMM_WORLD, &probed, MPI_STATUS_IGNORE);
        }
        if (system(argv[2]) != 0) {
            check_fail("the command failed: %s", argv[2]);
        }
        pause();
    }
    return 0;
}
