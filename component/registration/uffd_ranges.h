/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory the notifier has registered with userfaultfd: whole mappings or nothing of them.
 * Arming a part would split the mapping for good, and what the application may do with it as a
 * whole (mremap above all) would then fail. So neither is a huge page split, nor does the number of
 * mappings grow by registering with userfaultfd. The kernel alone knows what is registered with
 * userfaultfd, since changes unregister; nothing is kept here but an estimate of how much.
 *
 * Where it cannot be asked (before Linux 6.7), what took the place of registered with userfaultfd
 * memory unseen (shmat SHM_REMAP, and what then comes into the segment's place) is not noticed here
 * either: it is registered with userfaultfd, and regions of what was there before stay.
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
    uint32_t count; /* mappings registered with userfaultfd: no more than so many, as it does not
                       know of changes that unregister; counted anew at the limit, where the kernel
                       cannot be asked as all that could be */
    uint32_t count_again; /* when the count says so many, they are counted anew */
    uint32_t put_off; /* ranges that were not registered with userfaultfd since the last that was */
    uint32_t max;     /* that may be registered with userfaultfd: a tenth of vm.max_map_count */
    uint32_t refused; /* ranges, since they were last counted */
} regx_uffd_ranges_t;

/* 0, or the errno of what could not be opened: nothing is to be closed then. */
int regx_uffd_ranges_open(regx_uffd_ranges_t *ranges, const regx_uffd_t *uffd,
                          regx_inval_log_t *log);
void regx_uffd_ranges_close(regx_uffd_ranges_t *ranges);

/* Registers with userfaultfd the mappings that the range lies in. NULL, and *since as monitor.h's
 * cover has it; else why not, for the counters. */
const char *regx_uffd_ranges_add(regx_uffd_ranges_t *ranges, uintptr_t start, uintptr_t end,
                                 uint64_t *since);

/* Unregisters everything, also what other threads move meanwhile; the reader still runs. Where the
 * kernel cannot be asked, what grows in its place or is moved all the time may stay registered with
 * userfaultfd until the descriptor is closed. */
void regx_uffd_ranges_clear(regx_uffd_ranges_t *ranges);

#endif
