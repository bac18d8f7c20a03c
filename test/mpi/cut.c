/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Truncation where no memory is behind the receive buffer: MPI_ERR_TRUNCATE, and the job goes on.
 *
 *     cut SENT RECEIVED
 *
 * RECEIVED is a multiple of the page. Rank 1 receives so many bytes of SENT, and behind its buffer is
 * nothing that may be written. The next message, which fits, is right.
 */
#include "mapping.h"

enum { SEED = 53 };

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    const size_t sent = strtoul(argv[1], NULL, 0), received = strtoul(argv[2], NULL, 0);
    unsigned char *memory = mapping_make(NULL, sent + received, false);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1 && mprotect(memory + received, sent, PROT_NONE) != 0) {
        check_fail("mprotect: %s", strerror(errno));
    }
    for (uint64_t round = 0; round < 3; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        int class = MPI_SUCCESS;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            stamp_fill(memory, sent, key, 0);
            MPI_Send(memory, (int)sent, MPI_BYTE, 1, CHECK_TAG, MPI_COMM_WORLD);
        } else {
            MPI_Error_class(MPI_Recv(memory, (int)received, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD,
                                     MPI_STATUS_IGNORE),
                            &class);
            if (class != MPI_ERR_TRUNCATE) {
                check_fail("a message of %zu bytes into %zu: error class %d", sent, received,
                           class);
            }
        }
        check_transfer(memory, received, key + 1, "the next message");
    }
    return check_end();
}
