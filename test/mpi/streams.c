/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Standard streams that are closed, as daemons' and detached jobs' are, or become something else: what
 * the program prints may not be written over a message.
 *
 *     streams FILE WHEN
 *
 * WHEN: before, they were closed before the start (by the test); after, all are closed after MPI_Init,
 * before the first message; 0, 1 or 2, only that one is; onto, all are, and after some messages a file
 * of the program's is put onto each (dup2); or never, the control. Ranks 0 and 1 exchange messages,
 * printing in between; rank 2 is met only then. Memory of MPI_Alloc_mem is new each time. Rank 0 writes
 * what was checked to FILE.
 */
#include "mapping.h"

enum { SEED = 83, MOST = 300000, PRINTS = 20 };

static const size_t sizes[] = {10, 5000, 33000, 100000, MOST};
static int rank;

/* All that the program prints itself; whether somebody reads it does not matter. In lines: for one that does
 * not end, mpirun of 5.0 takes a time that grows as the square of its length. */
static void print(void)
{
    static char text[4096];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\n';
    for (int i = 0; i < PRINTS; i++) {
        if (write(STDOUT_FILENO, text, sizeof text) < 0 ||
            write(STDERR_FILENO, text, sizeof text) < 0) {
            errno = 0;
        }
    }
}

static void exchange(int peer, uint64_t round, unsigned char *sent, unsigned char *got)
{
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t mine = stamp_key(SEED, round, rank, (int)i);
        const uint64_t theirs = stamp_key(SEED, round, peer, (int)i);
        stamp_fill(sent, sizes[i], mine, 0);
        memset(got, 0x5a, sizes[i]);
        print();
        MPI_Sendrecv(sent, (int)sizes[i], MPI_BYTE, peer, CHECK_TAG, got, (int)sizes[i], MPI_BYTE,
                     peer, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        print();
        check_stamp(got, sizes[i], theirs, 0, "a message beside closed streams");
        check_stamp(sent, sizes[i], mine, 0, "what was sent");
    }
}

/* Each pair of ranks, one after the other; only those below `ranks`. */
static void exchange_all(int ranks, uint64_t round)
{
    unsigned char *sent, *got;
    MPI_Alloc_mem(MOST, MPI_INFO_NULL, &sent);
    MPI_Alloc_mem(MOST, MPI_INFO_NULL, &got);
    for (int a = 0; a < ranks; a++) {
        for (int b = a + 1; b < ranks; b++) {
            if (rank == a || rank == b) {
                exchange(rank == a ? b : a, round, sent, got);
            }
        }
    }
    MPI_Free_mem(sent);
    MPI_Free_mem(got);
}

/* No standard stream is a file of regx's. */
static void check_descriptors(void)
{
    static const char *const ours[] = {"/dev/shm/", "memfd:regx", "userfaultfd", "/maps",
                                       "/pagemap",  "infiniband", "SYSV"};
    char path[64], name[512];
    for (int fd = 0; fd <= 2; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(path, name, sizeof name - 1);
        name[length > 0 ? length : 0] = '\0';
        for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++) {
            check_that(strstr(name, ours[i]) == NULL, "descriptor %d is %s", fd, name);
        }
    }
}

static void close_streams(const char *when)
{
    const bool all = strcmp(when, "after") == 0 || strcmp(when, "onto") == 0;
    for (int fd = 0; fd <= 2; fd++) {
        if (all || when[0] == '0' + fd) {
            close(fd);
        }
    }
}

static void put_file_onto_streams(const char *file)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%d", file, rank);
    const int other = open(name, O_RDWR | O_CREAT, 0600);
    for (int fd = 0; fd <= 2; fd++) {
        dup2(other, fd);
    }
    if (other > 2) {
        close(other);
    }
}

static void report(const char *file)
{
    uint64_t total = 0, mine = check_bytes;
    char line[64];
    MPI_Reduce(&mine, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        const int to = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        const int length =
            snprintf(line, sizeof line, "checked %llu bytes\n", (unsigned long long)total);
        check_that(to >= 0 && write(to, line, (size_t)length) == length, "%s: %s", file,
                   strerror(errno));
    }
}

int main(int argc, char **argv)
{
    rank = check_begin(&argc, &argv, 3);
    const char *file = argv[1], *when = argv[2];
    check_descriptors();
    close_streams(when);
    exchange_all(2, 0);
    check_descriptors();
    if (strcmp(when, "onto") == 0) {
        put_file_onto_streams(file);
    }
    exchange_all(2, 1);
    exchange_all(3, 2);
    check_descriptors();
    report(file);
    MPI_Finalize();
    return 0;
}
