/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window under test of the program window, and its cases: all ranks run each.
 */
#ifndef REGX_TEST_WINDOW_H
#define REGX_TEST_WINDOW_H

#include "../check.h"

extern int rank, ranks;
extern size_t size;         /* of a put or get */
extern const char *flavour; /* create, allocate or dynamic */

/* Its memory here, and where memory at another rank is in it. */
extern unsigned char *memory;
extern MPI_Aint *origins;
extern MPI_Win window;

/* Where that byte of another rank's memory is in the window. */
MPI_Aint at(int target, size_t offset);
/* A window of that flavour, with so many bytes, all zero, at each rank. */
void open_window(size_t bytes);
/* After a barrier. */
void close_window(void);
/* What the rank `from` puts to the rank `to`. */
uint64_t key(uint64_t round, int from, int to);
/* The bytes of such a put; the caller frees them. */
unsigned char *filled(uint64_t round, int to);
/* Puts them to this rank's part of that one's memory. */
void put(const void *bytes, int to);
/* That this came from there. */
void check_part(uint64_t round, int from);

/* Puts and gets (puts.c). */
void fence(void);
void pscw(void);
void lock(void);
void requests(void);
void flood(void);
void derived(void);
void alone(void);

/* Operations that change what is there (changes.c). */
void accumulate(void);
void alternate(void);
void fetch(void);
void swap(void);

/* Different ones at once (mixed.c). */
void mixed(void);
void queue(void);

#endif
