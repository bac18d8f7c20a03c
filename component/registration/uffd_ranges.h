/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory the notifier watches, that is, has registered with userfaultfd: whole mappings or
 * nothing of them. Watching a part would split the mapping for good, and what the application may
 * do with it as a whole (mremap above all) would then fail. So neither is a huge page split, nor
 * does the number of mappings grow when one is watched. The kernel alone knows what is watched,
 * since changes end it; nothing is kept here but an estimate of how much.
 *
 * Where the kernel cannot be asked (before Linux 6.7), what took the place of watched memory unseen
 * (shmat SHM_REMAP, and what then comes into the segment's place) is not noticed here either: it is
 * watched, and regions of what was there before stay.
 */
#ifndef REGX_REGISTRATION_UFFD_RANGES_H
#define REGX_REGISTRATION_UFFD_RANGES_H

#include <pthread.h>

#include "registration/inval_log.h"
#include "registration/maps.h"
#include "registration/uffd.h"

typedef struct regx_uffd_ranges {
    const regx_uffd_t *uffd;
    regx_inval_log_t *log;
    pthread_mutex_t lock; /* a leaf; never taken by the reader, nothing is allocated under it */
    regx_maps_t maps;     /* the rest is under the lock */
    uint32_t count;       /* mappings watched, or fewer: it does not hear of changes that end it */
    uint32_t count_again; /* when the count says so many, they are counted anew */
    uint32_t put_off;     /* ranges that were not watched, since the last that was */
    uint32_t max;         /* that may be watched: a tenth of vm.max_map_count */
    uint32_t refused;     /* ranges, since they were last counted */
} regx_uffd_ranges_t;

/* 0, or the errno of what could not be opened: nothing is to be closed then. */
int regx_uffd_ranges_open(regx_uffd_ranges_t *ranges, const regx_uffd_t *uffd,
                          regx_inval_log_t *log);
void regx_uffd_ranges_close(regx_uffd_ranges_t *ranges);

/* Watches the mappings that the range lies in. NULL, and *since as monitor.h's subscribe has it;
 * else why not, for the counters. */
const char *regx_uffd_ranges_add(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end,
                                 uint64_t *since);

/* Unregisters everything, also what other threads move meanwhile; the reader still runs. Where the
 * kernel cannot be asked, what grows in its place or is moved all the time may stay watched until
 * the descriptor is closed. */
void regx_uffd_ranges_clear(regx_uffd_ranges_t *ranges);

#endif
