/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A buffer of private anonymous memory whose pages are moved into shared memory, at the same
 * address, and what a library could do so that the program does not notice. For moved.c, which
 * shows what it notices all the same. One at a time in a process.
 *
 * Linux moves no page from private to shared memory: the bytes are copied to a file in memory,
 * which then takes the place of the buffer, in one step for whoever reads it meanwhile.
 */
#ifndef REGX_TEST_MOVER_H
#define REGX_TEST_MOVER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    WAY_PRIVATE, /* nothing is moved: what a program may count on */
    WAY_SHARED,  /* moved, and that is all */
    /* Moved. At each change of which userfaultfd tells, before whoever makes it goes on, and before
     * fork, all of it is given back: copied to private memory that takes its place. Writers are
     * held meanwhile where the kernel does that. A child that is made past libc has nothing there
     * (MADV_DONTFORK). */
    WAY_GIVEN_BACK,
    /* As GIVEN_BACK, but stays at fork: what is there is copied before, and the child puts the copy
     * in its place. */
    WAY_SNAPSHOT
} way_t;

#define WAYS (WAY_SNAPSHOT + 1)

typedef struct mover {
    way_t way;
    char *at;
    size_t length;
    /* Called when a part that is given back has been copied, and still is to take its place: what
     * other threads may do at that moment. May be NULL. */
    void (*meanwhile)(struct mover *mover);
    bool called;
} mover_t;

/* Moves the buffer by mover->way; what stays to be done is done until the process ends. What cannot
 * be done ends the process with a line on stderr. */
void mover_start(mover_t *mover);

/* Whether this kernel has what the ways need. */
bool mover_is_possible(void);

#endif
