/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the program shadow knows of all ranks' buffers, and the operations on them: every rank
 * carries out all of them on its shadow, and those that concern it on its memory.
 */
#ifndef REGX_TEST_SHADOW_H
#define REGX_TEST_SHADOW_H

#include <stdatomic.h>

#include "../buffer.h"

enum {
    BUFFERS = 6,
    WINDOWS = 2, /* the first ones: each is a window of all ranks */
    LARGEST = 400 << 10
};

struct shared {
    atomic_bool landed, going;  /* drain: the first bytes; the other side goes on */
    atomic_bool receivers_turn; /* replace: else the sender's */
    atomic_bool over;
};

/* A part of a rank's buffer. */
struct part {
    int rank, buffer;
    size_t offset;
};

struct message {
    struct part from, to;
    size_t length;
};

extern uint64_t seed, number, chance; /* of the run, of the operation, and what is next of it */
extern int rank, ranks;
extern bool onesided;
extern struct shared *shared;

extern struct buffer buffers[BUFFERS]; /* of this rank */
extern struct model {
    buffer_kind_t kind;
    size_t size;
    unsigned char *bytes;
} * shadow; /* BUFFERS of each rank */
extern MPI_Win windows[WINDOWS];

/* Chance, the same at all ranks (model.c). */
uint64_t below(uint64_t limit);
int any_rank(void);
int any_rank_but(int other);
/* Where `length` bytes lie in a buffer, often at a page's edge. */
struct part any_part(int of, int buffer, size_t length);
size_t any_length(size_t most);

/* The shadow of a rank's buffer, and of a part of it; a part of this rank's memory. */
struct model *model_of(int of, int buffer);
unsigned char *bytes_of(struct part part);
unsigned char *memory_of(struct part part);
void compare(const unsigned char *memory, struct part part, size_t length, const char *what);
/* What may have been written, and what lies around it. */
void check(struct part part, size_t length, const char *what);
void check_all(void);
/* In the shadow. */
void copy(struct part to, struct part from, size_t length);
/* Bytes that have never been anywhere. */
void renew_bytes(struct part part, size_t length);

/* Buffers and windows are made, and given back (buffers.c). */
void make_buffer(int of, int b);
void give_back(int of, int b);
void open_window(int b);
void close_window(int b);

/* Operations on buffers (buffers.c). */
void renew_window(void);
void renew_buffer(void);
void renew_content(void);
void replace_pages(void);

/* Messages (messages.c). */
struct message any_message(int sender, int from, int to);
/* At the ranks that it concerns. */
void start(const struct message *message, int tag, MPI_Request *request);
void send_messages(void);

/* Operations on windows (windows.c). */
void put_or_get(void);
void accumulate(void);
void fetch(void);

/* While a message is under way (under_way.c): its buffer is unmapped, or gets other pages. */
void unmap_under_way(void);
void replace_under_way(void);

#endif
