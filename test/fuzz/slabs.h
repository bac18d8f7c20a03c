/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What fuzz_shm has in place of segments (segment.h) and of the kernel's copies (vm.h). Segments
 * are memory of this program, the slabs, by their number. A copy writes what it should to where it
 * is told.
 */
#ifndef REGX_TEST_FUZZ_SLABS_H
#define REGX_TEST_FUZZ_SLABS_H

#include <stddef.h>

#include "transport/shm/segment.h"

enum {
    SLABS = 6,
    PEER_PID = 0x7ffffff0 /* of the neighbour: no process has it */
};

/* A slab of so many bytes, the first of them zero; SLABS: there is none. */
size_t slab_take(size_t length);
void slab_give_back(size_t i);
char *slab_base(size_t i);
/* As the segment that the slab is would be named to a neighbour. */
void slab_name(size_t i, regx_segment_name_t *name);
/* Segments that are mapped. */
int slab_mappings(void);

#endif
