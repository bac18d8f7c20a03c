/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Three ranks, of which each becomes less than it was in MPI_Init: messages go on, those between ranks
 * that have not met before, and to oneself, too.
 *
 *     become WHAT together|staggered
 *
 * rights: it drops its privileges, or if it is not root may not be looked into. descriptors: it has none
 * left. space: it moves to an IPC namespace of its own. calls: a filter of system calls refuses it
 * copies and madvise.
 *
 * together: ranks 0 and 1 have met before, all become it, then all meet. staggered: one after the other,
 * and each has its first message with the last one when the one is what the other is not.
 */
#include <sys/resource.h>

#include "../deny.h"
#include "check.h"

enum { SEED = 97, NOBODY = 65534, FEW = 256, ROUNDS = 6 };

static int taken[FEW], taken_count;

static void give_up_rights(void)
{
    if (geteuid() == 0) {
        check_that(setegid(NOBODY) == 0 && seteuid(NOBODY) == 0,
                   "it may not become another user: %s", strerror(errno));
    } else if (prctl(PR_SET_DUMPABLE, 0) != 0) {
        check_fail("it may still be looked into: %s", strerror(errno));
    }
}

static void use_up_descriptors(void)
{
    const struct rlimit few = {FEW, FEW};

    check_that(setrlimit(RLIMIT_NOFILE, &few) == 0,
               "the number of descriptors cannot be limited: %s", strerror(errno));
    while (taken_count < FEW && (taken[taken_count] = open("/dev/null", O_RDONLY)) >= 0) {
        taken_count++;
    }
    check_that(errno == EMFILE, "descriptors are not used up: %s", strerror(errno));
}

static void refuse_calls(int error)
{
    check_that(process_deny(SYS_process_vm_readv, error) &&
                   process_deny(SYS_process_vm_writev, error) && process_deny(SYS_madvise, error),
               "no filter of system calls: %s", strerror(errno));
}

static void become(const char *what, int rank)
{
    if (strcmp(what, "rights") == 0) {
        give_up_rights();
    } else if (strcmp(what, "space") == 0) {
        check_that(unshare(CLONE_NEWIPC) == 0, "it may have no namespace of its own: %s",
                   strerror(errno));
    } else if (strcmp(what, "calls") == 0) {
        refuse_calls(rank == 0 ? EPERM : ENOSYS);
    } else {
        use_up_descriptors();
    }
}

/* To write the report. The program's own identity is kept beside the one that it took. */
static void give_back(void)
{
    while (taken_count > 0) {
        close(taken[--taken_count]);
    }
    check_that(getuid() != 0 || (seteuid(0) == 0 && setegid(0) == 0),
               "it may not become root again: %s", strerror(errno));
}

/* One way: who sends has time to help, and does not know yet what it is refused. */
static void send_one(int from, int to, int round)
{
    const size_t size = check_sizes[CHECK_SIZES - 1];
    unsigned char *memory = check_memory(size);

    check_message(memory, size, from, to, stamp_key(SEED, CHECK_SIZES * ROUNDS + round, from, to),
                  "a message one way");
    free(memory);
}

static void exchange(int peer, int round)
{
    check_exchange_sizes(peer, SEED, (uint64_t)(round * CHECK_SIZES));
}

static void pair(int rank, int one, int other, int round)
{
    if (rank == one || rank == other) {
        send_one(other, one, round);
        exchange(rank == one ? other : one, round);
    }
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 3);
    const char *what = argv[1];

    pair(rank, 0, 1, 0);
    if (strcmp(argv[2], "staggered") == 0) {
        if (rank == 1) {
            become(what, rank);
        }
        pair(rank, 0, 1, 1);
        pair(rank, 1, 2, 2);
        if (rank == 0) {
            become(what, rank);
        }
        pair(rank, 0, 2, 3);
        if (rank == 2) {
            become(what, rank);
        }
    } else {
        become(what, rank);
    }
    exchange(rank, 5);
    for (int one = 0; one < 3; one++) {
        pair(rank, one, (one + 1) % 3, 4);
    }
    check_done(MPI_COMM_WORLD);
    give_back();
    MPI_Finalize();
    return 0;
}
