/* SPDX-License-Identifier: BSD-3-Clause
 *
 * registration/ makes memory that the application owns known to the device, and guarantees that
 * a registration is used only while it is true.
 *
 * Between region_acquire and region_release the region stays registered. How long it is kept
 * after that, and how changes of the address space are learned, is the backend's (backend.h).
 * Any thread may call; acquire and release may be on different threads.
 */
#ifndef REGX_REGISTRATION_REGISTRATION_H
#define REGX_REGISTRATION_REGISTRATION_H

#include "base/counters.h"
#include "base/status.h"
#include "transport/transport.h"

/* One acquired range. The caller keeps it, unchanged, until it is released. */
typedef struct regx_region {
    regx_mr_t mr; /* mr.base and mr.length cover the range that was asked for */
} regx_region_t;

typedef struct regx_registry regx_registry_t;

/* What a backend does. Each lives in a file of its own whose head says what it guarantees. */
typedef struct regx_backend {
    const char *name;
    regx_status_t (*acquire)(regx_registry_t *registry, void *base, size_t length, unsigned access,
                             regx_region_t *region);
    void (*release)(regx_registry_t *registry, regx_region_t *region);
} regx_backend_t;

struct regx_registry {
    const regx_backend_t *backend;
    regx_transport_t *transport; /* whose memory domain registers */
    regx_counters_t *counters;
};

extern const regx_backend_t regx_backend_none;

void regx_registry_init(regx_registry_t *registry, const regx_backend_t *backend,
                        regx_transport_t *transport, regx_counters_t *counters);

/* REGX_NO_MEMORY, REGX_DENIED: not registered; bounce instead. */
regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region);
void regx_region_release(regx_registry_t *registry, regx_region_t *region);

#endif
