/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives, each byte checked, every rank the root in turn.
 *
 *     collective [--seed N] [--roots N] --sizes N,N,... NAME...
 *
 * SIZE is what one rank gives to one other. NAME: bcast scatter alltoall; or room: at least half of /dev/shm
 * must be free for the program.
 */
#include <sys/statvfs.h>

#include "check.h"

struct operation {
    const char *name;
    void (*run)(size_t size, int root);
};

static uint64_t seed;
static uint64_t iteration;
static int rank;
static int ranks;

static uint64_t key(int from, int to)
{
    return stamp_key(seed, iteration, from, to);
}

/* Memory for so many bytes with a guard behind them that must stay. */
static unsigned char *take(size_t length)
{
    unsigned char *memory = check_memory(length + 64);
    memset(memory, 0xee, length);
    stamp_fill(memory + length, 64, ~seed, 0);
    return memory;
}

static void give_back(unsigned char *memory, size_t length)
{
    check_stamp(memory + length, 64, ~seed, 0, "guard behind a collective's buffer");
    free(memory);
}

static void run_bcast(size_t size, int root)
{
    unsigned char *memory = take(size);
    if (rank == root) {
        stamp_fill(memory, size, key(root, 0), 0);
    }
    MPI_Bcast(memory, (int)size, MPI_BYTE, root, MPI_COMM_WORLD);
    check_stamp(memory, size, key(root, 0), 0, "bcast");
    give_back(memory, size);
}

static void run_scatter(size_t size, int root)
{
    size_t all = size * (size_t)ranks;
    unsigned char *out = take(rank == root ? all : 0);
    unsigned char *in = take(size);
    for (int to = 0; rank == root && to < ranks; to++) {
        stamp_fill(out + (size_t)to * size, size, key(root, to), 0);
    }
    MPI_Scatter(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, root, MPI_COMM_WORLD);
    check_stamp(in, size, key(root, rank), 0, "scatter");
    give_back(out, rank == root ? all : 0);
    give_back(in, size);
}

static void run_alltoall(size_t size, int root)
{
    size_t all = size * (size_t)ranks;
    unsigned char *out = take(all);
    unsigned char *in = take(all);
    for (int to = 0; to < ranks; to++) {
        stamp_fill(out + (size_t)to * size, size, key(rank, to), 0);
    }
    MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++) {
        check_stamp(in + (size_t)from * size, size, key(from, rank), 0, "alltoall");
    }
    give_back(out, all);
    give_back(in, all);
}

static void run_room(size_t size, int root)
{
    struct statvfs room;
    check_that(statvfs("/dev/shm", &room) == 0 && room.f_bavail >= room.f_blocks / 2,
               "of /dev/shm %llu KiB are free of %llu",
               (unsigned long long)(room.f_bavail * room.f_frsize >> 10),
               (unsigned long long)(room.f_blocks * room.f_frsize >> 10));
}

static const struct operation operations[] = {{"bcast", run_bcast},
                                              {"scatter", run_scatter},
                                              {"alltoall", run_alltoall},
                                              {"room", run_room},
                                              {NULL, NULL}};

static void run_named(const char *name, const char *sizes, int roots)
{
    const struct operation *operation = operations;
    while (operation->name != NULL && strcmp(operation->name, name) != 0) {
        operation++;
    }
    check_that(operation->name != NULL, "no collective \"%s\"", name);
    for (const char *at = sizes; *at != '\0'; at += strspn(at, ",")) {
        char *end;
        size_t size = strtoul(at, &end, 10);
        check_that(end != at, "not a list of sizes: %s", sizes);
        at = end;
        for (int root = 0; root < roots && root < ranks; root++) {
            operation->run(size, root);
            iteration++;
        }
    }
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 2);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    seed = check_number(&argc, argv, "--seed", 1);
    const int roots = (int)check_number(&argc, argv, "--roots", 1 << 20);
    const char *sizes = check_option(&argc, argv, "--sizes", 2);
    check_that(sizes != NULL, "needs --sizes");
    for (int n = 1; n < argc; n++) {
        run_named(argv[n], sizes, roots);
    }
    return check_end();
}
