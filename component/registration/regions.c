/* SPDX-License-Identifier: BSD-3-Clause */
#include "registration/regions.h"

#include <sys/mman.h>

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

bool regx_regions_init(regx_regions_t *regions, uint64_t most)
{
    /* Some more than may be alive: those that are dead and not yet deregistered. */
    const size_t capacity = (most < REGX_REGIONS_MOST / 2 ? 2 * most : REGX_REGIONS_MOST) + 64;

    *regions = (regx_regions_t){.capacity = (uint32_t)capacity, .used = 1};
    regions->records = map(capacity * sizeof(*regions->records));
    regions->holdings = map(capacity * sizeof(*regions->holdings));
    if (regions->records == NULL || regions->holdings == NULL) {
        regx_regions_fini(regions);
        return false;
    }
    return true;
}

void regx_regions_fini(regx_regions_t *regions)
{
    if (regions->records != NULL) {
        munmap(regions->records, regions->capacity * sizeof(*regions->records));
    }
    if (regions->holdings != NULL) {
        munmap(regions->holdings, regions->capacity * sizeof(*regions->holdings));
    }
}

uint32_t regx_regions_take(regx_regions_t *regions)
{
    const uint32_t number = regions->unused;

    if (number != 0) {
        regions->unused = regions->records[number].next;
        return number;
    }
    return regions->used < regions->capacity ? regions->used++ : 0;
}

void regx_regions_put(regx_regions_t *regions, uint32_t number)
{
    regions->records[number].next = regions->unused;
    regions->unused = number;
}

void regx_list_push(regx_regions_t *regions, regx_list_t *list, uint32_t number)
{
    regions->records[number].next = list->first;
    list->first = number;
    if (list->last == 0) {
        list->last = number;
    }
}

uint32_t regx_list_pop(regx_regions_t *regions, regx_list_t *list)
{
    const uint32_t number = list->first;

    if (number != 0) {
        list->first = regions->records[number].next;
        if (list->first == 0) {
            list->last = 0;
        }
    }
    return number;
}

void regx_list_prepend(regx_regions_t *regions, regx_list_t *list, regx_list_t *from)
{
    if (from->first != 0) {
        regions->records[from->last].next = list->first;
        list->first = from->first;
        if (list->last == 0) {
            list->last = from->last;
        }
        *from = (regx_list_t){0};
    }
}
