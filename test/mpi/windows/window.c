/* SPDX-License-Identifier: BSD-3-Clause */
#include "window.h"

enum { SEED = 17 };

int rank, ranks;
size_t size;
const char *flavour;

unsigned char *memory;
MPI_Aint *origins;
MPI_Win window;

MPI_Aint at(int target, size_t offset)
{
    return origins[target] + (MPI_Aint)offset;
}

void open_window(size_t bytes)
{
    MPI_Aint origin = 0;

    origins = check_memory((size_t)ranks * sizeof *origins);
    if (strcmp(flavour, "allocate") == 0) {
        MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    } else {
        memory = check_memory(bytes);
        if (strcmp(flavour, "create") == 0) {
            MPI_Win_create(memory, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        } else {
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
            MPI_Win_attach(window, memory, (MPI_Aint)bytes);
            MPI_Get_address(memory, &origin);
        }
    }
    memset(memory, 0, bytes);
    MPI_Allgather(&origin, 1, MPI_AINT, origins, 1, MPI_AINT, MPI_COMM_WORLD);
}

void close_window(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(flavour, "dynamic") == 0) {
        MPI_Win_detach(window, memory);
    }
    MPI_Win_free(&window);
    if (strcmp(flavour, "allocate") != 0) {
        free(memory);
    }
    free(origins);
}

uint64_t key(uint64_t round, int from, int to)
{
    return stamp_key(SEED, round, from, to);
}

unsigned char *filled(uint64_t round, int to)
{
    unsigned char *bytes = check_memory(size + 1);

    stamp_fill(bytes, size, key(round, rank, to), 0);
    return bytes;
}

void put(const void *bytes, int to)
{
    MPI_Put(bytes, (int)size, MPI_BYTE, to, at(to, (size_t)rank * size), (int)size, MPI_BYTE,
            window);
}

void check_part(uint64_t round, int from)
{
    check_stamp(memory + (size_t)from * size, size, key(round, from, rank), 0, "put here");
}
