/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Connections over shared memory, from the peer's address to the end.
 */
#include <errno.h>
#include <stdlib.h>

#include "transport/shm/shm_internal.h"

/* Whether a process that is there can map the other's memory. */
static bool leads_to(const regx_shm_node_t *from, const regx_shm_address_t *other)
{
    const regx_shm_node_t *to = &other->node;

    switch (other->main.kind) {
    case REGX_SEGMENT_SYSV:
        return !regx_shm_differ(from->ipc, to->ipc);
    case REGX_SEGMENT_NAMED:
        return from->memory != 0 && from->memory == to->memory;
    default:
        return from->processes != 0 && from->processes == to->processes && from->users == to->users;
    }
}

bool regx_shm_reaches(const regx_transport_t *transport, const void *address, size_t length,
                      bool same_node)
{
    const regx_shm_t *shm = REGX_CONTAINER_OF(transport, const regx_shm_t, super);
    regx_shm_address_t a;

    if (length != sizeof(a)) {
        return false;
    }
    memcpy(&a, address, sizeof(a));
    return a.variant == shm->address.variant &&
           (same_node || shm->address.node.machine == a.node.machine) &&
           leads_to(&shm->address.node, &a) && leads_to(&a.node, &shm->address);
}

regx_status_t regx_shm_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                               size_t length, regx_conn_t **out)
{
    regx_shm_t *shm = regx_shm_of(transport);
    regx_shm_conn_t *conn;
    regx_shm_address_t a;

    if (length != sizeof(a)) {
        return REGX_INVALID;
    }
    memcpy(&a, address, sizeof(a));
    if (!regx_shm_address_is_valid(&a) || a.variant != shm->address.variant) {
        return REGX_INVALID;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    conn->super.transport = transport;
    conn->super.peer = peer;
    conn->super.shares_pool = true;
    conn->peer = regx_shm_neighbour(shm, &a);
    conn->super.single_copy = regx_vm_check(&conn->peer.vm) == REGX_OK;
    conn->peer.vm.state = REGX_VM_UNKNOWN; /* a put or get asks again, and tallies why not */
    regx_list_init(&conn->copies);
    regx_lock_init(&conn->lock, shm->config.threads);
    /* Does now what may be refused later, when a process has dropped its privileges or has no
     * descriptor left: reserves a mailbox in this process's main segment, and maps the peer's, which
     * does likewise. Best effort: the first frame tries again, and tells what is refused. */
    regx_lock(&shm->lock);
    shm->mailboxes.neighbours++;
    const bool maps = shm->mailboxes.neighbours <= REGX_SHM_AHEAD;
    conn->box = regx_mailbox_box_reserve(&shm->mailboxes);
    regx_unlock(&shm->lock);
    errno = 0;
    if (maps && regx_shm_neighbour_map(shm, &conn->peer) != REGX_OK) {
        /* Another BTL may lead to the peer where no addresses are left for the segment, or where that is of
         * System V and perhaps of another IPC namespace: one of both has no /proc. */
        const bool no_addresses = errno == ENOMEM;

        if (no_addresses ||
            (a.main.kind == REGX_SEGMENT_SYSV && (shm->address.node.ipc == 0 || a.node.ipc == 0))) {
            regx_shm_disconnect(&conn->super);
            return no_addresses ? REGX_NO_MEMORY : REGX_UNREACHABLE;
        }
    }
    regx_lock(&shm->lock);
    conn->older = shm->conns;
    shm->conns = conn;
    if (shm->mailboxes.neighbours > shm->config.neighbours && !shm->sweep_due) {
        shm->sweep_due = true;
        regx_shm_count_copies(shm, 1);
    }
    regx_unlock(&shm->lock);
    *out = &conn->super;
    return REGX_OK;
}

/* ---- the first frame ---- */

/* Progress reports it as broken. Returns REGX_UNREACHABLE. */
static regx_status_t refuse(regx_shm_conn_t *conn, const char *reason)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    regx_transport_fall_back(&shm->config, REGX_TRACE_CONNECTION, reason);
    conn->state = REGX_SHM_REFUSED;
    conn->refusal = reason;
    regx_lock(&shm->lock);
    conn->next = shm->refused;
    shm->refused = conn;
    regx_unlock(&shm->lock);
    regx_shm_count_copies(shm, 1);
    return REGX_UNREACHABLE;
}

int regx_shm_report_refused(regx_shm_t *shm)
{
    const regx_transport_events_t *events = &shm->config.events;
    int count = 0;

    for (;; count++) {
        regx_lock(&shm->lock);
        regx_shm_conn_t *conn = shm->refused;
        shm->refused = conn != NULL ? conn->next : NULL;
        regx_unlock(&shm->lock);
        if (conn == NULL) {
            return count;
        }
        regx_shm_count_copies(shm, -1);
        events->broken(events->context, conn->super.peer, regx_vm_gone(&conn->peer.vm),
                       conn->refusal);
    }
}

/* A process's claim: its number, and low bits of the namespace that gives such numbers. */
static uint64_t claim_of(const regx_shm_address_t *address)
{
    return (uint64_t)(uint32_t)address->life.pid << 32 | (uint32_t)(address->node.processes << 2) |
           REGX_REQUEST_CLAIMED;
}

/* Whether that state is the claim of a dead process, as far as who asks can tell. A number that was given
 * again says no, and then the entry stays claimed for as long as that process lives. */
static bool is_abandoned(uint64_t state, const regx_shm_address_t *asker)
{
    const regx_life_t life = {.id = -1, .pid = (int32_t)(state >> 32)};

    return asker->node.processes != 0 && (uint32_t)state == (uint32_t)claim_of(asker) &&
           regx_life_is_over(&life, &asker->life);
}

regx_status_t regx_connect_queue_request(regx_connect_queue_t *queue,
                                         const regx_connect_request_t *request)
{
    const uint64_t claim = claim_of(&request->address);

    for (int i = 0; i < REGX_CONNECT_QUEUE_ENTRIES; i++) {
        _Atomic uint64_t *state = &queue->entries[i].state;
        uint64_t expected = REGX_REQUEST_FREE;

        if (atomic_compare_exchange_strong(state, &expected, claim) ||
            (is_abandoned(expected, &request->address) &&
             atomic_compare_exchange_strong(state, &expected, claim))) {
            queue->entries[i].request = *request;
            atomic_store_explicit(state, REGX_REQUEST_READY, memory_order_release);
            atomic_fetch_add_explicit(&queue->requests, 1, memory_order_release);
            return REGX_OK;
        }
    }
    return REGX_AGAIN;
}

regx_status_t regx_shm_attach_locked(regx_shm_conn_t *conn)
{
    regx_shm_t *shm = regx_shm_of(conn->super.transport);

    if (conn->state == REGX_SHM_REFUSED) {
        return REGX_UNREACHABLE;
    }
    regx_status_t status = regx_shm_neighbour_map(shm, &conn->peer);
    /* The peer's segment may stay mapped here after the peer has ended, but then nobody would ever read. */
    if (status == REGX_OK ? !regx_shm_reachable(&conn->super)
                          : conn->ended || regx_vm_gone(&conn->peer.vm)) {
        return refuse(conn, "shm: the neighbour has ended");
    }
    if (status == REGX_DENIED) {
        return refuse(conn, "shm: another namespace, or a descriptor was closed");
    }
    if (status != REGX_OK) {
        return refuse(conn, "shm: a neighbour's memory cannot be mapped");
    }
    if (conn->out.memory == NULL) {
        regx_lock(&shm->lock);
        if (conn->box == NULL) {
            conn->box = regx_mailbox_box_take(&shm->mailboxes);
        }
        regx_unlock(&shm->lock);
        if (conn->box == NULL) {
            return refuse(conn, "shm: no memory for a mailbox");
        }
        if (conn->box->segment.kind != shm->main.name.kind) {
            regx_transport_fall_back(&shm->config, REGX_TRACE_CONNECTION,
                                     "shm: a mailbox in memory of the other kind");
        }
        regx_mailbox_box_begin(conn->box, &shm->queue->cookie);
        regx_mailbox_out_init(&conn->out, conn->box->memory, conn->box->ring);
    }
    const regx_connect_request_t request = {.sender = shm->config.self,
                                            .address = shm->address,
                                            .mailboxes = conn->box->segment,
                                            .mailbox_offset = conn->box->offset,
                                            .mailbox_ring = conn->box->ring};
    status = regx_connect_queue_request(&conn->peer.main->queue, &request);
    conn->pool_part = regx_align_up((conn->peer.address.pool_size + REGX_SHM_POOL_PARTS - 1) /
                                        REGX_SHM_POOL_PARTS,
                                    regx_page_size());
    if (status == REGX_OK) {
        conn->state = REGX_SHM_ATTACHED;
    }
    return status;
}

/* ---- the end ---- */

bool regx_shm_reachable(regx_conn_t *super)
{
    const regx_shm_conn_t *conn = regx_shm_conn_of(super);

    return conn->peer.main != NULL &&
           atomic_load_explicit(&conn->peer.main->queue.closed, memory_order_acquire) == 0 &&
           !regx_vm_gone(&conn->peer.vm);
}

/* Ends what is under way: it has failed. */
static void end_operations(regx_shm_t *shm, regx_shm_conn_t *conn)
{
    regx_link_t taken = {&taken, &taken};

    regx_lock(&shm->lock);
    atomic_fetch_sub(&shm->zcopy_count,
                     (uint32_t)regx_shm_take_ops_locked(&shm->zcopies, conn, &taken));
    shm->cico.looks = 0; /* another get may be the oldest now */
    regx_shm_count_copies(shm, -regx_shm_take_ops_locked(&shm->cico.gets, conn, &taken));
    regx_unlock(&shm->lock);
    regx_pending_end_all(&taken, REGX_FAILED);
    regx_shm_drop_copies(conn);
}

static void give_memory_back(regx_shm_t *shm, regx_shm_conn_t *conn)
{
    if (conn->box != NULL) {
        regx_lock(&shm->lock);
        regx_mailbox_box_give_back(conn->box);
        regx_unlock(&shm->lock);
        conn->box = NULL;
    }
    regx_alloc_mem_drop(&conn->alloc_mem);
    regx_shm_neighbour_unmap(shm, &conn->peer);
}

static bool has_closed_locked(const regx_shm_conn_t *conn)
{
    return conn->peer.main != NULL &&
           atomic_load_explicit(&conn->peer.main->queue.closed, memory_order_acquire) != 0;
}

/* Whether the peer has closed or was killed, and nothing here waits for what it has still done, or
 * writes to its pool. `pinned` keeps what it has until it is disconnected. */
static bool has_ended_locked(const regx_shm_conn_t *conn)
{
    return !conn->ended && conn->pinned == NULL && conn->putting == 0 &&
           atomic_load(&conn->zcopies) == 0 && regx_list_empty(&conn->copies) &&
           (conn->lost || has_closed_locked(conn));
}

/* If so, sends are refused from now on. */
static void end_if_closed(regx_shm_t *shm, regx_shm_conn_t *conn)
{
    regx_lock(&conn->lock);
    const bool ends = has_ended_locked(conn);
    if (ends) {
        conn->ended = true;
        conn->out = (regx_mailbox_out_t){.memory = NULL};
        conn->state = conn->state == REGX_SHM_ATTACHED ? REGX_SHM_NEW : conn->state;
    }
    regx_unlock(&conn->lock);
    if (ends) {
        end_operations(shm, conn);
        regx_lock(&conn->lock);
        give_memory_back(shm, conn);
        regx_unlock(&conn->lock);
        regx_lock(&shm->lock);
        shm->mailboxes.neighbours--;
        regx_unlock(&shm->lock);
    }
}

void regx_shm_sweep(regx_shm_t *shm)
{
    regx_lock(&shm->lock);
    regx_shm_conn_t *conn = shm->conns;
    const bool due = shm->sweep_due;
    shm->sweep_due = false;
    regx_unlock(&shm->lock);
    if (!due) {
        return;
    }
    regx_shm_count_copies(shm, -1);
    for (; conn != NULL; conn = conn->older) {
        end_if_closed(shm, conn);
    }
}

/* Between two looks. */
#define LOOK_NS INT64_C(1000000000)

/* Number of the inbound half of that connection; inbound_count: there is none. */
static size_t inbound_of(const regx_shm_t *shm, const regx_shm_conn_t *conn)
{
    size_t i = 0;

    while (i < shm->inbound_count &&
           !regx_vm_same(&shm->inbound[i]->peer.address.cookie, &conn->peer.address.cookie)) {
        i++;
    }
    return i;
}

/* What this process has under way with it, for the report. */
static const char *awaited_locked(regx_shm_conn_t *conn)
{
    if (!regx_list_empty(&conn->copies)) {
        return "the process has ended while a message was copied from or to it";
    }
    if (atomic_load(&conn->zcopies) != 0 ||
        (conn->out.memory != NULL && !regx_mailbox_has_room(&conn->out, 1))) {
        return "the process has ended, and has not read all that was sent to it";
    }
    return "the process has ended, and sends nothing more";
}

/* The kernel says that it has ended only when its last store can be seen here. It is reported at the second
 * look: where one rank ends the whole job, mpirun ends this one in between, and one cause is told once. */
static void look_at(regx_shm_t *shm, regx_shm_conn_t *conn)
{
    const regx_transport_events_t *events = &shm->config.events;

    end_if_closed(shm, conn);
    if (conn->ended || conn->lost || !regx_vm_gone(&conn->peer.vm)) {
        return;
    }
    regx_lock(&conn->lock);
    /* Of one that was never mapped it is not known whether it has closed. */
    const bool is_told =
        conn->state == REGX_SHM_REFUSED || conn->peer.main == NULL || has_closed_locked(conn);
    const char *what = awaited_locked(conn);
    regx_unlock(&conn->lock);
    if (is_told || !conn->gone) {
        conn->gone = true;
        return;
    }
    const size_t i = inbound_of(shm, conn);
    if (i < shm->inbound_count) {
        regx_shm_inbound_t *inbound = shm->inbound[i];

        if (regx_mailbox_has(&inbound->in)) {
            return; /* not before the next look: first it is read */
        }
        regx_shared_copy_forget(shm, inbound);
        shm->inbound[i] = shm->inbound[--shm->inbound_count];
        regx_shm_drop_inbound(shm, inbound);
    }
    conn->lost = true;
    events->broken(events->context, conn->super.peer, true, what);
}

void regx_shm_look(regx_transport_t *transport)
{
    regx_shm_t *shm = regx_shm_of(transport);
    const int64_t now = regx_now_ns();

    if (now - shm->looked < LOOK_NS) {
        return;
    }
    shm->looked = now;
    regx_lock(&shm->lock);
    regx_shm_conn_t *conn = shm->conns;
    regx_unlock(&shm->lock);
    for (; conn != NULL; conn = conn->older) {
        look_at(shm, conn);
    }
}

static void free_conn(regx_shm_conn_t *conn)
{
    give_memory_back(regx_shm_of(conn->super.transport), conn);
    regx_lock_fini(&conn->lock);
    free(conn);
}

/* Whether the peer has still to read a frame in this process's pool. */
static bool has_lent(const regx_shm_conn_t *conn)
{
    for (uint32_t token = 0; token < REGX_MAILBOX_ZCOPIES; token++) {
        if (atomic_load_explicit(&conn->out.memory->returned[token], memory_order_acquire) !=
            conn->uses[token]) {
            return true;
        }
    }
    return false;
}

/* Whether the peer needs this connection no more: it reads nothing, or this process closes and leaves it
 * the memory that it reads. */
static bool may_free(const regx_shm_t *shm, regx_shm_conn_t *conn)
{
    const regx_mailbox_memory_t *memory = conn->out.memory;
    const bool closes = atomic_load_explicit(&shm->queue->closed, memory_order_relaxed) != 0;

    return atomic_load_explicit(&memory->left, memory_order_acquire) != 0 ||
           (closes && conn->last_posted && !has_lent(conn) &&
            atomic_load_explicit(&memory->accepted, memory_order_acquire) != 0) ||
           !regx_shm_reachable(&conn->super);
}

void regx_shm_reap(regx_shm_t *shm)
{
    for (regx_shm_conn_t **at = &shm->disconnecting; *at != NULL;) {
        regx_shm_conn_t *conn = *at;

        if (!conn->last_posted &&
            regx_mailbox_post_line(&conn->out, REGX_FRAME_LAST, 0, NULL, 0) == REGX_OK) {
            conn->last_posted = true;
            regx_shm_count_copies(shm, -1);
        }
        if (!may_free(shm, conn)) {
            at = &conn->next;
            continue;
        }
        shm->unread |= atomic_load_explicit(&conn->out.memory->left, memory_order_acquire) == 0;
        *at = conn->next;
        if (!conn->last_posted) {
            regx_shm_count_copies(shm, -1);
        }
        free_conn(conn);
    }
}

void regx_shm_disconnect(regx_conn_t *super)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(super);
    regx_shm_t *shm = regx_shm_of(super->transport);
    regx_shm_conn_t **newer = &shm->conns;

    regx_lock(&shm->lock);
    shm->mailboxes.neighbours -= !conn->ended;
    while (*newer != NULL && *newer != conn) {
        newer = &(*newer)->older;
    }
    if (*newer != NULL) { /* connect may have failed */
        *newer = conn->older;
    }
    regx_unlock(&shm->lock);
    end_operations(shm, conn);
    if (conn->state == REGX_SHM_ATTACHED) {
        conn->next = shm->disconnecting;
        shm->disconnecting = conn;
        regx_shm_count_copies(shm, 1); /* until its last line is posted */
        regx_shm_reap(shm);
        return;
    }
    /* If it was refused, and that was not reported yet, it is not. */
    regx_lock(&shm->lock);
    regx_shm_conn_t **at = &shm->refused;
    while (*at != NULL && *at != conn) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = conn->next;
        regx_shm_count_copies(shm, -1);
    }
    regx_unlock(&shm->lock);
    free_conn(conn);
}

/* ---- the other half: neighbours that ask to be read ---- */

static void unmap_boxes(regx_shm_t *shm, regx_shm_inbound_t *inbound)
{
    if (inbound->boxes.base != NULL) {
        regx_segment_unmap(&inbound->boxes);
    }
    regx_shm_neighbour_unmap(shm, &inbound->peer);
}

/* A neighbour asks to be read: from now on its mailbox is polled, unless what it asks is malformed, or
 * its frames cannot be read. */
static void accept_neighbour(regx_shm_t *shm, const regx_connect_request_t *request)
{
    const regx_transport_events_t *events = &shm->config.events;
    const regx_segment_name_t *main = &request->address.main;
    const uint64_t offset = request->mailbox_offset;
    const char *reason = NULL; /* why not; NULL: it is malformed */
    regx_shm_inbound_t *inbound = calloc(1, sizeof(*inbound));
    regx_shm_inbound_t **more;
    size_t length, brought_in = 0;
    regx_status_t status;
    char *base;

    if (inbound != NULL && shm->inbound_count == REGX_SHM_NEIGHBOURS_MAX) {
        reason = "there are too many neighbours";
        goto refused;
    }
    more = inbound != NULL ? realloc(shm->inbound, (shm->inbound_count + 1) * sizeof(*more)) : NULL;
    if (more == NULL) {
        reason = "out of memory";
        goto refused;
    }
    shm->inbound = more;
    if (!regx_shm_address_is_valid(&request->address)) {
        goto refused;
    }
    inbound->peer = regx_shm_neighbour(shm, &request->address);
    if (memcmp(&request->mailboxes, main, sizeof(*main)) == 0) {
        status = regx_shm_neighbour_map(shm, &inbound->peer);
        base = (char *)inbound->peer.main;
        length = main->length;
    } else {
        status = regx_segment_map(&request->mailboxes, &inbound->boxes);
        base = inbound->boxes.base;
        length = inbound->boxes.length;
    }
    if (status != REGX_OK) {
        reason = "its mailbox cannot be mapped";
        goto refused;
    }
    if (offset % _Alignof(regx_mailbox_memory_t) != 0 ||
        !regx_mailbox_ring_is_valid(request->mailbox_ring) ||
        !regx_within(offset, regx_mailbox_size(request->mailbox_ring), length)) {
        unmap_boxes(shm, inbound);
        goto refused;
    }
    inbound->memory = (regx_mailbox_memory_t *)(void *)(base + offset);
    /* Brought in as if to be written: a read would bring in the pages around it, too, which are rings of
     * payload that perhaps nothing ever comes by. */
    regx_shm_bring_in(inbound->memory, sizeof(*inbound->memory), &brought_in, MADV_POPULATE_WRITE);
    if (!regx_vm_same(&inbound->memory->owner, &request->address.cookie)) {
        unmap_boxes(shm, inbound);
        reason = "what is mapped is not its mailbox";
        goto refused;
    }
    inbound->sender = request->sender;
    inbound->cells.fd = -1;
    regx_mailbox_in_init(&inbound->in, inbound->memory, request->mailbox_ring);
    shm->inbound[shm->inbound_count++] = inbound;
    atomic_store_explicit(&inbound->memory->accepted, 1, memory_order_release);
    return;

refused:
    if (reason == NULL) {
        regx_count_malformed(shm->config.counters);
    } else {
        const bool valid = regx_shm_address_is_valid(&request->address);
        const regx_shm_neighbour_t peer = valid ? regx_shm_neighbour(shm, &request->address)
                                                : (regx_shm_neighbour_t){.main = NULL};

        events->broken(events->context, request->sender, valid && regx_vm_gone(&peer.vm), reason);
    }
    free(inbound);
}

void regx_shm_drop_inbound(regx_shm_t *shm, regx_shm_inbound_t *inbound)
{
    regx_shared_copy_forget(shm, inbound);
    atomic_store_explicit(&inbound->memory->left, 1, memory_order_release);
    regx_file_close(&inbound->cells);
    unmap_boxes(shm, inbound);
    free(inbound);
}

/* Accepts each request that is ready. One that comes meanwhile is counted after it is ready, so the next call sees
 * it. */
int regx_shm_accept_neighbours(regx_shm_t *shm)
{
    int events = 0;

    shm->requests_seen = atomic_load_explicit(&shm->queue->requests, memory_order_acquire);
    for (int i = 0; i < REGX_CONNECT_QUEUE_ENTRIES; i++) {
        _Atomic uint64_t *state = &shm->queue->entries[i].state;

        if (atomic_load_explicit(state, memory_order_acquire) == REGX_REQUEST_READY) {
            const regx_connect_request_t request = shm->queue->entries[i].request;

            atomic_store_explicit(state, REGX_REQUEST_FREE, memory_order_release);
            accept_neighbour(shm, &request);
            events++;
        }
    }
    return events;
}
