// SPDX-License-Identifier: BSD-3-Clause
//
// A subject: a way of keeping registrations that is measured. One file for each kind (regx.c,
// ucx.c) defines these functions; the rest of this folder measures them all alike. The
// memory domain below is empty: to register costs nothing, so what is measured is the keeping.
#ifndef CACHE_SUBJECT_H
#define CACHE_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// One use of a registration, between acquire and release, in place. Each kind has its own in it.
typedef struct subject_use {
    _Alignas(16) unsigned char bytes[128];
} subject_use_t;

// The names that open takes, for the usage line.
extern const char subject_names[];

// What becomes of a registration that is released.
typedef enum {
    PER_USE, // it is deregistered: there are no hits
    TOLD,    // it is kept until its memory changes
    BLIND    // it is kept, whatever becomes of its memory
} subject_kind_t;

// false: it cannot be had here, and why, in one line.
bool subject_open(const char *name, subject_kind_t *kind, char *why, size_t size);

// 0, or what the cache itself answers to say that it is not registered: passed on as it is, so that
// no return of the benchmark's is behind a system call of the cache's (it would be mispredicted).
int subject_acquire(void *base, size_t length, subject_use_t *use);
void subject_release(subject_use_t *use);

// What a hit asks the kernel, alone. false: this one asks nothing, or more than one thing.
bool subject_query(void);

// Does what is left to do, until nothing dead is registered any more.
void subject_settle(void);

// Calls of the domain so far: they tell hits from misses.
uint64_t subject_registrations(void);
uint64_t subject_deregistrations(void);

#endif
