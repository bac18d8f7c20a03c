/* SPDX-License-Identifier: BSD-3-Clause */
#include <sys/mman.h>
#include <unistd.h>

#include "window.h"

/* Other pages at that place, all zero. Never unmapped meanwhile: another thread's mapping could
 * come there. */
static unsigned char *renewed(unsigned char *place, size_t bytes)
{
    static const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

    if (mmap(place, bytes, PROT_NONE, how, -1, 0) != place ||
        mmap(place, bytes, PROT_READ | PROT_WRITE, how, -1, 0) != place) {
        check_fail("the memory cannot be mapped anew");
    }
    return place;
}

/* What is put to, and got from, `memory`, whose last byte is behind the part of a put. */
static void exchange(uint64_t round)
{
    const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    unsigned char *mine = filled(round, to);
    unsigned char back;

    memory[size] = (unsigned char)round;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    MPI_Put(mine, (int)size, MPI_BYTE, to, at(to, 0), (int)size, MPI_BYTE, window);
    MPI_Get(&back, 1, MPI_BYTE, to, at(to, size), 1, MPI_BYTE, window);
    MPI_Win_unlock(to, window);
    MPI_Barrier(MPI_COMM_WORLD);
    check_stamp(memory, size, key(round, from, rank), 0, "put to new pages");
    if (back != (unsigned char)round) {
        check_fail("got 0x%02x of old pages in round %d", back, (int)round);
    }
    free(mine);
}

/* Attached memory that is detached, replaced by other pages and attached again: what is put and got
 * is that of the new pages. Also where something else is attached in its last page all the time,
 * for which Open MPI keeps the first registration. For a dynamic window. */
void renew(void)
{
    enum { ROUNDS_OF_EACH = 4 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t whole = (size + page) / page * page; /* more than `size` */
    unsigned char *place =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *other = place + whole + page / 2;
    MPI_Aint origin;

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    origins = check_memory((size_t)ranks * sizeof *origins);
    memory = place;
    MPI_Get_address(place, &origin);
    MPI_Allgather(&origin, 1, MPI_AINT, origins, 1, MPI_AINT, MPI_COMM_WORLD);
    for (uint64_t round = 0; round < ROUNDS_OF_EACH; round++) {
        renewed(memory, whole);
        MPI_Win_attach(window, memory, (MPI_Aint)size + 1);
        exchange(round);
        MPI_Win_detach(window, memory);
    }
    MPI_Win_attach(window, memory, other - memory);
    MPI_Win_attach(window, other, 1);
    for (uint64_t round = ROUNDS_OF_EACH; round < 2 * ROUNDS_OF_EACH; round++) {
        exchange(round);
        MPI_Win_detach(window, memory);
        renewed(memory, whole);
        MPI_Win_attach(window, memory, (MPI_Aint)whole);
    }
    MPI_Win_detach(window, memory);
    MPI_Win_detach(window, other);
    MPI_Win_free(&window);
    munmap(place, whole + page);
    free(origins);
}
