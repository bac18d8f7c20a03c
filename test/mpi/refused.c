/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 15: the nth registration is refused, for every n, at either end.
 *
 *     refused COUNT SIZE
 *
 * A message of SIZE bytes goes from rank 0 to rank 1, and one back, from and to new memory, which
 * takes COUNT registrations at each end. That is done once for each registration at each end, and
 * test/verbs/layer.c refuses it.
 */
#include <dlfcn.h>

#include "mapping.h"

enum { SEED = 89 };

static size_t size;

static void message(int from, uint64_t round)
{
    unsigned char *memory = mapping_make(NULL, size, false);
    memset(memory, 0x5a, size);
    check_message(memory, size, from, 1 - from, stamp_key(SEED, round, from, 0),
                  "a message of which something was refused");
    mapping_drop(memory, size, false);
}

int main(int argc, char **argv)
{
    int (*refuse)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "regx_layer_refuse");
    const int rank = check_begin(&argc, &argv, 3);
    check_that(refuse != NULL, "test/verbs/layer.c is needed");
    const int count = atoi(argv[1]);
    size = strtoul(argv[2], NULL, 0);
    for (int side = 0; side < 2; side++) {
        for (int nth = 1; nth <= count; nth++) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == side) {
                refuse(nth);
            }
            message(0, (uint64_t)(side * count + nth));
            message(1, (uint64_t)(side * count + nth));
            MPI_Barrier(MPI_COMM_WORLD);
            check_that(rank != side || refuse(0) == 0, "registration %d of %d was never asked for",
                       nth, count);
        }
    }
    return check_end();
}
