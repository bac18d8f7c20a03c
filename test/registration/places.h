/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Where the rows of the table play, for the files that make rows and places.
 */
#pragma once

#include "table.h"

/* Far from where the kernel puts things, and at the start of a huge page. */
#define BASE ((uint8_t *)((uintptr_t)1 << 45))
#define OTHER (BASE + ((size_t)256 << 20))

enum { READ_WRITE = PROT_READ | PROT_WRITE, NEW = MAP_PRIVATE | MAP_ANONYMOUS };

/* Ends the program unless it is so; errno has the reason. Answers true. */
bool must(bool so, const char *what);
/* Target is a new block of malloc's. */
bool allocate(place_t *place);
/* A block above that address: what is free below is used up. */
void *allocate_above(uintptr_t address, size_t length);
