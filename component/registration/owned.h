/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Owned memory (registry.h says what that is) as a registry uses it.
 */
#ifndef REGX_REGISTRATION_OWNED_H
#define REGX_REGISTRATION_OWNED_H

#include "registration/registry.h"

/* Whether it may lie in a block: most other memory does not lie between them. */
static inline bool regx_owned_maybe(const regx_registry_t *registry, const void *base)
{
    const regx_owned_t *owned = registry->owned;

    return owned != NULL &&
           (uintptr_t)base >= atomic_load_explicit(&owned->low, memory_order_relaxed) &&
           (uintptr_t)base < atomic_load_explicit(&owned->high, memory_order_relaxed) &&
           !registry->transport->forked; /* a child has no registration */
}

/* As acquire, or acquire_kept (registers is false), of what lies in a block. false: nothing serves it
 * but what serves other memory. */
bool regx_owned_acquire(regx_registry_t *registry, const void *base, size_t length, bool registers,
                        regx_region_t *region);
/* Whether that would serve it, as far as is known. */
bool regx_owned_seems_kept(const regx_registry_t *registry, const void *base, size_t length);
/* A use of the block has ended. The last one of a block that was freed ends it. */
void regx_owned_release(regx_owned_t *owned, regx_owned_block_t *block);
/* The registry closes: nobody uses anything of it. */
void regx_owned_close(regx_registry_t *registry);

#endif
