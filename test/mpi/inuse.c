/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 7: a buffer that is unmapped, in part or whole, while a transfer uses it, or before.
 *
 *     inuse SIDE PART SIZE FILE
 *
 * SIDE: send, receive, or neither (the control). PART: part, some pages; all; arrived, pages whose bytes
 * have arrived, by one call; byte, which changes one and unmaps nothing; or nothing, calls that change
 * nothing, since their length is 0 or more than there is, or no segment is attached there. Rank 0 sends
 * SIZE bytes to rank 1; when the first bytes or the last have arrived, and not both, that side unmaps. Where bytes
 * are unmapped that have yet to be moved, the job ends. Else both must get to the end, and what is
 * still mapped must have arrived. Then, with new memory in place, the same buffer is used again.
 * The ranks share FILE, by which they go step by step until something has arrived, so that the
 * transfer is under way then.
 *
 *     inuse SIDE early|protect|protect-later SIZE OFFSET
 *
 * The other side is late, so that nothing is on its way when the pages at OFFSET are unmapped, or
 * may not be used so any more; with protect-later the buffer was used once before.
 */
#include <sys/shm.h>

#include "mapping.h"
#include "settle.h"

enum { TAG = 3, SEED = 61, LOOKS = 200, HOLE = 16 * 4096, EARLY_HOLE = 2 * 4096 };
enum { PIECE = 1 << 20 }; /* bytes, more than the kernel copies at once */

struct shared {
    atomic_bool receivers_turn; /* else the sender's */
    atomic_bool landed;         /* the sender's last turn: it changes its buffer, or does not */
    atomic_bool changed;        /* from now on both do as they like */
    atomic_bool from_end;       /* the last bytes arrive first */
};

static int rank;
static size_t size, hole, hole_size; /* of size 0: a byte changes */
static bool protects, nothing;
static size_t margin; /* arrived: so many bytes from either end are looked at */
static struct shared *shared;

static void protect(unsigned char *memory, int access)
{
    check_that(mprotect(memory + hole, hole_size, access) == 0, "mprotect: %s", strerror(errno));
}

/* The kernel does nothing, or refuses. */
static void change_nothing(unsigned char *memory)
{
    const size_t beyond = SIZE_MAX - 4095;
    volatile size_t zero = 0; /* or gcc warns of it */

    check_that(munmap(memory, zero) != 0 && munmap(memory, beyond) != 0 &&
                   mmap(memory, zero, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                       MAP_FAILED &&
                   mremap(memory, beyond, size, MREMAP_MAYMOVE) == MAP_FAILED &&
                   madvise(memory, beyond, MADV_DONTNEED) != 0 && shmdt(memory + 4096) != 0,
               "what is nothing was taken away");
    check_that(madvise(memory, zero, MADV_DONTNEED) == 0, "madvise of nothing: %s",
               strerror(errno));
}

/* In two steps: when the second munmap returns, the monitor has dealt with the first. */
static void change(unsigned char *memory)
{
    const size_t half = (hole_size / 2) & ~(size_t)4095;
    if (nothing) {
        change_nothing(memory);
    } else if (hole_size == 0) {
        memory[hole] ^= 1;
    } else if (protects) {
        protect(memory, rank == 0 ? PROT_NONE : PROT_READ);
    } else if (margin > 0) {
        hole = shared->from_end ? size - HOLE : 0;
        mapping_drop(memory + hole, hole_size, false);
    } else {
        mapping_drop(memory + hole, half, false);
        mapping_drop(memory + hole + half, hole_size - half, false);
    }
}

static void change_back(unsigned char *memory)
{
    if (protects) {
        protect(memory, PROT_READ | PROT_WRITE);
    } else if (hole_size > 0) {
        mapping_make(memory + hole, hole_size, false);
    }
}

/* ---- while it is under way ---- */

/* A transfer may begin with the last piece. */
static bool has_first(const unsigned char *memory, uint64_t key)
{
    return stamp_check(memory + margin, 64, key, margin) == 64;
}

static bool has_last(const unsigned char *memory, uint64_t key)
{
    return stamp_check(memory + size - 64 - margin, 64, key, size - 64 - margin) == 64;
}

/* Progress that no transfer needs. */
static void look(void)
{
    int flag;
    for (int n = 0; n < LOOKS; n++) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
}

static void send(unsigned char *memory, uint64_t key, bool changes)
{
    MPI_Request request;
    int done = 0;
    stamp_fill(memory, size, key, 0);
    MPI_Isend(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    while (!shared->landed) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        mapping_give_turn(&shared->receivers_turn, true);
    }
    if (changes) {
        check_that(!done, "the transfer was too fast");
        change(memory);
    }
    shared->changed = true;
    if (!done) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void receive(unsigned char *memory, uint64_t key, bool changes)
{
    MPI_Request request;
    int done = 0;
    memset(memory, 0, size);
    MPI_Irecv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    while (!has_first(memory, key) && !has_last(memory, key)) {
        mapping_give_turn(&shared->receivers_turn, false);
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    shared->from_end = has_last(memory, key);
    if (changes) {
        check_that(!done && (!has_first(memory, key) || !has_last(memory, key)),
                   "the transfer was too fast");
        change(memory);
        look();
    }
    shared->landed = true;
    shared->receivers_turn = false;
    await(shared->changed); /* or it would read all before */
    if (!done) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* ---- before anything is on its way ---- */

/* The receiver's match starts the transfer, so the sender has to go first for its own to be late. */
static void exchange_late(unsigned char *memory, uint64_t key, bool sender_first, bool changes)
{
    MPI_Request request;
    if ((rank == 0) != sender_first) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) {
        stamp_fill(memory, size, key, 0);
        MPI_Isend(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    } else {
        memset(memory, 0, size);
        MPI_Irecv(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
    }
    if (changes) {
        change(memory);
    }
    if ((rank == 0) == sender_first) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void check_received(const unsigned char *memory, uint64_t key, bool whole)
{
    if (whole) {
        check_stamp(memory, size, key, 0, "all of it");
    } else if (hole_size < size) {
        const size_t behind = hole + hole_size;
        check_stamp(memory, hole, key, 0, "before the hole");
        check_stamp(memory + behind, size - behind, key, behind, "behind the hole");
    }
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 5);
    const char *part = argv[2];
    const bool later = strcmp(part, "protect-later") == 0;
    protects = later || strcmp(part, "protect") == 0;
    const bool early = protects || strcmp(part, "early") == 0;
    const bool all = strcmp(part, "all") == 0;
    const bool neither = strcmp(argv[1], "neither") == 0;
    const bool sender = strcmp(argv[1], "send") == 0;
    const bool changes = !neither && rank == !sender;
    const uint64_t bad = later ? 1 : 0;
    size = strtoul(argv[3], NULL, 0);
    if (early) {
        hole = strtoul(argv[4], NULL, 0);
        hole_size = EARLY_HOLE;
    } else {
        margin = strcmp(part, "arrived") == 0 ? PIECE : 0;
        hole = all ? 0 : (size / 4 * 3) & ~(size_t)4095;
        hole_size = all ? (size + 4095) & ~(size_t)4095 : HOLE;
        nothing = strcmp(part, "nothing") == 0;
        if (nothing || strcmp(part, "byte") == 0) {
            hole_size = 0;
        }
        shared = mapping_share(argv[4], sizeof *shared);
    }
    unsigned char *memory = mapping_make_below_room(size);
    for (uint64_t round = 0; round < bad + 2; round++) {
        const uint64_t key = stamp_key(SEED, round, 0, 0);
        const bool now = round == bad;
        settle();
        if (early) {
            exchange_late(memory, key, sender, changes && now);
        } else if (rank == 0) {
            send(memory, key, changes && now);
        } else {
            receive(memory, key, changes && now);
        }
        if (rank == 1) {
            check_received(memory, key, !now || neither || hole_size == 0);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (shared != NULL) {
            shared->landed = shared->changed = shared->receivers_turn = false;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (changes && now) {
            change_back(memory);
        }
    }
    return check_end();
}
