/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first thread of a process ends by pthread_exit, and another one uses MPI: for the kernel the
 * process's number then names one without memory and without descriptors.
 *
 *     leader before|after
 *
 * before: that of rank 0 ends before MPI_Init. after: those of all end after the first messages, and
 * ranks that have not met exchange their first ones then.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { SEED = 91, ROUNDS = 3 };

static int argument_count;
static char **arguments;
static atomic_bool leaves;

static bool has_left(void)
{
    char text[512] = "";
    FILE *file = fopen("/proc/self/stat", "r");

    if (file == NULL || fgets(text, sizeof text, file) == NULL) {
        fprintf(stderr, "/proc/self/stat cannot be read\n");
        exit(CHECK_FAILED);
    }
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

static void end_the_first(void)
{
    leaves = true;
    await(has_left());
}

static void exchange(int peer)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        check_exchange_sizes(peer, SEED, round * CHECK_SIZES);
    }
}

static void *live(void *unused)
{
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    const bool before = argument_count > 1 && strcmp(arguments[1], "before") == 0;
    int provided, rank;

    if (before && number != NULL && strcmp(number, "0") == 0) {
        end_the_first();
    }
    MPI_Init_thread(&argument_count, &arguments, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank < 2) {
        exchange(1 - rank);
    }
    if (!before) {
        end_the_first();
        if (rank < 2) {
            exchange(1 - rank);
        }
    }
    if (rank == 2) {
        exchange(0);
        exchange(1);
    } else {
        exchange(2);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    exit(EXIT_SUCCESS);
}

int main(int argc, char **argv)
{
    pthread_t thread;

    argument_count = argc;
    arguments = argv;
    if (pthread_create(&thread, NULL, live, NULL) != 0) {
        fprintf(stderr, "no thread\n");
        return CHECK_FAILED;
    }
    await(leaves);
    pthread_exit(NULL);
}
