/* SPDX-License-Identifier: BSD-3-Clause
 *
 * registration/ as a library for programs of libibverbs: regx/registration.h, which is installed.
 */
#ifndef REGX_LIBRARY_DOMAIN_H
#define REGX_LIBRARY_DOMAIN_H

#include "library/regx/registration.h"
#include "registration/registration.h"

struct regx_domain {
    regx_transport_t device; /* first: the protection domain, as registration/ has transports */
    struct ibv_pd *pd;       /* the program's */
    regx_backend_choice_t choice; /* the monitor is that of all domains of the process */
    regx_registry_t registry;
    regx_counters_t counters;
};

#endif
