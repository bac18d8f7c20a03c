/* SPDX-License-Identifier: BSD-3-Clause
 *
 * registration/ makes memory that the application owns known to the device, and guarantees that
 * a registration is used only while it is true.
 *
 *   registration.h  acquire and release, for rendezvous/      backend.h  which backends there are
 *   cache.h         regions kept and found again              monitor.h    who tells of changes
 *   device.h        the transport's memory domain, counted    inval_log.h  what they told
 *
 * Between acquire and release the region stays registered. How long it is kept after that, and how
 * changes of the address space are learned, is the backend's.
 *
 * How far a key reaches. A peer that was given the key of a region can write that region, or read
 * it, as it was registered, for as long as it is: an RDMA device looks at nothing else. With `none`
 * that is until release. With a cache it is until the region is evicted, or its memory has changed
 * (odp: until it is evicted, and the peer meets whatever is mapped there by then); and the region
 * is of whole pages, so that what lies beside the buffer in its first and last page belongs to it,
 * and what the program puts there later. By a key that is dead nobody writes or reads: the device
 * refuses, and the peer's connection is lost.
 *
 * Any thread may call; acquire and release may be on different threads.
 */
#ifndef REGX_REGISTRATION_REGISTRATION_H
#define REGX_REGISTRATION_REGISTRATION_H

#include "base/counters.h"
#include "base/status.h"
#include "transport/transport.h"

/* One use of a registration. The caller keeps it, unchanged and in place, until it is released. */
typedef struct regx_region {
    const regx_mr_t *mr; /* covers the range that was asked for, and perhaps more on either side */
    regx_mr_t own;       /* where it was made for this use alone */
    uint32_t kept;       /* the cache's, as all that follows: what was asked for, and when */
    uintptr_t start;
    size_t length;
    uint64_t since;
} regx_region_t;

typedef struct regx_registry regx_registry_t;
typedef struct regx_backend regx_backend_t;
struct regx_cache;
struct regx_cache_config;
struct regx_monitor;

struct regx_registry {
    const regx_backend_t *backend;
    regx_transport_t *transport; /* whose memory domain registers */
    regx_counters_t *counters;
    struct regx_monitor *monitor; /* NULL: the backend needs none */
    struct regx_cache *cache;     /* NULL: registered per use */
    bool on_demand;               /* the monitor's regions */
};

/* The monitor must be running if the backend needs one, and outlive the registry; `cache` says how
 * much to keep. REGX_NO_MEMORY. */
regx_status_t regx_registry_open(regx_registry_t *registry, const regx_backend_t *backend,
                                 struct regx_monitor *monitor,
                                 const struct regx_cache_config *cache, regx_transport_t *transport,
                                 regx_counters_t *counters);
/* Every use must be released. */
void regx_registry_close(regx_registry_t *registry);

/* REGX_NO_MEMORY, REGX_DENIED: not registered, or not there; bounce instead. REGX_INVALID: nor can
 * any other memory be, for that access. */
regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region);
/* Whether acquire would find it, as far as can be told at once; for choosing, not to be relied on.
 * Where nothing is kept, or nothing is pinned (odp), always false. */
bool regx_region_seems_kept(regx_registry_t *registry, const void *base, size_t length,
                            unsigned access);
/* As acquire, but of what is kept alone: registers nothing. false: nothing kept serves it. Where
 * nothing is kept, or nothing is pinned (odp), always false. */
bool regx_region_acquire_kept(regx_registry_t *registry, const void *base, size_t length,
                              unsigned access, regx_region_t *region);
void regx_region_release(regx_registry_t *registry, regx_region_t *region);

/* To be called now and then; see cache.h. */
void regx_registry_progress(regx_registry_t *registry);
/* Brings the counters up to date, before they are read. */
void regx_registry_count(regx_registry_t *registry);

#endif
