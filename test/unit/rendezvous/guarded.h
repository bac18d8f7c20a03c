/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory for the tests of rendezvous/, and who tells the caches, if there are any, that it changes.
 */
#ifndef REGX_TEST_GUARDED_H
#define REGX_TEST_GUARDED_H

#include "../unit.h"

#include <stddef.h>
#include <stdint.h>

#include "registration/monitor/monitor.h"

/* ---- who tells the caches, if there are any ---- */

/* All processes of a test live in one address space, so they share it. */
extern regx_monitor_t fake_monitor;

/* Tells that the memory has changed. */
void fake_changed(const void *start, size_t length);

/* ---- guarded memory: what is outside may not be touched, or stays as it is ---- */

typedef struct guarded {
    uint8_t *base; /* ends where a page starts that cannot be touched */
    size_t length;
    uint8_t *mapped;
    size_t before;
} guarded_t;

guarded_t guarded_new(size_t length);

void guarded_free(guarded_t *memory);

void guarded_fill(const guarded_t *memory, uint64_t stream);

#endif
