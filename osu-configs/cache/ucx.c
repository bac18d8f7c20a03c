// SPDX-License-Identifier: BSD-3-Clause
//
// UCX's registration cache, ucs_rcache, as a subject. Not every UCX installs its header, and what
// is in it changes: declared here is what is used of UCX 1.13's (src/ucs/memory/rcache.h and
// src/ucm/api/ucm.h), and another version is refused when it is met.

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "subject.h"

const char subject_names[] = "ucs_rcache";

enum { MAJOR = 1, MINOR = 13 };
enum { VM_UNMAPPED = 1 << 17, PRIORITY = 1000, PGT_ALIGN = 16 };

typedef int8_t status_t; // ucs_status_t, which is packed; 0 is well
typedef struct rcache rcache_t;

typedef struct list_link {
    struct list_link *previous, *next;
} list_link_t;

typedef struct region {
    uintptr_t start, end; // ucs_pgt_region_t
    list_link_t lru_list, tmp_list, comp_list;
    volatile uint32_t refcount;
    status_t status;
    uint8_t prot, flags, lru_flags;
    uint64_t priv;
} region_t;

typedef struct operations {
    status_t (*mem_reg)(void *context, rcache_t *rcache, void *arg, region_t *region,
                        uint16_t flags);
    void (*mem_dereg)(void *context, rcache_t *rcache, region_t *region);
    void (*dump_region)(void *context, rcache_t *rcache, region_t *region, char *buf, size_t max);
} operations_t;

typedef struct parameters {
    size_t region_struct_size, alignment, max_alignment;
    int ucm_events, ucm_event_priority;
    const operations_t *ops;
    void *context;
    int flags;
    unsigned long max_regions;
    size_t max_size, max_unreleased;
} parameters_t;

static struct {
    status_t (*create)(const parameters_t *parameters, const char *name, void *stats,
                       rcache_t **rcache);
    status_t (*get)(rcache_t *rcache, void *address, size_t length, int prot, void *arg,
                    region_t **region);
    void (*put)(rcache_t *rcache, region_t *region);
    rcache_t *rcache;
    _Atomic uint64_t registrations, deregistrations;
} ucx;

// ---- the empty domain

static status_t domain_register(void *context, rcache_t *rcache, void *arg, region_t *region,
                                uint16_t flags)
{
    (void)context, (void)rcache, (void)arg, (void)region, (void)flags;
    atomic_fetch_add_explicit(&ucx.registrations, 1, memory_order_relaxed);
    return 0;
}

static void domain_deregister(void *context, rcache_t *rcache, region_t *region)
{
    (void)context, (void)rcache, (void)region;
    atomic_fetch_add_explicit(&ucx.deregistrations, 1, memory_order_relaxed);
}

static void domain_describe(void *context, rcache_t *rcache, region_t *region, char *buf,
                            size_t max)
{
    (void)context, (void)rcache, (void)region;
    snprintf(buf, max, "empty");
}

static const operations_t domain = {domain_register, domain_deregister, domain_describe};

// ---- the subject

static bool right_version(void *libucp, char *why, size_t size)
{
    void (*version)(unsigned *, unsigned *, unsigned *) =
        (void (*)(unsigned *, unsigned *, unsigned *))dlsym(libucp, "ucp_get_version");
    unsigned major = 0, minor = 0, release = 0;

    if (version != NULL) {
        version(&major, &minor, &release);
    }
    if (major != MAJOR || minor != MINOR) {
        snprintf(why, size, "this is UCX %u.%u; its cache is known here as it is in %d.%d", major,
                 minor, MAJOR, MINOR);
        return false;
    }
    return true;
}

bool subject_open(const char *name, subject_kind_t *kind, char *why, size_t size)
{
    const parameters_t parameters = {.region_struct_size = sizeof(region_t),
                                     .alignment = PGT_ALIGN,
                                     .max_alignment = (size_t)sysconf(_SC_PAGESIZE),
                                     .ucm_events = VM_UNMAPPED,
                                     .ucm_event_priority = PRIORITY,
                                     .ops = &domain,
                                     .max_regions = (unsigned long)-1,
                                     .max_size = (size_t)-1,
                                     .max_unreleased = (size_t)512 << 20}; // UCX's own default

    if (strcmp(name, subject_names) != 0) {
        snprintf(why, size, "unknown subject \"%s\"; there is: %s", name, subject_names);
        return false;
    }
    void *libucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (libucp == NULL) {
        snprintf(why, size, "UCX is not there: %s", dlerror());
        return false;
    }
    if (!right_version(libucp, why, size)) {
        return false;
    }
    ucx.create = (__typeof__(ucx.create))dlsym(libucp, "ucs_rcache_create");
    ucx.get = (__typeof__(ucx.get))dlsym(libucp, "ucs_rcache_get");
    ucx.put = (__typeof__(ucx.put))dlsym(libucp, "ucs_rcache_region_put");
    if (ucx.create == NULL || ucx.get == NULL || ucx.put == NULL ||
        ucx.create(&parameters, "benchmark", NULL, &ucx.rcache) != 0) {
        snprintf(why, size, "UCX makes no registration cache");
        return false;
    }
    *kind = TOLD;
    return true;
}

int subject_acquire(void *base, size_t length, subject_use_t *use)
{
    return ucx.get(ucx.rcache, base, length, PROT_READ | PROT_WRITE, NULL, (region_t **)use->bytes);
}

void subject_release(subject_use_t *use)
{
    ucx.put(ucx.rcache, *(region_t **)use->bytes);
}

// What was invalidated by a hook is deregistered by the next miss.
void subject_settle(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *fresh = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    subject_use_t use;

    if (fresh == MAP_FAILED) {
        return;
    }
    if (subject_acquire(fresh, page, &use) == 0) {
        subject_release(&use);
    }
    munmap(fresh, page);
}

bool subject_query(void)
{
    return false;
}

uint64_t subject_registrations(void)
{
    return atomic_load(&ucx.registrations);
}

uint64_t subject_deregistrations(void)
{
    return atomic_load(&ucx.deregistrations);
}
