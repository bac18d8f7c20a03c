/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions on demand: a property of the device, which follows changes of the address space by
 * itself. The monitor that the cache gets is silent; what is asked before each use is asked here.
 */
#ifndef REGX_REGISTRATION_ON_DEMAND_H
#define REGX_REGISTRATION_ON_DEMAND_H

#include "registration/monitor.h"
#include "transport/transport.h"

/* A monitor with REGX_MONITOR_BY_DEVICE, for the memory domain of config->transport alone.
 * REGX_DENIED, REGX_INVALID (the device does not follow), REGX_NO_MEMORY; `error` then holds one
 * line. */
regx_status_t regx_on_demand_start(const regx_monitor_config_t *config, regx_monitor_t **monitor,
                                   char *error, size_t error_size);

/* Both with such a monitor; any thread, with no lock held. */
/* Whether regions can serve what begins there; else pin it for one use (counted by reason in
 * counters->fallbacks). */
bool regx_on_demand_follows(const regx_monitor_t *monitor, const void *base);
/* Called for each use of a region, before it is granted or read from: sees to it that the device
 * finds that range. REGX_DENIED: something of it is not there, do not use the region. */
regx_status_t regx_on_demand_ready(const regx_monitor_t *monitor, const regx_mr_t *mr, void *base,
                                   size_t length, unsigned access);

#endif
