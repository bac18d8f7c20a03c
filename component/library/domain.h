/* SPDX-License-Identifier: BSD-3-Clause
 *
 * registration/ as a library for programs of libibverbs: regx/registration.h, which is installed.
 *
 *   domain.c   opened and closed, memory acquired and released
 *   device.c   the protection domain, as registration/ wants to have it
 *   shared.c   the monitor that all domains of the process share
 *   figures.c  what is told of it
 */
#ifndef REGX_LIBRARY_DOMAIN_H
#define REGX_LIBRARY_DOMAIN_H

#include "library/device.h"
#include "library/regx/registration.h"
#include "library/shared.h"
#include "registration/registration.h"

struct regx_domain {
    regx_device_t device;
    regx_shared_t shared; /* its part of what all have */
    regx_registry_t registry;
    regx_counters_t counters;
};

#endif
