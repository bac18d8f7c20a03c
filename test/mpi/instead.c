/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A child of fork goes on with MPI while its parent only waits for it: by address peers reach the
 * parent's memory.
 *
 *     instead BEFORE RANK...
 *
 * Ranks 0 and 1 exchange messages, if BEFORE is not 0. Those that are named fork, and their children
 * exchange messages with who is there. Two processes that call themselves one rank cannot both end
 * MPI: all ranks end without, when all has been checked.
 */
#include <sys/wait.h>

#include "check.h"

enum { SEED = 103, BEFORE = 2, AFTER = 4 };

static void exchange(int round, void *memory)
{
    for (int n = 0; n < 2 * CHECK_SIZES; n++) {
        const int from = n % 2;

        check_message(memory, check_sizes[n / 2], from, 1 - from,
                      stamp_key(SEED, round * 2 * CHECK_SIZES + n, from, 1 - from),
                      round < BEFORE ? "before" : "a child's message");
    }
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    void *memory = check_memory(check_sizes[CHECK_SIZES - 1]);
    bool forks = false;

    for (int round = 0; round < BEFORE && atoi(argv[1]) != 0; round++) {
        exchange(round, memory);
    }
    for (int i = 2; i < argc; i++) {
        forks |= atoi(argv[i]) == rank;
    }
    const pid_t child = forks ? fork() : 0;
    if (child != 0) {
        int status = 1;

        waitpid(child, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    for (int round = BEFORE; round < AFTER; round++) {
        exchange(round, memory);
    }
    check_done(MPI_COMM_WORLD);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    _exit(0);
}
