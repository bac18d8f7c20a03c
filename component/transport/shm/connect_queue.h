/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The queue: the start of a process's main segment, where others on the node introduce themselves
 * before they post their first frame.
 *
 * Any number of processes may knock at once; each claims a free entry, fills it and rings. The
 * owner looks at one word per poll. A process that dies while it fills an entry costs that entry.
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

typedef struct regx_connect_request { /* who knocks, and where its frames and its pool will be */
    uint64_t sender;
    regx_vm_cookie_t cookie;       /* its own: what it names must show this when mapped */
    uint64_t mailbox_offset;       /* in the segment of mailboxes */
    uint32_t mailbox_ring;         /* bytes of its payload */
    regx_segment_name_t mailboxes; /* … of the one who knocks */
    regx_segment_name_t pool;      /* its main segment */
    uint64_t pool_offset;
    uint64_t pool_size;
} regx_connect_request_t;

typedef struct regx_connect_queue {
    _Alignas(64) _Atomic uint64_t requests; /* how often */
    _Alignas(64) regx_vm_cookie_t cookie;
    _Atomic uint32_t closed; /* the owner reads nothing any more */
    struct {
        _Alignas(64) _Atomic uint32_t state;
        regx_connect_request_t hello;
    } entries[REGX_CONNECT_QUEUE_ENTRIES];
} regx_connect_queue_t;

/* REGX_AGAIN: no entry is free now. */
regx_status_t regx_connect_queue_request(regx_connect_queue_t *queue, const regx_connect_request_t *hello);

/* Whether somebody has requests since. */
static inline bool regx_connect_queue_has_request(const regx_connect_queue_t *queue, uint64_t seen)
{
    return atomic_load_explicit(&queue->requests, memory_order_acquire) != seen;
}

/* Takes one hello. `seen` is the owner's count of rings that it has handled. REGX_AGAIN: none. */
regx_status_t regx_connect_queue_accept(regx_connect_queue_t *queue, uint64_t *seen, regx_connect_request_t *hello);

#endif
