/* SPDX-License-Identifier: BSD-3-Clause
 *
 * registration/ makes memory that the application owns known to the device, and guarantees that
 * a registration is used only while it is true.
 *
 *   registry.h      for who uses the layer: a backend is chosen, memory acquired and released
 *   monitor/        for a backend: what reports changes, and where
 *   cache.h         for the files of this layer: regions kept and found again
 *
 * Between acquire and release the region stays registered. How long it is kept after that, and how
 * changes of the address space are learned, is the backend's.
 *
 * How far a key reaches. A peer that was given the key of a region can write that region, or read
 * it, as it was registered, for as long as it is: an RDMA device looks at nothing else. With `none`
 * that is until release. With a cache it is until the region is evicted, or deregistered after its
 * memory has changed: some 10 ms with the notifier, with hooks and kernel at the program's next call
 * of MPI (odp: until it is evicted, and the peer meets whatever is mapped there by then); and the
 * region is of whole pages, so that what lies beside the buffer in its first and last page belongs to it,
 * and what the program puts there later. Owned memory is written and read as a whole block, until it is
 * freed. With a dead key no peer writes or reads: the device
 * refuses, and the peer's connection is lost.
 *
 * Any thread may call; acquire and release may be on different threads.
 */
#ifndef REGX_REGISTRATION_REGISTRY_H
#define REGX_REGISTRATION_REGISTRY_H

#include "base/list.h"
#include "base/thread.h"
#include "registration/monitor/monitor.h"

/* ---- the backends by name, and the choice among them ---- */

/* The words of btl_regx_backend: auto, which has no row, and the backends. */
extern const regx_param_word_t regx_backend_words[];

/* NULL: unknown, or auto, which is no backend. */
static inline const regx_backend_t *regx_backend_find(const char *name)
{
    return regx_param_row(regx_backend_words, name);
}

/* What a choice came to. */
typedef struct regx_backend_choice {
    const regx_backend_t *backend;
    regx_monitor_t *monitor;      /* running, or NULL; the caller stops it */
    char reason[REGX_ERROR + 16]; /* for the report */
} regx_backend_choice_t;

/* Starts the backend of that name. auto: none ("not needed") where registering is free; else
 * kernel or notifier, the first that passes its self-test, else none with the reason. A backend given
 * by name that does not work here: REGX_DENIED, and `error` holds the rest of a line that begins with
 * the name. */
regx_status_t regx_backend_choose(const char *name, bool registering_is_free,
                                  const regx_monitor_config_t *config,
                                  regx_backend_choice_t *choice, regx_error_t error);

/* ---- what is kept ---- */

#define REGX_UNLIMITED UINT64_MAX
#define REGX_CACHE_COUNT 16384u /* registrations that a process keeps at most, by default */

/* What is done about a buffer that changed while in use. DRAIN: as WARN, for what could not be
 * waited for (monitor.h). */
typedef enum {
    REGX_INUSE_IGNORE,
    REGX_INUSE_WARN,
    REGX_INUSE_ABORT,
    REGX_INUSE_DRAIN
} regx_inuse_t;

typedef struct regx_cache_config {
    uint64_t bytes; /* that kept regions may hold in all; REGX_UNLIMITED allowed */
    uint64_t
        count; /* regions kept, no more than the device has; REGX_UNLIMITED allowed (then what the
                         table holds) */
    /* That may be registered at a time for one use each, of what the device pins, with a cache or
     * without: half to send from, half to receive into; 0: as much as it takes. */
    uint64_t once_bytes;
    /* Called from progress, acquire or close, with no lock held, once, after the first use of a
     * buffer that changed while in use was released. NULL: not wanted. */
    void (*changed_in_use)(void *context, const void *base, size_t length);
    void *context;
    const regx_trace_t *trace; /* lives as long as the registry; NULL: off */
    struct regx_owned *owned;  /* outlives the registry; NULL: there is none */
} regx_cache_config_t;

/* ---- owned memory: it is registered once, for its life ----
 * Memory that this library gave the program (MPI_Alloc_mem), in blocks. Nobody else unmaps it, so a
 * registration of it stays true although no monitor looks after it. A block is registered as a whole,
 * for every access, when a device that pins first uses a part of it, and stays so until it is freed or
 * the registry closed. A block is treated as any other memory in three cases:
 *   - the device has refused it (unless for want of room: then a later use tries again);
 *   - another thread is registering it;
 *   - the program has a handler of SIGSEGV (base/fault.h), since it may have protected the block, to
 *     fill it on access. A device would find what was there before, and call no handler; a
 *     registration that is made for one use is refused then.
 *
 * To free a block that is in use is the program's error. Such a block gives no new use; it stays
 * registered and mapped until the last use has ended, so that no key outlives what it names.
 *
 * One list for all registries of a process. Any thread. */

typedef struct regx_owned_block regx_owned_block_t;

typedef struct regx_owned {
    _Atomic uintptr_t low, high; /* all blocks lie between, but not all there is blocks */
    regx_lock_t lock;            /* a leaf; of what follows, and of blocks */
    void *blocks;     /* by address (tsearch); also those that are freed and still in use */
    regx_link_t list; /* the same */
    /* Nobody uses that block any more. Called with no lock held. */
    void (*give_back)(void *base, size_t length);
} regx_owned_t;

void regx_owned_init(regx_owned_t *owned, bool threads,
                     void (*give_back)(void *base, size_t length));
/* All registries are closed. Blocks that were not freed are forgotten, and not given back. */
void regx_owned_fini(regx_owned_t *owned);

/* The memory is a block from now on. false: no memory for that. */
bool regx_owned_add(regx_owned_t *owned, void *base, size_t length);
/* The program frees that block: it is given back now, or with its last use. */
void regx_owned_free(regx_owned_t *owned, const void *base);

/* ---- a registry ---- */

/* One use of a registration. The caller keeps it, unchanged and in place, until it is released.
 * One that acquire_kept has filled in may be copied, and the copy released in its place. */
typedef struct regx_region {
    const regx_mr_t *mr; /* covers the range that was asked for, and perhaps more on either side */
    regx_mr_t own;       /* where it was made for this use alone */
    uint32_t kept;       /* the cache's: its number; 0: not kept */
    regx_owned_block_t *owned; /* if kept is 0: the block that serves it, or NULL */
    bool over_share;           /* a refusal was for want of room in once_max */
    uintptr_t start;           /* the cache's: what was asked for, and when */
    size_t length;
    uint64_t since;
} regx_region_t;

typedef struct regx_registry regx_registry_t;
struct regx_cache;

struct regx_registry {
    regx_transport_t *transport; /* whose memory domain registers */
    regx_counters_t *counters;
    const regx_trace_t *trace;
    regx_monitor_t *monitor;  /* NULL: changes are not reported */
    struct regx_cache *cache; /* NULL: registered per use */
    regx_owned_t *owned;      /* NULL: no memory is */
    bool on_demand;           /* monitor->by_device, for the fast path */
    /* Bytes that may be registered for one use each, per direction (REGX_UNLIMITED: no bound), and
     * those that are, to send from and to receive into: counted only if there is a bound. */
    uint64_t once_max;
    _Atomic uint64_t once[2];
    /* Bytes of owned blocks that may be registered, those that are, and how many these are: the latter two
     * under owned's lock. */
    uint64_t owned_max, owned_bytes, owned_count;
    regx_drain_t *drain; /* the monitor's; NULL: no change waits */
};

/* The monitor is running and outlives the registry; NULL: nothing is kept. `cache` says how much to
 * keep. REGX_NO_MEMORY. */
regx_status_t regx_registry_open(regx_registry_t *registry, regx_monitor_t *monitor,
                                 const regx_cache_config_t *cache, regx_transport_t *transport,
                                 regx_counters_t *counters);
/* Every use must be released. */
void regx_registry_close(regx_registry_t *registry);

/* REGX_NO_MEMORY, REGX_DENIED: not registered, or not there; bounce instead, and region->over_share
 * says whether others of the process's transfers left too little of what they may pin.
 * REGX_INVALID, by the device: nor can any other memory be, for that access. */
regx_status_t regx_region_acquire(regx_registry_t *registry, void *base, size_t length,
                                  unsigned access, regx_region_t *region);
/* Whether acquire would find it, as far as is known at once; for choosing, not to be relied on.
 * Where nothing is kept, or nothing is pinned (odp), always false. */
bool regx_region_seems_kept(regx_registry_t *registry, const void *base, size_t length,
                            unsigned access);
/* As acquire, but of what is kept alone: registers nothing. false: nothing kept serves it. Where
 * nothing is kept, or nothing is pinned (odp), always false. */
bool regx_region_acquire_kept(regx_registry_t *registry, const void *base, size_t length,
                              unsigned access, regx_region_t *region);
void regx_region_release(regx_registry_t *registry, regx_region_t *region);

/* To be called now and then: acts on changes and deregisters what is no longer needed, a bounded
 * amount. */
void regx_registry_progress(regx_registry_t *registry);
/* Brings the counters up to date, before they are read. */
void regx_registry_count(regx_registry_t *registry);

/* ---- what users may set ---- */

typedef struct regx_registration_settings {
    const char *backend;
    uint64_t cache_bytes, once_bytes;
    regx_inuse_t inuse;
} regx_registration_settings_t;

extern const regx_param_t regx_registration_params[];

#endif
