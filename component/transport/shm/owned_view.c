/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "transport/shm/owned_view.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/util.h"

/* NULL: it cannot be mapped. */
static char *map(int32_t pid, const regx_owned_name_t *name)
{
    void *here = NULL;

    if (name->length == 0 || name->base > UINT64_MAX - name->length || name->file.descriptor < 0 ||
        regx_shm_file_map_other(pid, &name->file, name->length, true, &here) != REGX_OK) {
        return NULL;
    }
    madvise(here, name->length, MADV_DONTFORK);
    return here;
}

/* Maps what is in the peer's table and not yet in the view. */
static void extend(regx_owned_view_t *view, const regx_owned_shared_t *peer, uint32_t count,
                   int32_t pid, const regx_transport_config_t *config)
{
    while (view->count < count) {
        const regx_owned_name_t name = peer->names[view->count]; /* it may change it under us */
        regx_owned_mapped_t *segment = &view->segments[view->count++];

        *segment = (regx_owned_mapped_t){name.base, name.length, map(pid, &name)};
        if (segment->here == NULL) {
            regx_transport_fall_back(config, REGX_TRACE_PATH,
                                     "shm: a peer's MPI_Alloc_mem cannot be mapped");
        }
    }
}

char *regx_owned_find(regx_owned_view_t **view, const regx_owned_shared_t *peer, int32_t pid,
                      uint64_t remote, size_t length, const regx_transport_config_t *config)
{
    const uint32_t published = atomic_load_explicit(&peer->count, memory_order_acquire);
    const uint32_t count = (uint32_t)regx_min(published, REGX_OWNED_SEGMENTS);

    if (count == 0) {
        return NULL;
    }
    if (*view == NULL) {
        *view = calloc(1, sizeof(**view));
    }
    if (*view == NULL) {
        return NULL;
    }
    extend(*view, peer, count, pid, config);
    for (uint32_t i = 0; i < (*view)->count; i++) {
        const regx_owned_mapped_t *segment = &(*view)->segments[i];

        if (segment->here != NULL && remote >= segment->base &&
            remote - segment->base <= segment->length &&
            length <= segment->length - (remote - segment->base)) {
            return segment->here + (remote - segment->base);
        }
    }
    return NULL;
}

void regx_owned_drop(regx_owned_view_t **view)
{
    for (uint32_t i = 0; *view != NULL && i < (*view)->count; i++) {
        const regx_owned_mapped_t *segment = &(*view)->segments[i];

        if (segment->here != NULL) {
            munmap(segment->here, segment->length);
        }
    }
    free(*view);
    *view = NULL;
}
