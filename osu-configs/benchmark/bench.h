// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of the companion benchmark share: its settings, its state, and who does what.
#ifndef REGX_BENCH_H
#define REGX_BENCH_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_MAX ((size_t)1 << 30)
#define FREED_MIN 64       // bytes of a buffer that is to be known again
#define LARGE_MESSAGE 8192 // above it, OSU does fewer iterations

enum mode { LATENCY, BW, BIBW, PERCENTILES, SENDRECV, HALO, MODES };
enum { DIRECTIONS = 4 }; // of a torus: 2k goes back in dimension k, 2k + 1 forth
enum buffers { SAME, ROTATE, SLIDE, FRESH, FREED, TOUCHED };

struct settings {
    enum mode mode;
    enum buffers buffers;
    const char *buffers_text;
    size_t places; // buffers to rotate over, or offsets to slide over
    size_t min, max;
    int iterations[2], warmup[2]; // of small and of large messages
    int window;                   // messages of an iteration, in each direction that has any
    bool check;
    bool owned; // buffers are MPI_Alloc_mem's
};

struct bench {
    struct settings set;
    int rank, ranks;
    int neighbour[DIRECTIONS]; // of HALO; MPI_PROC_NULL in a dimension that has one rank
    size_t count;              // buffers that are sent from, and as many that are received into
    unsigned char **send, **receive;
    size_t mapped; // bytes of each buffer; 0: none mapped
    MPI_Request *send_request, *receive_request;
    unsigned long wrong; // messages with wrong content, at this rank
    unsigned long freed,
        came_back; // FREED buffers that this rank had, and how many malloc gave again
};

__attribute__((format(printf, 2, 3))) void fail(const struct bench *b, const char *format, ...);

// ---- groups.c: exchanges of two ranks or more; each returns its seconds

void find_neighbours(struct bench *b);
double exchange_sendrecv(struct bench *b, size_t size, uint64_t iteration);
double exchange_halo(struct bench *b, size_t size, uint64_t iteration);

// Of the j-th message that this rank receives in an iteration: who sends it (MPI_PROC_NULL: there
// is none), and which of its messages it is there.
int sender_of(const struct bench *b, int j);
int index_at_sender(const struct bench *b, int j);

// ---- buffers.c

void open_buffers(struct bench *b);
void close_buffers(struct bench *b);

// Before the iterations of one size.
void begin_size(struct bench *b, size_t size);

// Where the j-th message of an iteration is sent from, and received into.
unsigned char *source_of(const struct bench *b, uint64_t iteration, int j);
unsigned char *target_of(const struct bench *b, uint64_t iteration, int j);

// Bring the buffers into the state that an iteration wants, before its timed part; and look at the
// contents after it, if that was asked for.
void prepare(struct bench *b, size_t size, uint64_t iteration);
void check(struct bench *b, size_t size, uint64_t iteration);

// As a program that makes what it sends and uses what it receives: a whole message is written, or
// read. Nothing is done unless the buffers are TOUCHED. Within the timed part.
void write_message(const struct bench *b, unsigned char *message, size_t size, uint64_t iteration);
void read_message(const struct bench *b, const unsigned char *message, size_t size);

#endif
