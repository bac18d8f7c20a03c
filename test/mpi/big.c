/* SPDX-License-Identifier: BSD-3-Clause */
/* One message of 2 GiB + 1 MiB from rank 0 to rank 1, of a derived type. */
#include "check.h"

int main(int argc, char **argv)
{
    const size_t part = (size_t)1 << 20, parts = 2049, size = part * parts;
    const uint64_t key = stamp_key(2, 31, 0, 1);
    const int rank = check_begin(&argc, &argv, 1);
    MPI_Datatype type;

    MPI_Type_contiguous((int)part, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    unsigned char *memory = check_memory(size + 64);
    stamp_fill(memory + size, 64, ~key, 0);
    if (rank == 0) {
        stamp_fill(memory, size, key, 0);
        MPI_Send(memory, (int)parts, type, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(memory, (int)parts, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(memory, size, key, 0, "2 GiB + 1 MiB");
        check_stamp(memory + size, 64, ~key, 0, "behind 2 GiB + 1 MiB");
    }
    free(memory);
    MPI_Type_free(&type);
    return check_end();
}
