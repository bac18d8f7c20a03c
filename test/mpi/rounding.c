/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rounding ROUNDS: messages of many sizes between two ranks, each time from a few buffers, while
 * whatever rounds in a thread ends it by SIGFPE.
 */

#include "check.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

enum { SEED = 83, BUFFERS = 12, MOST = 1000003 };

static const int sizes[] = {8, 5000, 20001, 40000, 70001, 140003, 300007, MOST};

static void let_rounding_end_it(bool ends)
{
#ifdef __x86_64__
    _mm_setcsr(ends ? _mm_getcsr() & ~_MM_MASK_MASK & ~_MM_EXCEPT_MASK
                    : _mm_getcsr() | _MM_MASK_MASK);
#endif
}

int main(int argc, char **argv)
{
    const int rank = check_begin(&argc, &argv, 2), rounds = (int)strtol(argv[1], NULL, 10);
    unsigned char *sent[BUFFERS], *got = check_memory(MOST);

    for (int n = 0; n < BUFFERS; n++) {
        sent[n] = check_memory(MOST);
    }
    let_rounding_end_it(true);
    for (int round = 0; round < rounds; round++) {
        const int length = sizes[round % (int)(sizeof sizes / sizeof *sizes)];

        stamp_fill(sent[round % BUFFERS], (size_t)length, stamp_key(SEED, round, rank, 1 - rank),
                   0);
        MPI_Sendrecv(sent[round % BUFFERS], length, MPI_BYTE, 1 - rank, CHECK_TAG, got, length,
                     MPI_BYTE, 1 - rank, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_stamp(got, (size_t)length, stamp_key(SEED, round, 1 - rank, rank), 0, "a message");
    }
#ifdef __x86_64__
    check_that((_mm_getcsr() & _MM_EXCEPT_MASK) == 0, "flags of rounding are set");
#endif
    let_rounding_end_it(false);
    for (int n = 0; n < BUFFERS; n++) {
        free(sent[n]);
    }
    free(got);
    return check_end();
}
