/* SPDX-License-Identifier: BSD-3-Clause */
/* One message of 2 GiB + 1 byte from rank 0 to rank 1, as a contiguous derived type. */
#include "check.h"

int main(int argc, char **argv)
{
    const size_t part = (size_t)1 << 20;
    const size_t parts = 2048;
    const size_t size = part * parts + 1;
    const uint64_t key = stamp_key(2, 31, 0, 1);
    int lengths[2] = {(int)parts, 1};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(part * parts)};
    MPI_Datatype types[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    MPI_Datatype type;
    MPI_Status status;
    MPI_Count elements;
    int rank;

    rank = check_begin(&argc, &argv, 1);
    MPI_Type_contiguous((int)part, MPI_BYTE, &types[0]);
    MPI_Type_create_struct(2, lengths, offsets, types, &type);
    MPI_Type_commit(&type);
    unsigned char *memory = check_memory(size + 64);
    if (rank == 0) {
        stamp_fill(memory, size, key, 0);
        MPI_Send(memory, 1, type, 1, 0, MPI_COMM_WORLD);
    } else if (rank == 1) {
        stamp_fill(memory + size, 64, ~key, 0);
        MPI_Recv(memory, 1, type, 0, 0, MPI_COMM_WORLD, &status);
        MPI_Get_elements_x(&status, type, &elements);
        if ((size_t)elements != size) {
            check_fail("%lld bytes came of %zu", (long long)elements, size);
        }
        check_stamp(memory, size, key, 0, "2 GiB + 1");
        check_stamp(memory + size, 64, ~key, 0, "behind 2 GiB + 1");
    }
    free(memory);
    MPI_Type_free(&types[0]);
    MPI_Type_free(&type);
    return check_end();
}
