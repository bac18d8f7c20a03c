/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What shadow.c has that under_way.c needs: every rank carries out all operations on its shadow of all
 * ranks' buffers, and those that concern it on its memory.
 */
#pragma once

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

struct model {
    buffer_kind_t kind;
    size_t size;
    unsigned char *bytes;
};

extern int rank, ranks;
extern struct shared *shared;
extern struct buffer buffers[BUFFERS]; /* of this rank */

/* Chance, the same at all ranks. */
uint64_t below(uint64_t limit);
int any_rank(void);
int any_rank_but(int other);
/* Where `length` bytes lie in a buffer, often at a page's edge. */
struct part any_part(int of, int buffer, size_t length);

/* The shadow of a rank's buffer, and of a part of it; a part of this rank's memory. */
struct model *model_of(int of, int buffer);
unsigned char *bytes_of(struct part part);
unsigned char *memory_of(struct part part);
void compare(const unsigned char *memory, struct part part, size_t length, const char *what);
/* What may have been written, and what lies around it. */
void check(struct part part, size_t length, const char *what);
/* In the shadow. */
void copy(struct part to, struct part from, size_t length);
/* Bytes that have never been anywhere. */
void renew_bytes(struct part part, size_t length);
void make_buffer(int of, int b);
/* A message, at the ranks that it concerns. */
void start(const struct message *message, int tag, MPI_Request *request);

/* While a message is under way (under_way.c): its buffer is unmapped, or gets other pages. */
void unmap_under_way(void);
void replace_under_way(void);
