/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of MPI with messages under way.
 *
 *     finalize child SIZE COUNT    a spawned child sends COUNT messages of SIZE bytes, frees their
 *                                  requests and finalizes, without disconnecting; the parent is
 *                                  outside MPI until the child has begun to, and then receives
 *     finalize apart SIZE COUNT WHO
 *                                  parent and spawned child exchange messages and disconnect. WHO ("parent" or
 *                                  "child") finalizes while the other waits for its end, outside MPI
 *     finalize unread SIZE COUNT   all ranks but the last send it as many that it never receives,
 *                                  and all finalize
 *     finalize freed SIZE COUNT    rank 0 frees every other receive before it is complete
 *                                  (MPI_Request_free), as the standard allows: that it is, it learns from
 *                                  a later message. The next is to the same buffer, so that the library
 *                                  uses its records again
 *     finalize kept SIZE COUNT     memory of MPI_Alloc_mem that COUNT messages were received into and
 *                                  that is not freed outlives MPI
 */
#include <sys/stat.h>

#include "check.h"

enum { TAG = 5, TELL, SEED = 31 };

static size_t size;
static int count;

static void send_and_forget(int to, MPI_Comm comm)
{
    for (int n = 0; n < count; n++) {
        MPI_Request request;
        unsigned char *memory = check_memory(size); /* it is never known when it may be freed */
        stamp_fill(memory, size, stamp_key(SEED, 0, 0, n), 0);
        MPI_Isend(memory, (int)size, MPI_BYTE, to, TAG, comm, &request);
        MPI_Request_free(&request);
    }
}

static char pipe_name[64];

static MPI_Comm start(char **arguments, const char *role, const char *who)
{
    char *words[] = {(char *)role, arguments[2], arguments[3], pipe_name, (char *)who, NULL};
    MPI_Comm child;

    snprintf(pipe_name, sizeof pipe_name, "/tmp/regx-finalize.%ld", (long)getpid());
    unlink(pipe_name); /* of a job that was ended, which had this number */
    check_that(mkfifo(pipe_name, 0600) == 0, "mkfifo %s: %s", pipe_name, strerror(errno));
    MPI_Comm_spawn(arguments[0], words, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child,
                   MPI_ERRCODES_IGNORE);
    return child;
}

/* Until the other process closes its end of the pipe, or ends. */
static void await_other(const char *pipe)
{
    char byte;
    int end = open(pipe, O_RDONLY);

    unlink(pipe);
    check_that(end >= 0 && read(end, &byte, 1) == 0, "nothing but an end is expected");
    close(end);
}

static int open_end(const char *pipe)
{
    int end = open(pipe, O_WRONLY | O_CLOEXEC);

    check_that(end >= 0, "open %s: %s", pipe, strerror(errno));
    return end;
}

/* me: 0 the parent, 1 the child. The end of the pipe stays open until the process has ended. */
static void run_apart(MPI_Comm other, int me, const char *pipe, const char *who)
{
    for (int n = 0; n < count; n++) {
        check_exchange(other, size, 0, stamp_key(SEED, me, 2, n), 0, stamp_key(SEED, !me, 2, n),
                       "a message between jobs");
    }
    MPI_Comm_disconnect(&other);
    if (strcmp(who, me == 0 ? "parent" : "child") == 0) {
        open_end(pipe);
    } else {
        await_other(pipe);
    }
}

/* The pipe's other end is closed when the child is about to finalize. */
static void run_parent(char **arguments)
{
    MPI_Comm child = start(arguments, "sender", NULL);
    unsigned char *memory = check_memory(size);

    MPI_Barrier(child);
    await_other(pipe_name);
    for (int n = 0; n < count; n++) {
        MPI_Recv(memory, (int)size, MPI_BYTE, 0, TAG, child, MPI_STATUS_IGNORE);
        check_stamp(memory, size, stamp_key(SEED, 0, 0, n), 0, "a message of the child");
    }
    free(memory);
}

static void run_sender(const char *pipe)
{
    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    MPI_Barrier(parent);
    int end = open_end(pipe);
    send_and_forget(0, parent);
    close(end);
}

static void receive_freed(unsigned char *memory, int n)
{
    MPI_Request request;

    memset(memory, 0, size);
    MPI_Irecv(memory, (int)size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
    if (n % 2 == 0) {
        MPI_Request_free(&request);
    } else {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Recv(NULL, 0, MPI_BYTE, 1, TELL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(memory, size, stamp_key(SEED, 0, 1, n), 0, "of a freed receive");
}

/* A synchronous send ends when the receive has begun; this size only when all was read or written,
 * since nothing of it is buffered. */
static void send_and_tell(unsigned char *memory, int n)
{
    stamp_fill(memory, size, stamp_key(SEED, 0, 1, n), 0);
    MPI_Ssend(memory, (int)size, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
    MPI_Send(NULL, 0, MPI_BYTE, 0, TELL, MPI_COMM_WORLD);
}

static void run_freed(int rank)
{
    unsigned char *memory = check_memory(size);

    for (int n = 0; n < count; n++) {
        (rank == 0 ? receive_freed : send_and_tell)(memory, n);
    }
    free(memory);
    check_done(MPI_COMM_WORLD);
}

static const unsigned char *run_kept(void)
{
    unsigned char *memory = NULL;

    MPI_Alloc_mem((MPI_Aint)size, MPI_INFO_NULL, &memory);
    for (int n = 0; n < count; n++) {
        check_transfer(memory, size, stamp_key(SEED, 0, 0, n), "memory of MPI_Alloc_mem");
    }
    check_done(MPI_COMM_WORLD);
    return memory;
}

int main(int argc, char **argv)
{
    const unsigned char *kept = NULL;
    int rank, ranks, greetings[8];
    MPI_Comm parent;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check_that(argc >= 4 && ranks <= 8, "what, size and count are needed, and at most 8 ranks");
    size = strtoul(argv[2], NULL, 0);
    count = atoi(argv[3]);
    if (strcmp(argv[1], "child") == 0) {
        run_parent(argv);
        check_done(MPI_COMM_WORLD);
    } else if (strcmp(argv[1], "apart") == 0) {
        run_apart(start(argv, "leaver", argv[4]), 0, pipe_name, argv[4]);
        check_done(MPI_COMM_WORLD);
    } else if (strcmp(argv[1], "leaver") == 0) {
        MPI_Comm_get_parent(&parent);
        run_apart(parent, 1, argv[4], argv[5]);
    } else if (strcmp(argv[1], "sender") == 0) {
        run_sender(argv[4]);
    } else if (strcmp(argv[1], "unread") == 0) {
        MPI_Gather(&rank, 1, MPI_INT, greetings, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD);
        if (rank < ranks - 1) {
            send_and_forget(ranks - 1, MPI_COMM_WORLD);
        }
    } else if (strcmp(argv[1], "freed") == 0) {
        run_freed(rank);
    } else if (strcmp(argv[1], "kept") == 0) {
        kept = run_kept();
    } else {
        check_fail("child, apart, unread, freed or kept, not \"%s\"", argv[1]);
    }
    MPI_Finalize();
    return kept == NULL || stamp_check(kept, size, stamp_key(SEED, 0, 0, count - 1), 0) == size ? 0
                                                                                                : 1;
}
