// SPDX-License-Identifier: BSD-3-Clause
//
// Open MPI's registration cache, rcache/grdma, as a subject: as its BTLs make it, with
// mpi_leave_pinned.

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "opal_config.h"

#include "opal/mca/base/base.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_params.h"
#include "opal/threads/mutex.h"
#include "subject.h"

const char subject_names[] = "grdma";

static mca_rcache_base_module_t *grdma;
static _Atomic uint64_t registrations, deregistrations;

// ---- the empty domain

static int domain_register(void *data, void *base, size_t size,
                           mca_rcache_base_registration_t *registration)
{
    (void)data, (void)base, (void)size, (void)registration;
    atomic_fetch_add_explicit(&registrations, 1, memory_order_relaxed);
    return OPAL_SUCCESS;
}

static int domain_deregister(void *data, mca_rcache_base_registration_t *registration)
{
    (void)data, (void)registration;
    atomic_fetch_add_explicit(&deregistrations, 1, memory_order_relaxed);
    return OPAL_SUCCESS;
}

// ---- the subject

bool subject_open(const char *name, subject_kind_t *kind, char *why, size_t size)
{
    static char cache[] = "registering";
    static mca_rcache_base_resources_t resources = {
        .cache_name = cache,
        .sizeof_reg = sizeof(mca_rcache_base_registration_t),
        .register_mem = domain_register,
        .deregister_mem = domain_deregister,
    };
    static char program[] = "grdma", *arguments[] = {program, NULL};
    char **argv = arguments;
    int argc = 1;

    if (strcmp(name, subject_names) != 0) {
        snprintf(why, size, "unknown subject \"%s\"; there is: %s", name, subject_names);
        return false;
    }
    if (opal_init(&argc, &argv) != OPAL_SUCCESS ||
        mca_base_framework_open(&opal_rcache_base_framework, 0) != OPAL_SUCCESS) {
        snprintf(why, size, "Open MPI's library does not start");
        return false;
    }
    opal_set_using_threads(true);
    opal_leave_pinned = 1;
    grdma = mca_rcache_base_module_create("grdma", NULL, &resources);
    if (grdma == NULL) {
        snprintf(why, size, "Open MPI makes no rcache/grdma");
        return false;
    }
    *kind = TOLD;
    return true;
}

int subject_acquire(void *base, size_t length, subject_use_t *use)
{
    return grdma->rcache_register(grdma, base, length, 0, MCA_RCACHE_ACCESS_ANY,
                                  (mca_rcache_base_registration_t **)use->bytes);
}

void subject_release(subject_use_t *use)
{
    grdma->rcache_deregister(grdma, *(mca_rcache_base_registration_t **)use->bytes);
}

// What was invalidated by a hook is deregistered by the next registration.
void subject_settle(void)
{
    static char page[1];
    subject_use_t use;

    if (subject_acquire(page, sizeof(page), &use) == 0) {
        subject_release(&use);
    }
}

bool subject_query(void)
{
    return false;
}

uint64_t subject_registrations(void)
{
    return atomic_load(&registrations);
}

uint64_t subject_deregistrations(void)
{
    return atomic_load(&deregistrations);
}
