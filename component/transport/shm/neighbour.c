/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A neighbour: another process of the node, and its main segment, mapped here.
 */
#include "transport/shm/shm_internal.h"

#include <stdlib.h>
#include <string.h>

bool regx_shm_address_is_valid(const regx_shm_address_t *address)
{
    return address->pool_offset >= regx_shm_pool_offset(REGX_CICO_FIRST) &&
           regx_within(address->pool_offset, address->pool_size, address->main.length) &&
           address->life.pid > 0 && address->life.id >= -1;
}

regx_shm_neighbour_t regx_shm_neighbour(const regx_shm_t *shm, const regx_shm_address_t *address)
{
    const regx_shm_node_t *here = &shm->address.node, *there = &address->node;
    regx_shm_neighbour_t neighbour = {.address = *address,
                                      .vm = {.pid = address->life.pid,
                                             .life = address->life,
                                             .own = shm->address.life,
                                             .file.fd = -1,
                                             .cookie_address = address->cookie_address,
                                             .cookie = address->cookie,
                                             .space = REGX_VM_SAME_SPACE}};

    if (regx_shm_differ(here->ipc, there->ipc)) {
        neighbour.vm.life.id = -1; /* here that is another segment */
    }
    if (regx_shm_differ(here->processes, there->processes)) {
        neighbour.vm.space = REGX_VM_OTHER_PROCESSES;
        neighbour.vm.life.pid = 0; /* here that is another process */
    } else if (regx_shm_differ(here->users, there->users)) {
        neighbour.vm.space = REGX_VM_OTHER_USERS;
    }
    return neighbour;
}

struct regx_shm_view {
    regx_shm_view_t *next;
    regx_segment_name_t name;
    regx_vm_cookie_t cookie;
    regx_shm_mapping_t mapping;
    bool own; /* this process's segment, which is there */
    unsigned users;
};

static void unmap_view(regx_shm_view_t *view)
{
    if (!view->own) {
        regx_segment_unmap(&view->mapping);
    }
}

regx_status_t regx_shm_neighbour_map(regx_shm_t *shm, regx_shm_neighbour_t *neighbour)
{
    const regx_shm_address_t *address = &neighbour->address;
    regx_status_t status = REGX_OK;
    regx_shm_main_t *main;

    if (neighbour->view != NULL) {
        return REGX_OK;
    }
    regx_lock(&shm->lock);
    /* A process that names another's cookie may lie about all else: the segment's name, and so its
     * length, must be the same, too. */
    regx_shm_view_t *view = shm->views;
    while (view != NULL && (!regx_vm_same(&view->cookie, &address->cookie) ||
                            memcmp(&view->name, &address->main, sizeof(view->name)) != 0)) {
        view = view->next;
    }
    if (view == NULL) {
        view = calloc(1, sizeof(*view));
        if (view == NULL) {
            status = REGX_UNREACHABLE;
            goto unlock;
        }
        view->own = memcmp(&address->main, &shm->main.name, sizeof(address->main)) == 0;
        view->mapping = (regx_shm_mapping_t){.base = shm->main.base, .file.fd = -1};
        status = view->own ? REGX_OK : regx_segment_map(&address->main, &view->mapping);
        main = (void *)view->mapping.base;
        if (status == REGX_OK && !regx_vm_same(&main->queue.cookie, &address->cookie)) {
            unmap_view(view);
            status = REGX_DENIED;
        }
        if (status != REGX_OK) {
            free(view);
            status = status == REGX_DENIED ? REGX_DENIED : REGX_UNREACHABLE;
            goto unlock;
        }
        /* The name is not needed any more when all have mapped what has it. */
        if (address->main.kind == REGX_SEGMENT_NAMED && !view->own &&
            atomic_fetch_add(&main->mapped, 1) + 1 >= main->expected && main->expected > 0) {
            regx_shm_file_unlink(&address->main.file);
        }
        view->name = address->main;
        view->cookie = address->cookie;
        view->next = shm->views;
        shm->views = view;
    }
    view->users++;
    neighbour->vm.file = view->mapping.file;
    neighbour->main = (regx_shm_main_t *)(void *)view->mapping.base;
    neighbour->pool = view->mapping.base + address->pool_offset;
    atomic_signal_fence(memory_order_seq_cst); /* last, wherever the program leaves MPI */
    neighbour->view = view;
unlock:
    regx_unlock(&shm->lock);
    return status;
}

void regx_shm_neighbour_unmap(regx_shm_t *shm, regx_shm_neighbour_t *neighbour)
{
    regx_shm_view_t *view = neighbour->view, **at = &shm->views;

    if (view == NULL) {
        return;
    }
    neighbour->view = NULL;
    neighbour->main = NULL;
    neighbour->vm.file.fd = -1;
    regx_lock(&shm->lock);
    const bool last = --view->users == 0;
    while (last && *at != view) {
        at = &(*at)->next;
    }
    if (last) {
        *at = view->next;
    }
    regx_unlock(&shm->lock);
    if (last) {
        unmap_view(view);
        free(view);
    }
}
