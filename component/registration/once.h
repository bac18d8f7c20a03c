/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The device registers and deregisters, counted; and registrations that serve one use each.
 *
 * All registrations of backend none serve one use, and so do those that the cache does not keep. They are
 * pinned as long as they last, so their bytes are bounded: a message that finds no room goes by bounce.
 * Without a bound the kernel would end processes when more is pinned than the machine can spare. What
 * is kept has a budget of its own (cache.h).
 */
#ifndef REGX_REGISTRATION_ONCE_H
#define REGX_REGISTRATION_ONCE_H

#include "registration/registry.h"

/* REGX_NO_MEMORY also of what is longer than the device takes. */
regx_status_t regx_mr_register(regx_registry_t *registry, void *base, size_t length,
                               unsigned access, regx_mr_t *mr);
void regx_mr_deregister(regx_registry_t *registry, regx_mr_t *mr);

/* Registers exactly that range, counted as uncached. REGX_NO_MEMORY also where the bound leaves no room,
 * as is noted in the region (over_share). `reason`: why it is not kept, for the trace; NULL: nothing
 * is. */
regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, const char *reason, regx_region_t *region);
/* region->own is registered and was to be kept: it serves this use alone. Where there is no room for
 * that it is deregistered, and the answer is REGX_NO_MEMORY. */
regx_status_t regx_once_take(regx_registry_t *registry, const char *reason, regx_region_t *region);
/* Gives the room back, too. */
void regx_once_deregister(regx_registry_t *registry, regx_region_t *region);

#endif
