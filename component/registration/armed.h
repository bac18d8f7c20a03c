/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which memory the notifier has armed: whole mappings or nothing of them. Arming a part would split
 * the mapping for good, and what the application may do with it as a whole (mremap above all) would
 * then fail. So neither is a huge page split, nor does the number of mappings grow by arming. The
 * kernel alone knows what is armed, since changes disarm; nothing is kept here but an estimate of
 * how much.
 *
 * Where it cannot be asked (before Linux 6.7), what took the place of armed memory unseen (shmat
 * SHM_REMAP, and what then comes into the segment's place) is not noticed here either: it is armed,
 * and regions of what was there before stay.
 */
#ifndef REGX_REGISTRATION_ARMED_H
#define REGX_REGISTRATION_ARMED_H

#include <pthread.h>

#include "registration/changes.h"
#include "registration/maps.h"
#include "registration/uffd.h"

typedef struct regx_armed {
    const regx_uffd_t *uffd;
    regx_changes_t *changes;
    pthread_mutex_t lock; /* a leaf; never taken by the reader, nothing is allocated under it */
    regx_maps_t maps;     /* the rest is under the lock */
    uint32_t count;       /* mappings armed: no more than so many, as it does not know of changes
                             that disarm; counted anew at the limit, where the kernel cannot be
                             asked as all that could be */
    uint32_t count_again; /* when the count says so many, they are counted anew */
    uint32_t put_off;     /* ranges that were not armed since the last that was */
    uint32_t most;        /* that may be armed: a tenth of vm.max_map_count */
    uint32_t refused;     /* ranges, since they were last counted */
} regx_armed_t;

/* 0, or the errno of what could not be opened: nothing is to be closed then. */
int regx_armed_open(regx_armed_t *armed, const regx_uffd_t *uffd, regx_changes_t *changes);
void regx_armed_close(regx_armed_t *armed);

/* Arms the mappings that the range lies in. NULL, and *since as watch.h's cover has it; else why
 * not, for the counters. */
const char *regx_armed_cover(regx_armed_t *armed, uintptr_t start, uintptr_t end, uint64_t *since);

/* Disarms everything, also what other threads move meanwhile; the reader still runs. Where the
 * kernel cannot be asked, what grows in its place or is moved all the time may stay armed until the
 * descriptor is closed. */
void regx_armed_off(regx_armed_t *armed);

#endif
