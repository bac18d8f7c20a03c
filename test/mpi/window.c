/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: each way to make one, to synchronise and to change it, each byte and number checked.
 *
 *     window FLAVOUR SIZE CASE...
 *
 * FLAVOUR is create, allocate or dynamic. The cases are in the table below. SIZE is the bytes
 * of a put or get; every rank's window has a part of that size for each rank. The case alone is
 * for where the target need not do anything.
 */
#include "windows/window.h"

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"fence", fence},
             {"pscw", pscw},
             {"lock", lock},
             {"requests", requests},
             {"flood", flood},
             {"derived", derived},
             {"accumulate", accumulate},
             {"fetch", fetch},
             {"swap", swap},
             {"alternate", alternate},
             {"mixed", mixed},
             {"queue", queue},
             {"alone", alone}};

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    flavour = argv[1];
    size = strtoul(argv[2], NULL, 0);
    for (int n = 3; n < argc; n++) {
        size_t c = 0;

        while (strcmp(cases[c].name, argv[n]) != 0) {
            c++;
        }
        cases[c].run();
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
