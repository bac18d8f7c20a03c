/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A watch tells the caches of this process when the address space changes. One per process at a
 * time; each kind in a file of its own, whose head says what it sees and what it cannot see.
 *
 * The owner (btl/) starts it before the first cache and stops it after the last. After fork the
 * child's watch is inert: it holds no descriptor and nothing is armed.
 */
#ifndef REGX_REGISTRATION_WATCH_H
#define REGX_REGISTRATION_WATCH_H

#include "base/counters.h"
#include "base/hook_source.h"
#include "base/status.h"
#include "registration/changes.h"

typedef struct regx_watch regx_watch_t;
struct regx_mr;
struct regx_transport;

struct regx_watch {
    const char *name;
    regx_changes_t *changes; /* the watch's own, valid until stop */

    /* Whether no change of a watched range is between its start and its entry in the log, and
     * (where the watch was told to ask) all of start to end is still watched. Asked on each
     * look-up, after the use is counted and before sequence and head are read. Any thread;
     * allocates nothing. NULL: changes are logged before they happen, there is nothing to ask. */
    bool (*quiet)(regx_watch_t *watch, uintptr_t start, uintptr_t end);

    /* Where `quiet` asks nothing but regx_uffd_quiet of this one, which a hit then asks itself. */
    const struct regx_uffd *asked;

    /* Makes changes of that range known from now on. Called before pinning, with no lock of the
     * cache held. *since is the head of the log as it was before watching began. REGX_DENIED: the
     * range cannot be watched, do not keep its registration (counted by reason in
     * counters->fallbacks). NULL: everything is watched; read the head. */
    regx_status_t (*cover)(regx_watch_t *watch, uintptr_t start, uintptr_t end, uint64_t *since);

    /* Where regions are on demand; NULL: they are pinned. Any thread, with no lock held.
     * follows: whether they can serve what begins there; else pin it for one use (counted by
     * reason in counters->fallbacks). ready: called for each use of a region, before it is granted
     * or read from; sees to it that the device finds that range. REGX_DENIED: something of it is
     * not there, do not use the region. */
    bool (*follows)(regx_watch_t *watch, const void *base);
    regx_status_t (*ready)(regx_watch_t *watch, const struct regx_mr *mr, void *base, size_t length,
                           unsigned access);

    /* Nothing is left armed, no thread, no descriptor. All caches must be closed. */
    void (*stop)(regx_watch_t *watch);
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

typedef struct regx_watch_config {
    regx_check_t check;
    bool threads;                     /* the application may call from several threads */
    const regx_hook_source_t *hooks;  /* chosen by btl_regx_hooks */
    struct regx_transport *transport; /* whose memory domain registers */
    regx_prefetch_t prefetch;
    regx_counters_t *counters;
    /* The notifier's reader calls it for each change that the kernel tells of (of a move: for the
     * old place), before sequence is even again. Allocates nothing. NULL: nobody wants to know. */
    void (*told)(void *context, uintptr_t start, uintptr_t end);
    void *context;
} regx_watch_config_t;

/* Each starts one kind and runs its self-test. REGX_DENIED: not usable here, REGX_INVALID: the
 * self-test failed; `error` then holds one line that says why. */
regx_status_t regx_watch_notifier(const regx_watch_config_t *config, regx_watch_t **watch,
                                  char *error, size_t error_size);
regx_status_t regx_watch_hooks(const regx_watch_config_t *config, regx_watch_t **watch, char *error,
                               size_t error_size);
regx_status_t regx_watch_both(const regx_watch_config_t *config, regx_watch_t **watch, char *error,
                              size_t error_size);
regx_status_t regx_watch_retain(const regx_watch_config_t *config, regx_watch_t **watch,
                                char *error, size_t error_size);
regx_status_t regx_watch_odp(const regx_watch_config_t *config, regx_watch_t **watch, char *error,
                             size_t error_size);

#endif
