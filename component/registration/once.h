/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Registrations that serve one use each: all of them with backend none, with a cache those that are
 * not kept. They are pinned as long as they last, so their bytes are bounded: a message that finds
 * no room goes by bounce. Without a bound the kernel would end processes when more is pinned than
 * the machine can spare. What is kept has a budget of its own (cache.h).
 */
#ifndef REGX_REGISTRATION_ONCE_H
#define REGX_REGISTRATION_ONCE_H

#include "registration/registration.h"

/* Takes room for what is registered, or about to be, to serve that use; what pins nothing needs
 * none. false: there is too little, as is noted in the region. */
bool regx_once_enter(regx_registry_t *registry, size_t length, unsigned access,
                     regx_region_t *region);
void regx_once_leave(regx_registry_t *registry, size_t length, unsigned access);

/* Registers exactly that range, counted as uncached. REGX_NO_MEMORY also where there is no room. */
regx_status_t regx_once_register(regx_registry_t *registry, void *base, size_t length,
                                 unsigned access, regx_region_t *region);
/* Gives the room back, too. */
void regx_once_deregister(regx_registry_t *registry, regx_region_t *region);

#endif
