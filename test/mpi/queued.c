/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many small messages to a process that is outside MPI: they wait at the sender, in order.
 *
 *     queued FIFO MESSAGES
 *
 * Rank 0 sends MESSAGES numbers of 8 bytes and prints on standard error how many bytes of the heap
 * that took, per message; only then it opens FIFO, for which rank 1 waits before it receives.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    uint64_t number;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 3) {
        check_fail("needs a fifo and a number of messages");
    }
    const size_t messages = strtoul(argv[2], NULL, 10);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        uint64_t *numbers = check_memory(messages * sizeof *numbers);
        MPI_Request *requests = malloc(messages * sizeof(MPI_Request));
        const size_t before = mallinfo2().uordblks;
        for (size_t i = 0; i < messages; i++) {
            numbers[i] = i * UINT64_C(0x9e3779b97f4a7c15);
            MPI_Isend(&numbers[i], 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
        }
        fprintf(stderr, "per message: %zu\n", (mallinfo2().uordblks - before) / messages);
        close(open(argv[1], O_WRONLY));
        MPI_Waitall((int)messages, requests, MPI_STATUSES_IGNORE);
        free(requests);
        free(numbers);
    } else if (rank == 1) {
        close(open(argv[1], O_RDONLY));
        for (size_t i = 0; i < messages; i++) {
            MPI_Recv(&number, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (number != i * UINT64_C(0x9e3779b97f4a7c15)) {
                check_fail("message %zu is another one: %llx", i, (unsigned long long)number);
            }
            check_bytes += sizeof number;
        }
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
