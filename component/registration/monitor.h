/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A monitor tells the caches of this process when the address space changes. One per process at a
 * time; each kind in a file of its own, whose head says what it sees and what it cannot see.
 *
 * The owner (btl/) starts it before the first cache and stops it after the last. After fork the
 * child's monitor is inert: it holds no descriptor and nothing is watched.
 */
#ifndef REGX_REGISTRATION_MONITOR_H
#define REGX_REGISTRATION_MONITOR_H

#include "base/counters.h"
#include "base/hook_source.h"
#include "base/status.h"
#include "registration/inval_log.h"

typedef struct regx_monitor regx_monitor_t;
struct regx_transport;

/* What a monitor is. */
enum {
    /* It has a thread of its own, so that caches may have one each, too. */
    REGX_MONITOR_THREAD = 0x1,
    /* A change may come into the log after it returned to whoever made it, and `valid` does not
     * tell. By then the memory may be somebody else's: that a change is in the log while a region
     * is used does not mean that what is used changed. */
    REGX_MONITOR_LATE = 0x2,
    /* Nobody needs to tell: the device follows changes by itself (on_demand.h). */
    REGX_MONITOR_BY_DEVICE = 0x4
};

struct regx_monitor {
    const char *name;
    unsigned flags;        /* REGX_MONITOR_... */
    regx_inval_log_t *log; /* the monitor's own, valid until stop */

    /* Whether no change of a watched range is between its start and its entry in the log, and
     * (where the monitor was told to ask) all of start to end is still watched. Asked on each
     * look-up, after the use is counted and before sequence and head are read. Any thread;
     * allocates nothing. NULL: changes are logged before they happen, there is nothing to ask. */
    bool (*valid)(regx_monitor_t *monitor, uintptr_t start, uintptr_t end);

    /* Where `valid` asks nothing but regx_uffd_is_idle of this one, which a hit then asks itself.
     */
    const struct regx_uffd *query;

    /* Makes changes of that range known from now on. Called before pinning, with no lock of the
     * cache held. *since is the head of the log as it was before watching began. REGX_DENIED: the
     * range cannot be watched, do not keep its registration (counted by reason in
     * counters->fallbacks). NULL: everything is watched; read the head. */
    regx_status_t (*subscribe)(regx_monitor_t *monitor, uintptr_t start, uintptr_t end,
                               uint64_t *since);

    /* Nothing is left watched, no thread, no descriptor. All caches must be closed. */
    void (*stop)(regx_monitor_t *monitor);
};

/* The query that closes the window between a change and its event (btl_regx_notifier_check). */
typedef enum {
    REGX_CHECK_ALWAYS,
    REGX_CHECK_SCAN,
    REGX_CHECK_THREADS,
    REGX_CHECK_NEVER
} regx_check_t;

/* How pages on demand are brought in before the device needs them (btl_regx_odp_prefetch). */
typedef enum { REGX_PREFETCH_ADVISE, REGX_PREFETCH_TOUCH, REGX_PREFETCH_NONE } regx_prefetch_t;

typedef struct regx_monitor_config {
    regx_check_t check;
    bool threads;                     /* the application may call from several threads */
    const regx_hook_source_t *hooks;  /* chosen by btl_regx_hooks */
    struct regx_transport *transport; /* whose memory domain registers */
    regx_prefetch_t prefetch;
    regx_counters_t *counters;
    /* The notifier's reader calls it for each change that the kernel tells of (of a move: for the
     * old place), before sequence is even again. Allocates nothing. NULL: nobody wants to know. */
    void (*on_change)(void *context, uintptr_t start, uintptr_t end);
    void *context;
} regx_monitor_config_t;

/* Each starts one kind and runs its self-test. REGX_DENIED: not usable here, REGX_INVALID: the
 * self-test failed; `error` then holds one line that says why. */
regx_status_t regx_monitor_notifier(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                    char *error, size_t error_size);
regx_status_t regx_monitor_hooks(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                 char *error, size_t error_size);
regx_status_t regx_monitor_hooks_notifier(const regx_monitor_config_t *config,
                                          regx_monitor_t **monitor, char *error, size_t error_size);
regx_status_t regx_monitor_retain(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                  char *error, size_t error_size);

#endif
