/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks: count what was found right, end the job with one line at the first thing found wrong. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../stamp.h"

/* Callbacks, and what stands in for others' functions, get what their callers have: few use all of it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { CHECK_FAILED = 3, CHECK_TAG = 3 };

/* Bytes found right by this process; several threads may add to it. Weak, so that a program of
 * several files has one. */
__attribute__((weak)) _Atomic uint64_t check_bytes;

/* Of this process. */
static inline int check_rank(void)
{
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

__attribute__((format(printf, 1, 2), noreturn)) static inline void check_fail(const char *format,
                                                                              ...)
{
    char text[1024];
    va_list arguments;
    const int used = snprintf(text, sizeof text, "wrong on rank %d: ", check_rank());
    va_start(arguments, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s\n", text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, CHECK_FAILED);
    abort();
}

/* Ends the job with that line unless it is so. */
#define check_that(right, ...) ((right) ? (void)0 : check_fail(__VA_ARGS__))

/* That all of a piece is right; what names it in the message. */
static inline void check_stamp(const void *memory, size_t length, uint64_t key, size_t position,
                               const char *what)
{
    size_t good = stamp_check(memory, length, key, position);
    check_that(good == length, "%s: byte %zu of %zu is 0x%02x instead of 0x%02x", what,
               position + good, position + length, ((const unsigned char *)memory)[good],
               stamp_byte(key, position + good));
    check_bytes += length;
}

/* One rank sends that content, which it makes there, and another receives and checks it there. */
static inline void check_message(void *memory, size_t length, int from, int to, uint64_t key,
                                 const char *what)
{
    const int rank = check_rank();
    if (rank == from) {
        stamp_fill(memory, length, key, 0);
        MPI_Send(memory, (int)length, MPI_BYTE, to, CHECK_TAG, MPI_COMM_WORLD);
    } else if (rank == to) {
        MPI_Recv(memory, (int)length, MPI_BYTE, from, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(memory, length, key, 0, what);
    }
}

/* The same from rank 0 to rank 1. */
static inline void check_transfer(void *memory, size_t length, uint64_t key, const char *what)
{
    check_message(memory, length, 0, 1, key, what);
}

static inline void *check_memory(size_t length)
{
    void *memory = aligned_alloc(4096, (length + 4096) & ~(size_t)4095);
    check_that(memory != NULL, "no memory for %zu bytes", length);
    return memory;
}

/* Sends that content to one rank, and receives at the same time from one, which may be the same. */
static inline void check_exchange(MPI_Comm comm, size_t length, int to, uint64_t sent, int from,
                                  uint64_t expected, const char *what)
{
    unsigned char *out = check_memory(length), *in = check_memory(length);
    stamp_fill(out, length, sent, 0);
    MPI_Sendrecv(out, (int)length, MPI_BYTE, to, CHECK_TAG, in, (int)length, MPI_BYTE, from,
                 CHECK_TAG, comm, MPI_STATUS_IGNORE);
    check_stamp(in, length, expected, 0, what);
    free(out);
    free(in);
}

/* Bytes of messages, one for each way that they may go. */
static const size_t check_sizes[] = {8, 5000, 20000, 70000, 140000, 3 << 20};
enum { CHECK_SIZES = sizeof check_sizes / sizeof *check_sizes };

/* Exchanges a message of each size with that rank, which may be this one. `first` numbers them. */
static inline void check_exchange_sizes(int peer, uint64_t run, uint64_t first)
{
    const int rank = check_rank();
    for (uint64_t n = 0; n < CHECK_SIZES; n++) {
        check_exchange(MPI_COMM_WORLD, check_sizes[n], peer, stamp_key(run, first + n, rank, peer),
                       peer, stamp_key(run, first + n, peer, rank), "an exchange");
    }
}

/* The only line of standard output, from one rank: what a test asserts that it is there alone. */
static inline void check_done(MPI_Comm comm)
{
    uint64_t mine = check_bytes;
    uint64_t total = 0;
    int rank;
    MPI_Comm_rank(comm, &rank);
    MPI_Reduce(&mine, &total, 1, MPI_UINT64_T, MPI_SUM, 0, comm);
    if (rank == 0) {
        printf("checked %llu bytes\n", (unsigned long long)total);
    }
}

/* MPI_Init; answers this rank. So many arguments are needed, the program's name counted. */
static inline int check_begin(int *argc, char ***argv, int needed)
{
    MPI_Init(argc, argv);
    const int rank = check_rank();
    check_that(*argc >= needed, "%d arguments are needed: the first lines of the source say which",
               needed - 1);
    return rank;
}

/* Takes an option of so many words out of the arguments; answers the last of them, or NULL if it is
 * not there. */
static inline const char *check_option(int *argc, char **argv, const char *name, int words)
{
    int at = 1;
    while (at < *argc && strcmp(argv[at], name) != 0) {
        at++;
    }
    if (at + words > *argc) {
        return NULL;
    }
    const char *last = argv[at + words - 1];
    *argc -= words;
    memmove(&argv[at], &argv[at + words], (size_t)(*argc - at) * sizeof *argv);
    return last;
}

/* The number that follows an option; or another, if it is not there. */
static inline uint64_t check_number(int *argc, char **argv, const char *name, uint64_t otherwise)
{
    const char *number = check_option(argc, argv, name, 2);
    return number != NULL ? strtoull(number, NULL, 0) : otherwise;
}

/* What main returns. */
static inline int check_end(void)
{
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
