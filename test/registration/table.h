/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rows of the table of staleness: each is one way in which memory that is registered changes.
 */
#pragma once

#include <stdbool.h>

#include "change.h"

/* Where a row plays. Left, target and right are neighbours in memory, all in use; the change is of
 * target. Any but target may be NULL. */
typedef struct place {
    by_t by;
    size_t length; /* of each buffer, whole pages */
    uint8_t *left, *target, *right;
    uint8_t *other;   /* a second place that the change concerns */
    uint8_t *changed; /* what of target changes */
    size_t changed_length;
    int file;             /* memory file behind left, target and right, or -1 */
    int segment;          /* System V shared memory, or -1 */
    void *barrier, *plug; /* blocks of malloc's below and above target */
} place_t;

/* What kind of memory it is. */
typedef enum {
    PRIVATE,
    LARGE,       /* private memory, each as large as a huge page, and where one could be */
    HUGE_PAGE,   /* parts of one transparent huge page */
    SMALL_PAGES, /* of where a transparent huge page could be */
    HUGETLB,
    SHARED,
    MEMORY_FILE,  /* mapped shared */
    PRIVATE_FILE, /* mapped private */
    SYSV,         /* target alone; left and right are private memory */
    BREAK,        /* left and target at the end of the heap */
    HEAP,         /* from here on: target alone, from malloc */
    HEAP_END,     /* where the heap ends */
    HEAP_LARGE    /* a mapping of its own */
} shape_t;

typedef enum { WHOLE, FIRST_HALF, SECOND_HALF } part_t;

typedef struct row {
    const char *name;
    shape_t shape;
    bool stale;        /* what an unprotected cache holds of target is stale afterwards */
    bool last;         /* there is no right neighbour */
    part_t part;       /* of target that changes; what is left of it is in use by itself, too */
    bool other_before; /* `other` is in use before the change, */
    bool other_after;  /* and after it */
    bool early;        /* the kernel tells before it acts: in between, all is as it was */
    bool undefined;    /* nothing is known of the content until it is written */
    bool libc_only;    /* is what libc does, in one thread */
    int advice;        /* the change is a madvise with this, unless: */
    bool (*change)(place_t *place);
    /* Makes target usable after the change, or while another thread makes it: whether it is now
     * what it is to be. NULL: it is once the change is over. */
    bool (*take)(place_t *place);
} row_t;

extern const row_t rows[];
extern const size_t row_count;

/* false: this kernel or machine has no such thing. */
bool row_change(const row_t *row, place_t *place);

/* false: this machine has no such memory. */
bool place_open(place_t *place, const row_t *row, by_t by);
void place_close(place_t *place, const row_t *row);
