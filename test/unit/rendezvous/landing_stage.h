/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of landing pages: a few landings, and memory that their pages are moved to.
 */
#ifndef REGX_TEST_LANDING_STAGE_H
#define REGX_TEST_LANDING_STAGE_H

#include "../unit.h"

#include "rendezvous/engine.h"

enum { PAGE = 4096, SIZE = 16 * PAGE, COUNT = 4, ROOM = SIZE + 2 * PAGE };

typedef struct stage {
    regx_rndv_config_t config;
    regx_landings_t landings;
    regx_counters_t counters;
    /* Called when the caches are told. */
    void (*told)(struct stage *stage, uintptr_t start, uintptr_t end);
    unsigned tellings;
    char *buffer; /* ROOM bytes, private and anonymous */
    char *to;     /* the delivery's */
    size_t length;
    uint64_t stream; /* of the last delivery */
} stage_t;

/* Whether pages can be moved here at all; the program says so and skips if not. */
bool pages_can_be_moved(void);

stage_t *stage_open(void);
void stage_close(stage_t *stage);

/* Memory of that kind, for bytes as for mmap. */
char *map(size_t bytes, int flags, int fd);

/* Writes a new stream into a landing as a peer would, `length` bytes for `to`; what the user's
 * memory holds is another. Answers the landing. */
regx_landing_t *land(stage_t *stage, char *to, size_t length);
/* Delivers what was landed last, and asserts that it and nothing else arrived; what reason was
 * given. */
const char *deliver(stage_t *stage, regx_landing_t *landing);
/* Both, and gives the landing back. */
const char *go(stage_t *stage, char *to, size_t length);

/* How many whole pages those bytes have. */
size_t whole_pages(const char *to, size_t length);

#endif
