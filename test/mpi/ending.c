/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job that ends in the middle of large transfers.
 *
 *     ending HOW [SIZE AFTER FILE [owned]]
 *
 * Every rank has messages of SIZE bytes under way to and from every other. As soon as AFTER of
 * rank 1's have ended, it ends, and writes to FILE before that how many have and how many have not.
 * With FILE some never have: the last rank begins its transfers with rank 1 only when that has
 * written the file and ended, or killed mpirun. What any rank has received is checked, also after
 * that. HOW:
 *
 *     abort     MPI_Abort
 *     kill      it is killed
 *     mpirun    mpirun is killed, and all ranks go on
 *     finalize  all transfers end, and it is killed while the others are in MPI_Finalize
 *     gone      it is killed before any rank has sent it anything
 *     read, write, receive, fill
 *               of two ranks, 1 is killed; then 0 receives what it had offered, sends to it, waits for a
 *               message, or sends more short ones than a mailbox holds
 *     none      all go on to the end, unless one is killed from outside
 *
 * owned: the buffers are of MPI_Alloc_mem.
 */
#include <signal.h>
#include <sys/file.h>

#include "check.h"

enum { SEED = 26, VICTIM = 1, LONG = 16 << 20 };

static int rank, ranks;
static int lock = -1; /* on FILE */
static size_t size = LONG;
static bool owned;
static const char *how, *file;
/* Of every peer that which it sends to this rank, then that which this rank sends to it. */
static unsigned char **buffers;
static MPI_Request *requests;

static bool is(const char *word)
{
    return strcmp(how, word) == 0;
}

static unsigned char *new_buffer(void)
{
    unsigned char *buffer = NULL;

    if (!owned) {
        buffer = check_memory(size);
    } else if (MPI_Alloc_mem((MPI_Aint)size, MPI_INFO_NULL, &buffer) != MPI_SUCCESS) {
        check_fail("no memory for %zu bytes", size);
    }
    return buffer;
}

static uint64_t key(int from, int to)
{
    return stamp_key(SEED, 0, from, to);
}

static void make_buffers(void)
{
    buffers = calloc(2 * (size_t)ranks, sizeof(*buffers));
    requests = calloc(2 * (size_t)ranks, sizeof(MPI_Request));
    check_that(buffers != NULL && requests != NULL, "no memory for %d ranks", ranks);
    for (int peer = 0; peer < ranks; peer++) {
        requests[peer] = requests[ranks + peer] = MPI_REQUEST_NULL;
        if (peer != rank) {
            buffers[peer] = new_buffer();
            memset(buffers[peer], 0, size);
            buffers[ranks + peer] = new_buffer();
            stamp_fill(buffers[ranks + peer], size, key(rank, peer), 0);
        }
    }
}

static void receive_from(int peer)
{
    MPI_Irecv(buffers[peer], (int)size, MPI_BYTE, peer, CHECK_TAG, MPI_COMM_WORLD, &requests[peer]);
}

static void send_to(int peer)
{
    MPI_Isend(buffers[ranks + peer], (int)size, MPI_BYTE, peer, CHECK_TAG, MPI_COMM_WORLD,
              &requests[ranks + peer]);
}

/* With all but the one that is left out. */
static void start(int left_out)
{
    for (int peer = 0; peer < ranks; peer++) {
        if (peer != rank && peer != left_out) {
            receive_from(peer);
        }
    }
    for (int by = 1; by < ranks; by++) { /* not all to the same one first */
        const int peer = (rank + by) % ranks;

        if (peer != left_out) {
            send_to(peer);
        }
    }
}

static void wait_for(int count)
{
    for (int n = 0; n < count; n++) {
        int ended;

        MPI_Waitany(2 * ranks, requests, &ended, MPI_STATUS_IGNORE);
        if (ended < ranks) {
            check_stamp(buffers[ended], size, key(ended, rank), 0, "from another rank");
        }
    }
}

static int under_way(void)
{
    int count = 0;

    for (int n = 0; n < 2 * ranks; n++) {
        int ended = 1;

        if (requests[n] != MPI_REQUEST_NULL) {
            MPI_Request_get_status(requests[n], &ended, MPI_STATUS_IGNORE);
        }
        count += !ended;
    }
    return count;
}

static void note(int ended)
{
    FILE *output = file != NULL ? fopen(file, "w") : NULL;
    const int count = under_way();

    if (output != NULL) {
        fprintf(output, "%d %d\n", ended, count);
    }
    if (output == NULL ? file != NULL : fclose(output) != 0) {
        check_fail("%s cannot be written", file);
    }
}

static void end_here(void)
{
    if (is("abort")) {
        MPI_Abort(MPI_COMM_WORLD, 7);
    } else if (is("mpirun")) {
        kill(getppid(), SIGKILL);
        flock(lock, LOCK_UN);
    } else {
        raise(SIGKILL);
    }
}

/* Rank 1 locks the file, before MPI_Init, through which no rank gets without it. The lock ends with
 * the process. */
static void lock_if_victim(void)
{
    const char *me = getenv("OMPI_COMM_WORLD_RANK");

    lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || me == NULL) {
        fprintf(stderr, "wrong: %s cannot be opened, or no rank is known\n", file);
        exit(CHECK_FAILED);
    }
    if (atoi(me) == VICTIM && (flock(lock, LOCK_EX) != 0 || write(lock, "locked", 6) != 6)) {
        fprintf(stderr, "wrong: %s cannot be locked\n", file);
        exit(CHECK_FAILED);
    }
}

/* Until it has ended, or says that this one may go on. */
static void wait_for_victim(void)
{
    char byte;

    check_that(flock(lock, LOCK_SH) == 0 && pread(lock, &byte, 1, 0) == 1,
               "rank %d has not locked %s", VICTIM, file);
}

/* What each side has said before is attached, and the kernel was asked. */
static void wait_for_one_that_is_gone(void)
{
    unsigned char *bytes = check_memory(size);
    MPI_Request request;

    memset(bytes, 0, size);
    check_exchange_sizes(1 - rank, SEED, 0);
    if (rank == VICTIM) {
        if (is("read")) {
            MPI_Isend(bytes, (int)size, MPI_BYTE, 0, CHECK_TAG, MPI_COMM_WORLD, &request);
        }
        end_here();
    }
    wait_for_victim();
    if (is("read") || is("receive")) {
        MPI_Recv(bytes, (int)size, MPI_BYTE, VICTIM, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (is("write")) {
        MPI_Send(bytes, (int)size, MPI_BYTE, VICTIM, CHECK_TAG, MPI_COMM_WORLD);
    } else {
        for (int n = 0; n < 20000; n++) {
            MPI_Send(bytes, 8, MPI_BYTE, VICTIM, CHECK_TAG, MPI_COMM_WORLD);
        }
    }
}

int main(int argc, char **argv)
{
    int after = 1;

    if (argc >= 5) {
        size = strtoul(argv[2], NULL, 0);
        after = atoi(argv[3]);
        file = argv[4];
        owned = argc == 6 && strcmp(argv[5], "owned") == 0;
    }
    how = argc > 1 ? argv[1] : "";
    const bool alone = is("read") || is("write") || is("receive") || is("fill");
    const bool locks = file != NULL && (is("gone") || is("kill") || is("mpirun") || alone);
    if (locks) {
        lock_if_victim();
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int all = 2 * (ranks - 1);
    const bool at_end = is("finalize") || is("none");

    const bool waits = locks && !is("gone") && rank == ranks - 1;

    check_that(argc >= 2 && argc != 3 && argc != 4 && after >= 0 && after < all &&
                   (!locks || (alone ? ranks == 2 : ranks >= 3)),
               "how to end; size, how many of %d messages to wait for and a file", all);
    if (alone) {
        wait_for_one_that_is_gone();
    }
    if (is("gone") && rank == VICTIM) {
        end_here();
    }
    if (is("gone")) {
        wait_for_victim();
    }
    make_buffers();
    start(waits ? VICTIM : rank);
    if (waits) {
        wait_for_victim();
        receive_from(VICTIM);
        send_to(VICTIM);
    }
    if (rank == VICTIM && !at_end) {
        wait_for(after);
        note(after);
        end_here();
        wait_for(all - after);
    } else {
        wait_for(all);
    }
    check_done(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == VICTIM && is("finalize")) {
        end_here();
    }
    MPI_Finalize();
    return 0;
}
