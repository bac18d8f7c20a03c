/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A neighbour: another process of the node, its main segment, mapped here, and a piece of its memory,
 * copied.
 *
 * A piece is what is copied at once between this process and a neighbour. The kernel does it by one
 * system call (vm.c). If the neighbour's bytes lie in its own MPI_Alloc_mem memory, that is mapped here
 * and this process copies, which is counted (pieces_owned). Such a copy ends this process
 * by a signal if its own buffer is unmapped; the kernel's only fails. So if the address of this
 * process's buffer was given by a neighbour (a shared copy), the kernel copies.
 */
#include "transport/shm/shm_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

bool regx_shm_address_is_valid(const regx_shm_address_t *address)
{
    return address->pool_offset >= regx_shm_pool_offset(REGX_CICO_FIRST) &&
           regx_within(address->pool_offset, address->pool_size, address->main.length) &&
           address->life.pid > 0 && address->life.id >= -1;
}

regx_shm_neighbour_t regx_shm_neighbour(const regx_shm_t *shm, const regx_shm_address_t *address)
{
    const regx_shm_node_t *here = &shm->address.node, *there = &address->node;
    regx_shm_neighbour_t neighbour = {.address = *address};

    neighbour.vm.pid = address->life.pid;
    neighbour.vm.life = address->life;
    neighbour.vm.own = shm->address.life;
    neighbour.vm.file.fd = -1;
    if (regx_shm_differ(here->ipc, there->ipc)) {
        neighbour.vm.life.id = -1; /* here that is another segment */
    }
    neighbour.vm.cookie_address = address->cookie_address;
    neighbour.vm.cookie = address->cookie;
    neighbour.vm.space = regx_shm_differ(here->processes, there->processes)
                             ? REGX_VM_OTHER_PROCESSES
                         : regx_shm_differ(here->users, there->users) ? REGX_VM_OTHER_USERS
                                                                      : REGX_VM_SAME_SPACE;
    if (neighbour.vm.space == REGX_VM_OTHER_PROCESSES) {
        neighbour.vm.life.pid = 0; /* here that is another process */
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

/* A process that names another's cookie may lie about all else: the segment's name, and so its
 * length, must be the same, too. */
static bool is_view_of(const regx_shm_view_t *view, const regx_shm_address_t *address)
{
    return regx_vm_same(&view->cookie, &address->cookie) &&
           memcmp(&view->name, &address->main, sizeof(view->name)) == 0;
}

static void unmap_view(regx_shm_view_t *view)
{
    if (!view->own) {
        regx_segment_unmap(&view->mapping);
    }
}

/* Adds it, with no user yet. */
static regx_status_t map_view_locked(regx_shm_t *shm, const regx_shm_address_t *address,
                                     regx_shm_view_t **out)
{
    regx_shm_view_t *view = calloc(1, sizeof(*view));

    if (view == NULL) {
        return REGX_UNREACHABLE;
    }
    view->own = memcmp(&address->main, &shm->main.name, sizeof(address->main)) == 0;
    view->mapping = (regx_shm_mapping_t){.base = shm->main.base, .file.fd = -1};
    regx_status_t status = view->own ? REGX_OK : regx_segment_map(&address->main, &view->mapping);
    regx_shm_main_t *main = (void *)view->mapping.base;
    if (status == REGX_OK && !regx_vm_same(&main->queue.cookie, &address->cookie)) {
        unmap_view(view);
        status = REGX_DENIED;
    }
    if (status != REGX_OK) {
        free(view);
        return status == REGX_DENIED ? REGX_DENIED : REGX_UNREACHABLE;
    }
    /* The name is not needed any more when all have mapped what has it. */
    if (address->main.kind == REGX_SEGMENT_NAMED && !view->own &&
        atomic_fetch_add(&main->mapped, 1) + 1 >= main->expected && main->expected > 0) {
        regx_shm_file_unlink(&address->main.file);
    }
    view->name = address->main;
    view->cookie = address->cookie;
    view->next = shm->views;
    shm->views = *out = view;
    return REGX_OK;
}

regx_status_t regx_shm_neighbour_map(regx_shm_t *shm, regx_shm_neighbour_t *neighbour)
{
    const regx_shm_address_t *address = &neighbour->address;
    regx_status_t status = REGX_OK;

    if (neighbour->view != NULL) {
        return REGX_OK;
    }
    regx_lock(&shm->lock);
    regx_shm_view_t *view = shm->views;
    while (view != NULL && !is_view_of(view, address)) {
        view = view->next;
    }
    if (view == NULL) {
        status = map_view_locked(shm, address, &view);
    }
    if (status == REGX_OK) {
        view->users++;
    }
    regx_unlock(&shm->lock);
    if (status == REGX_OK) {
        neighbour->view = view;
        neighbour->vm.file = view->mapping.file;
        neighbour->main = (regx_shm_main_t *)(void *)view->mapping.base;
        neighbour->pool = view->mapping.base + address->pool_offset;
    }
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

static void tally_refusal(const regx_shm_t *shm, const regx_shm_neighbour_t *neighbour)
{
    char reason[REGX_REASON_LENGTH];

    regx_vm_explain(&neighbour->vm, reason, sizeof(reason));
    regx_transport_fall_back(&shm->config, REGX_TRACE_PATH, reason);
}

bool regx_shm_may_copy(const regx_shm_t *shm, regx_shm_neighbour_t *neighbour)
{
    if (neighbour->vm.state == REGX_VM_UNKNOWN && regx_vm_check(&neighbour->vm) != REGX_OK) {
        tally_refusal(shm, neighbour);
    }
    return neighbour->vm.state == REGX_VM_ALLOWED;
}

/* ---- a piece ---- */

/* Copies the piece without the kernel, if the neighbour's bytes are mapped here. But if there is no memory
 * where the piece would end, the kernel has to try: a message that the MPI library has read may be longer
 * than its buffer. */
static bool copy_mapped(const regx_shm_t *shm, const regx_shm_piece_t *piece)
{
    char *remote = regx_alloc_mem_map(shm, piece);

    if (remote == NULL) {
        return false;
    }
    if (piece->direction == REGX_COPY_FROM_PEER) {
        if (piece->may_overrun && !regx_fault_has_end(piece->local + piece->length)) {
            return false;
        }
        regx_copy(piece->local, remote, piece->length);
    } else {
        regx_copy(remote, piece->local, piece->length);
    }
    regx_count(shm->config.counters, &shm->config.counters->pieces_owned, 1);
    regx_count(shm->config.counters, &shm->config.counters->bytes_shm, piece->length);
    return true;
}

regx_status_t regx_shm_piece_copy(regx_shm_t *shm, regx_shm_piece_t piece)
{
    regx_status_t status = REGX_OK;

    if (copy_mapped(shm, &piece)) {
        return REGX_OK;
    }
    while (piece.length > 0 && status == REGX_OK) {
        size_t copied;

        status = regx_vm_copy(&piece.neighbour->vm, piece.direction, piece.local, piece.remote,
                              piece.length, &copied);
        regx_count(shm->config.counters, &shm->config.counters->bytes_shm, copied);
        piece.local += copied;
        piece.remote += copied;
        piece.length -= copied;
    }
    if (status == REGX_DENIED) {
        tally_refusal(shm, piece.neighbour);
    }
    return status;
}

regx_status_t regx_shm_copy_part(regx_shm_t *shm, regx_pending_t *op, size_t at, size_t length)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(op->conn);
    const regx_move_t move = regx_move_of(op);
    const regx_shm_key_t key = regx_shm_key_unpack(move.key);

    return regx_shm_piece_copy(
        shm,
        (regx_shm_piece_t){
            .neighbour = &conn->peer,
            .alloc_mem = key.by_kernel ? NULL : &conn->alloc_mem,
            .direction = op->kind == REGX_PENDING_GET ? REGX_COPY_FROM_PEER : REGX_COPY_TO_PEER,
            .local = move.local + at,
            .remote = key.address + move.offset + at,
            .length = length,
            .may_overrun = op->kind == REGX_PENDING_GET && regx_get_of(op)->may_overrun});
}
