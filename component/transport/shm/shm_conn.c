/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/shm_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static size_t whole_pages(size_t length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (length + page - 1) / page * page;
}

/* A smaller pool is better than none: halves what is asked for, down to what is of use. */
static regx_status_t open_main(regx_shm_t *node)
{
    for (size_t size = node->config.pool_size; size >= node->config.pool_least; size /= 2) {
        size = whole_pages(size);
        if (regx_segment_domain_open(&node->domain, node->config.tls, node->pool_offset + size,
                                     &node->main, node->config.counters) == REGX_OK) {
            node->pool_size = size;
            return REGX_OK;
        }
    }
    return REGX_UNREACHABLE;
}

regx_status_t regx_shm_open(const regx_transport_config_t *config, regx_shm_t **out)
{
    regx_shm_t *node = calloc(1, sizeof(*node));
    regx_vm_cookie_t cookie;

    if (node == NULL) {
        return REGX_NO_MEMORY;
    }
    node->config = *config;
    node->pool_offset = whole_pages(sizeof(regx_connect_queue_t));
    if (getrandom(&cookie, sizeof(cookie), 0) != sizeof(cookie) || open_main(node) != REGX_OK) {
        free(node);
        return REGX_UNREACHABLE;
    }
    if (regx_segment_pack(&node->domain, &node->main, &node->main_name) != REGX_OK) {
        regx_segment_free(&node->main);
        regx_segment_domain_close(&node->domain);
        free(node);
        return REGX_UNREACHABLE;
    }
    node->queue = (regx_connect_queue_t *)regx_segment_base(&node->main);
    node->queue->cookie = cookie;
    regx_lock_init(&node->lock, config->threads);
    *out = node;
    return REGX_OK;
}

static void forget_inbound(regx_shm_inbound_t *inbound)
{
    atomic_store_explicit(&inbound->memory->left, 1, memory_order_release);
    if (inbound->pool != NULL) {
        regx_segment_unmap(&inbound->main);
    }
    regx_segment_unmap(&inbound->boxes);
    free(inbound);
}

bool regx_shm_reachable(regx_shm_conn_t *conn)
{
    return conn->queue != NULL &&
           atomic_load_explicit(&conn->queue->closed, memory_order_acquire) == 0 &&
           (kill(conn->vm.pid, 0) == 0 || errno != ESRCH);
}

/* Ends those parting connections whose peer has read everything, or reads nothing any more. */
static void reap(regx_shm_t *node)
{
    for (regx_shm_conn_t **at = &node->parting; *at != NULL;) {
        regx_shm_conn_t *conn = *at;

        if (!conn->said_goodbye) {
            conn->said_goodbye = regx_mailbox_post(&conn->out, REGX_SHM_TAG_DISCONNECT, NULL, 0, NULL,
                                                   NULL, 0) == REGX_OK;
        }
        if (atomic_load_explicit(&conn->out.memory->left, memory_order_acquire) == 0 &&
            regx_shm_reachable(conn)) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        atomic_store(&conn->out.memory->left, 1);
        regx_shm_box_give(node, conn->boxes, conn->box);
        regx_segment_unmap(&conn->main);
        regx_lock_fini(&conn->lock);
        free(conn);
    }
}

/* A send that has completed must arrive, though this process ends MPI first (a spawned child does:
 * its finalize does not wait for its parent's). So the end waits until each neighbour has read its
 * mailbox, has closed its queue, or is dead. */
static void wait_parting(regx_shm_t *node)
{
    const struct timespec pause = {.tv_nsec = 50000};

    for (reap(node); node->parting != NULL; reap(node)) {
        nanosleep(&pause, NULL);
    }
}

void regx_shm_close(regx_shm_t *node)
{
    atomic_store_explicit(&node->queue->closed, 1, memory_order_release);
    for (size_t i = 0; i < node->inbound_count; i++) {
        forget_inbound(node->inbound[i]);
    }
    free(node->inbound);
    wait_parting(node);
    while (node->boxes != NULL) {
        regx_shm_boxes_t *boxes = node->boxes;

        node->boxes = boxes->next;
        regx_segment_free(&boxes->segment);
        free(boxes);
    }
    regx_segment_free(&node->main);
    regx_segment_domain_close(&node->domain);
    regx_lock_fini(&node->lock);
    free(node);
}

void *regx_shm_pool(regx_shm_t *node, size_t *size)
{
    *size = node->pool_size;
    return regx_segment_base(&node->main) + node->pool_offset;
}

const char *regx_shm_domain(const regx_shm_t *node)
{
    return node->domain.name;
}

size_t regx_shm_address(regx_shm_t *node, void *buffer, size_t capacity)
{
    const regx_shm_address_t address = {.main = node->main_name,
                                         .pool_offset = node->pool_offset,
                                         .pool_size = node->pool_size,
                                         .cookie_address = (uintptr_t)&node->queue->cookie,
                                         .cookie = node->queue->cookie,
                                         .pid = getpid()};

    if (capacity < sizeof(address)) {
        return 0;
    }
    memcpy(buffer, &address, sizeof(address));
    return sizeof(address);
}

regx_status_t regx_shm_connect(regx_shm_t *node, uint64_t peer, const void *address,
                                size_t length, regx_shm_conn_t **out)
{
    regx_shm_conn_t *conn;
    regx_shm_address_t a;

    if (length != sizeof(a)) {
        return REGX_INVALID;
    }
    memcpy(&a, address, sizeof(a));
    if (a.main.length < sizeof(regx_connect_queue_t) || a.pool_offset < sizeof(regx_connect_queue_t) ||
        a.pool_offset > a.main.length || a.pool_size > a.main.length - a.pool_offset ||
        a.pid <= 0 || a.pid > INT32_MAX) {
        return REGX_INVALID;
    }
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    conn->node = node;
    conn->peer = peer;
    conn->address = a;
    conn->vm = (regx_vm_peer_t){
        .pid = (int32_t)a.pid, .cookie_address = a.cookie_address, .cookie = a.cookie};
    regx_lock_init(&conn->lock, node->config.threads);
    regx_lock(&node->lock);
    node->neighbours++;
    regx_unlock(&node->lock);
    *out = conn;
    return REGX_OK;
}

/* Takes this connection's operations off the lists and completes them in error. */
static void fail_pending(regx_shm_conn_t *conn)
{
    regx_shm_t *node = conn->node;

    for (regx_lend_t **at = &node->lends; *at != NULL;) {
        regx_lend_t *lend = *at;

        if (lend->scratch[REGX_SCRATCH_CONN] == conn) {
            *at = lend->scratch[REGX_SCRATCH_NEXT];
            atomic_fetch_sub(&node->lend_count, 1);
            lend->done(lend, REGX_FAILED);
        } else {
            at = (regx_lend_t **)&lend->scratch[REGX_SCRATCH_NEXT];
        }
    }
    regx_shm_copies_t ended = {0};

    regx_lock(&node->lock);
    regx_shm_copies_t all = node->copies;
    node->copies.first = NULL;
    while (all.first != NULL) {
        void **copy = regx_shm_take_copy(&all);

        regx_shm_append_copy(copy[REGX_SCRATCH_CONN] == conn ? &ended : &node->copies, copy);
    }
    regx_unlock(&node->lock);
    while (ended.first != NULL) {
        atomic_fetch_sub(&node->copy_count, 1);
        regx_shm_end_copy(regx_shm_take_copy(&ended), REGX_FAILED);
    }
}

void regx_shm_disconnect(regx_shm_conn_t *conn)
{
    regx_lock(&conn->node->lock);
    conn->node->neighbours--;
    regx_unlock(&conn->node->lock);
    fail_pending(conn);
    if (conn->state == REGX_SHM_ATTACHED) {
        conn->next = conn->node->parting;
        conn->node->parting = conn;
        reap(conn->node);
        return;
    }
    if (conn->out.memory != NULL) {
        atomic_store(&conn->out.memory->left, 1); /* nobody was told of it */
        regx_shm_box_give(conn->node, conn->boxes, conn->box);
    }
    if (conn->queue != NULL) {
        regx_segment_unmap(&conn->main);
    }
    regx_lock_fini(&conn->lock);
    free(conn);
}

/* A mailbox that was given back may be taken once its reader has left it. */
static bool box_free(const regx_shm_boxes_t *boxes, int box)
{
    return !boxes->taken[box] &&
           atomic_load_explicit(&regx_shm_box(boxes, box)->left, memory_order_acquire) != 0;
}

/* What the mailboxes of all processes of this machine take with such rings, if all talk. */
static size_t all_boxes(const regx_shm_t *node, uint32_t ring)
{
    const size_t segments = (node->neighbours + REGX_SHM_BOXES - 1) / REGX_SHM_BOXES;

    return (node->neighbours + 1) * segments * REGX_SHM_BOXES * regx_mailbox_size(ring);
}

/* The longest that leaves enough shared memory for others, since UCX takes a segment's at once. */
static uint32_t choose_ring(const regx_shm_t *node)
{
    const size_t room = regx_segment_room(&node->domain);
    uint32_t ring = REGX_MAILBOX_PAYLOAD_MOST;

    if (node->neighbours > REGX_SHM_FEW) {
        ring /= 2;
    }
    while (ring > REGX_MAILBOX_PAYLOAD_LEAST && all_boxes(node, ring) > room / 2) {
        ring /= 2;
    }
    return ring;
}

static regx_shm_boxes_t *more_boxes(regx_shm_t *node)
{
    regx_shm_boxes_t *boxes = calloc(1, sizeof(*boxes));

    if (boxes == NULL) {
        return NULL;
    }
    boxes->ring = choose_ring(node);
    if (regx_segment_alloc(&node->domain, REGX_SHM_BOXES * regx_mailbox_size(boxes->ring),
                           &boxes->segment) != REGX_OK) {
        free(boxes);
        return NULL;
    }
    if (regx_segment_pack(&node->domain, &boxes->segment, &boxes->name) != REGX_OK) {
        regx_segment_free(&boxes->segment);
        free(boxes);
        return NULL;
    }
    for (int i = 0; i < REGX_SHM_BOXES; i++) {
        atomic_store(&regx_shm_box(boxes, i)->left, 1);
    }
    boxes->next = node->boxes;
    node->boxes = boxes;
    return boxes;
}

regx_mailbox_memory_t *regx_shm_box_take(regx_shm_t *node, regx_shm_boxes_t **out, int *box)
{
    regx_mailbox_memory_t *memory = NULL;

    regx_lock(&node->lock);
    for (regx_shm_boxes_t *boxes = node->boxes;; boxes = boxes->next) {
        if (boxes == NULL && (boxes = more_boxes(node)) == NULL) {
            break;
        }
        for (int i = 0; i < REGX_SHM_BOXES && memory == NULL; i++) {
            if (box_free(boxes, i)) {
                boxes->taken[i] = true;
                *out = boxes;
                *box = i;
                memory = regx_shm_box(boxes, i);
                memset(memory, 0, sizeof(*memory));
                memory->owner = node->queue->cookie;
            }
        }
        if (memory != NULL) {
            break;
        }
    }
    regx_unlock(&node->lock);
    return memory;
}

void regx_shm_box_give(regx_shm_t *node, regx_shm_boxes_t *boxes, int box)
{
    regx_lock(&node->lock);
    boxes->taken[box] = false;
    regx_unlock(&node->lock);
}
