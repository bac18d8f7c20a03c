/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The owned memory of a peer (owned.h), mapped here. Each segment is mapped once, at the first copy
 * that could use it, and stays until the view is dropped; that the peer has ended does not harm.
 *
 * What the peer's table says is not trusted: a file is mapped only if it is as long as is said,
 * cannot be cut short, and is the one that the peer means.
 *
 * Calls for one view are made by one thread at a time: by progress, or when the peer is dropped.
 */
#ifndef REGX_TRANSPORT_OWNED_VIEW_H
#define REGX_TRANSPORT_OWNED_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "transport/shm/owned.h"

typedef struct regx_owned_mapped {
    uint64_t base; /* in the peer */
    uint64_t length;
    char *here; /* NULL: it could not be mapped, and the kernel copies */
} regx_owned_mapped_t;

typedef struct regx_owned_view {
    uint32_t count; /* segments looked at */
    regx_owned_mapped_t segments[REGX_OWNED_SEGMENTS];
} regx_owned_view_t;

/* Where [remote, remote + length) of the peer is mapped here. NULL: nowhere, the kernel is to copy.
 * view: NULL in the beginning. pid: the peer, of which the kernel lets this process copy. A segment
 * that cannot be mapped is tallied among the fallbacks, once. */
char *regx_owned_find(regx_owned_view_t **view, const regx_owned_shared_t *peer, int32_t pid,
                      uint64_t remote, size_t length, const regx_transport_config_t *config);

/* Unmaps all. The view is NULL then. */
void regx_owned_drop(regx_owned_view_t **view);

#endif
