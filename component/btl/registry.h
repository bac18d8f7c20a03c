/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which backend keeps registrations valid in this process, and the warnings about it. Called by
 * the thread that initializes or finalizes MPI.
 */
#ifndef REGX_BTL_REGISTRY_H
#define REGX_BTL_REGISTRY_H

#include "btl/component.h"
#include "btl/module.h"

/* Starts the backend, once all transports are open and before the first cache. false: a warning was
 * printed. */
bool regx_backend_start(regx_component_t *component);
/* After the last cache. A backend that was not started is fine. */
void regx_backend_stop(regx_component_t *component);

/* Whether this module keeps registrations. Where registering is free there is no use in that,
 * unless a backend was asked for. */
bool regx_registry_keeps(const regx_module_t *module);

/* Opens one module's cache. false: a warning was printed. */
bool regx_registry_start(regx_module_t *module);
/* A module whose cache was not opened is fine. */
void regx_registry_stop(regx_module_t *module);

/* The pages of that range have changed, or are about to, by regx itself: the caches are notified.
 * For rendezvous/rendezvous.h; `context` is the module. */
void regx_registry_changes(void *context, uintptr_t start, uintptr_t end);

/* Brings the counters up to date with what the caches counted, before they are read. Any thread. */
void regx_registry_count_all(regx_component_t *component);

#endif
