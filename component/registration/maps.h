/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What is mapped where in this process, as the kernel has it: asked for single addresses where the
 * kernel can be asked (PROCMAP_QUERY, Linux 6.11), else read from /proc/self/maps, which takes as
 * long as there are mappings below. Never on a hit. Allocates nothing.
 */
#ifndef REGX_REGISTRATION_MAPS_H
#define REGX_REGISTRATION_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "registration/raw.h"

typedef enum regx_mapping_kind {
    REGX_MAPPING_PRIVATE, /* anonymous: the heap, stacks, .bss, private anonymous mmap */
    REGX_MAPPING_HUGE,    /* the same, of hugetlb pages */
    REGX_MAPPING_FILE,  /* a private mapping of a file (.data, libraries): changes with the file */
    REGX_MAPPING_SHARED /* with other processes or other mappings, file or not */
} regx_mapping_kind_t;

typedef struct regx_mapping {
    uintptr_t start, end;
    regx_mapping_kind_t kind;
} regx_mapping_t;

/* Used by one thread at a time. */
typedef struct regx_maps {
    int fd;            /* /proc/self/maps; -1: closed */
    regx_file_id_t id; /* by which to tell it, should somebody have closed it */
    bool query;        /* the kernel can be asked */
} regx_maps_t;

/* 0, or the errno of what could not be opened. */
int regx_maps_open(regx_maps_t *maps);
void regx_maps_close(regx_maps_t *maps);

/* Calls `each` for each mapping that overlaps the range, whole, in order of address, until it
 * answers false. Those that change meanwhile may be seen before or after. Sees none where the
 * descriptor is not ours any more. */
void regx_maps_each(regx_maps_t *maps, uintptr_t start, uintptr_t end,
                    bool (*each)(void *context, const regx_mapping_t *mapping), void *context);

#endif
