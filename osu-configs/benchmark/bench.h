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
#define FREED_MIN 64 // bytes of a buffer that is to be known again

enum mode { LATENCY, BW, BIBW, P99, SENDRECV, HALO, MODES };
enum { DIRECTIONS = 4 }; // of a torus: 2k goes back in dimension k, 2k + 1 forth
enum buffers { SAME, ROTATE, SLIDE, FRESH, FREED, TOUCHED, KINDS };

struct settings {
    enum mode mode;
    enum buffers buffers;
    size_t places;  // buffers to rotate over, or offsets to slide over
    size_t size;    // of a message
    int window;     // messages of an iteration, in each direction that has any
    double seconds; // of the timed part
    int check;      // iterations whose contents are compared; 0: none
    double slower;  // percent
    bool owned;     // buffers are MPI_Alloc_mem's
};

struct bench {
    struct settings set;
    int rank, ranks;
    int neighbour[DIRECTIONS]; // of HALO; MPI_PROC_NULL in a dimension that has one rank
    size_t count;              // buffers that are sent from, and as many that are received into
    unsigned char **send, **receive;
    size_t mapped; // bytes of each buffer; 0: none mapped
    // The one buffer of each direction that is used again in all slices, so that its pages are the same; the
    // program's own, and MPI_Alloc_mem's.
    struct kept {
        unsigned char *send, *receive;
        size_t mapped;
    } kept[2];
    uint64_t iteration, done; // of all slices; of the last one
    MPI_Request *send_request, *receive_request;
    unsigned long wrong; // messages with wrong content, at this rank
    unsigned long freed,
        came_back; // FREED buffers that this rank had, and how many malloc gave again
};

__attribute__((format(printf, 2, 3))) void fail(const struct bench *b, const char *format, ...);

// ---- groups.c: exchanges of two ranks or more

void find_neighbours(struct bench *b);
void exchange_sendrecv(struct bench *b, size_t size, uint64_t iteration);
void exchange_halo(struct bench *b, size_t size, uint64_t iteration);

// Of the j-th message that this rank receives in an iteration: who sends it (MPI_PROC_NULL: there
// is none), and which of its messages it is there.
int sender_of(const struct bench *b, int j);
int index_at_sender(const struct bench *b, int j);

// ---- buffers.c

void open_buffers(struct bench *b);
void close_buffers(struct bench *b);

// Whether each iteration has buffers of its own.
bool is_new_each_time(const struct bench *b);

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
