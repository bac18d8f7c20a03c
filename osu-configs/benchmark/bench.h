// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of the companion benchmark share: its settings, its state, and who sends what.
#ifndef REGX_BENCH_H
#define REGX_BENCH_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "content.h"

#define MESSAGE_MAX ((size_t)1 << 30)
#define FREED_MIN 64       // bytes of a buffer that is to be known again
#define LARGE_MESSAGE 8192 // above it, OSU does fewer iterations

enum mode { LATENCY, BW, BIBW, PERCENTILES, SENDRECV, HALO, INCAST };
enum buffers { SAME, ROTATE, SLIDE, FRESH, FREED, STRIDED, BUFFERED, TOUCHED };

struct settings {
    enum mode mode;
    enum buffers buffers;
    const char *buffers_text;
    size_t places; // buffers to rotate over, or offsets to slide over, or bytes of a piece
    size_t min, max;
    int iterations, iterations_large, warmup, warmup_large;
    int window;
    bool check;
    bool owned; // buffers are MPI_Alloc_mem's
};

// A rank's part of an iteration: how many messages it sends and receives.
struct part {
    int sends, receives;
};

#define DIRECTIONS 4 // of a halo: two dimensions, back and forth

struct bench {
    struct settings set;
    int rank, ranks;
    struct part part;
    int neighbour[DIRECTIONS]; // of a halo; MPI_PROC_NULL: none in this direction
    size_t sources, targets;   // buffers that are sent from, and received into
    unsigned char **send, **receive;
    size_t mapped; // bytes of each buffer; 0: none mapped
    MPI_Request *send_request, *receive_request;
    MPI_Datatype type;   // a message of the size that is being measured is that many
    int items;           // of that type
    MPI_Datatype column; // the same for a column of a halo, of which a message has one
    unsigned long wrong; // messages with wrong content, at this rank
    unsigned long freed,
        came_back; // FREED buffers that this rank had, and how many malloc gave again
};

__attribute__((format(printf, 2, 3))) void fail(const struct bench *b, const char *format, ...);

// ---- groups.c: more than two ranks ------------------------------------------------------------

// Whether any number of ranks from two on can take part; otherwise exactly two do.
bool is_for_groups(enum mode mode);

// What this rank sends and receives in an iteration.
struct part part_of(struct bench *b);

// Who sends the j-th message that this rank receives, and as which of its own messages.
int sender_of(const struct bench *b, int j);
int index_at_sender(const struct bench *b, int j);

// Whether the j-th message that is sent or received is a column of a grid: not contiguous.
bool is_column(const struct bench *b, int j);

double exchange_sendrecv(struct bench *b, uint64_t iteration);
double exchange_halo(struct bench *b, uint64_t iteration);
double exchange_incast(struct bench *b, uint64_t iteration);

// ---- pairs.c: two ranks -----------------------------------------------------------------------

// Each returns the seconds of its timed part.
double exchange_latency(struct bench *b, uint64_t iteration);
double exchange_bw(struct bench *b, uint64_t iteration);
double exchange_bibw(struct bench *b, uint64_t iteration);

// ---- buffers.c --------------------------------------------------------------------------------

// Allocates what the settings ask for; b->part must be set.
void open_buffers(struct bench *b);
void close_buffers(struct bench *b);

// Before and after the iterations of one size.
void begin_size(struct bench *b, size_t size);
void end_size(struct bench *b);

// Where the j-th message of an iteration is sent from, and received into.
unsigned char *source_of(const struct bench *b, uint64_t iteration, int j);
unsigned char *target_of(const struct bench *b, uint64_t iteration, int j);

// Bring the buffers into the state that an iteration wants, before its timed part; and look at the
// contents after it, if that was asked for.
void prepare(struct bench *b, size_t size, uint64_t iteration);
void check(struct bench *b, size_t size, uint64_t iteration);

// As a program that makes what it sends and uses what it receives: a whole message is written, or
// read. Nothing is done unless the buffers are TOUCHED. Within the timed part.
void write_message(const struct bench *b, unsigned char *message, uint64_t iteration);
void read_message(const struct bench *b, const unsigned char *message);

// ---- percentiles.c ----------------------------------------------------------------------------

#define TAIL_WINDOW 1000 // messages of which the longest time is taken

void print_clock(void);
void print_percentiles_header(void);

// Sorts the times, which are one-way times in seconds.
void print_percentiles(size_t size, double *times, int count);

#endif
