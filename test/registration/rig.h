/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the tests of registration work with: the application's buffers on one side, the oracle as
 * the device on the other, and between them a registry with one backend.
 */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "oracle.h"
#include "registration/registry.h"

typedef struct rig {
    const char *backend;
    oracle_t *oracle;
    regx_counters_t counters;
    regx_backend_choice_t choice;
    regx_registry_t registry;
} rig_t;

/* First and last in main: of Open MPI as much as its hooks need (rig_opal.c), or, in what is linked
 * as an MPI program, all of it (rig_mpi.c). */
void rig_begin(void);
void rig_end(void);
void rig_hooks(regx_monitor_config_t *config);

/* With a backend of the product; or `unprotected`, a cache whose monitor never tells of anything, and so
 * what a backend must be better than. `count`: most regions of the cache; 0: unlimited. Whether it can be
 * had here; if not, `why` says so in a line. */
bool rig_open(rig_t *rig, const char *backend, uint64_t count, regx_error_t why);
void rig_close(rig_t *rig);

typedef enum { SEND, RECEIVE } direction_t;

/* One transfer of that range, as rendezvous/ makes it. */
typedef struct transfer {
    regx_status_t status; /* REGX_OK: it was registered and transferred */
    bool hit;             /* a kept region served (single-threaded programs only) */
    size_t right;         /* bytes that arrived as they were sent, before the first that did not */
} transfer_t;

/* SEND: what the application has there is compared with what the device sends. RECEIVE: the device
 * receives bytes made from `stamp`, and they are compared with what the application sees. */
transfer_t rig_transfer(rig_t *rig, direction_t direction, void *base, size_t length,
                        uint64_t stamp);

/* Bytes that no other stamp gives. */
void rig_fill(void *base, size_t length, uint64_t stamp);

/* Begins the line of what a run of random operations has done, which random_runs.py reads. */
void rig_report(rig_t *rig, uint64_t seed, uint64_t changes, uint64_t transfers, uint64_t bytes);

/* The counter, after threads' own counts were added to it. */
uint64_t rig_count(rig_t *rig, const _Atomic uint64_t *counter);

/* Waits until all changes that this thread has made are in the log. Until then a look-up, which
 * cannot know what they were, registers anew: right, but no hit. */
void rig_settle(const rig_t *rig);

/* Holds the notifier's reader where an event has come and was not read, or lets it go. Nothing
 * where there is none that can be held. */
bool rig_can_hold(const rig_t *rig);
void rig_hold(rig_t *rig, bool hold);
/* Whether the notifier stands there. */
bool rig_held(const rig_t *rig);
