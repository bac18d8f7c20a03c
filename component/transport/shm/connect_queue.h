/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The connect queue: the start of a process's main segment, where its neighbours on the node ask
 * to be connected before they post their first frame.
 *
 * Any number of processes may ask at once. Each claims a free entry, fills it, and then counts up
 * `requests`, the one word that the owner reads per poll. A process that dies while it fills an
 * entry costs that entry.
 */
#ifndef REGX_TRANSPORT_CONNECT_QUEUE_H
#define REGX_TRANSPORT_CONNECT_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/shm/segment.h"
#include "transport/shm/vm.h"

#define REGX_CONNECT_QUEUE_ENTRIES 32

/* Who asks, and where its frames and its pool will be. */
typedef struct regx_connect_request {
    uint64_t sender;
    regx_vm_cookie_t cookie;       /* the sender's: its memory must show this when mapped */
    uint64_t cookie_address;       /* in the sender */
    int32_t pid;                   /* the sender's */
    uint64_t mailbox_offset;       /* in the segment of mailboxes */
    uint32_t mailbox_ring;         /* bytes of its payload */
    regx_segment_name_t mailboxes; /* the sender's */
    regx_segment_name_t pool;      /* the sender's main segment */
    uint64_t pool_offset;
    uint64_t pool_size;
} regx_connect_request_t;

typedef struct regx_connect_queue {
    _Alignas(64) _Atomic uint64_t requests; /* made until now */
    _Alignas(64) regx_vm_cookie_t cookie;
    _Atomic uint32_t closed; /* the owner reads nothing any more */
    struct {
        _Alignas(64) _Atomic uint32_t state;
        regx_connect_request_t request;
    } entries[REGX_CONNECT_QUEUE_ENTRIES];
} regx_connect_queue_t;

/* Asks the owner of the queue. Any process that maps it. REGX_AGAIN: no entry is free now. */
regx_status_t regx_connect_queue_request(regx_connect_queue_t *queue,
                                         const regx_connect_request_t *request);

/* Whether there are more requests than the owner has accepted. Owner only. */
static inline bool regx_connect_queue_has_request(const regx_connect_queue_t *queue,
                                                  uint64_t accepted)
{
    return atomic_load_explicit(&queue->requests, memory_order_acquire) != accepted;
}

/* Takes one request and counts it in `accepted`. Owner only. REGX_AGAIN: none. */
regx_status_t regx_connect_queue_accept(regx_connect_queue_t *queue, uint64_t *accepted,
                                        regx_connect_request_t *request);

#endif
