/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The door: the start of a process's main segment, where others on the node introduce themselves
 * before they post their first frame.
 *
 * Any number of processes may knock at once; each claims a free entry, fills it and rings. The
 * owner looks at one word per poll. A process that dies while it fills an entry costs that entry.
 */
#ifndef REGX_UCT_DOOR_H
#define REGX_UCT_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "transport/uct/segment.h"
#include "transport/uct/vm.h"

#define REGX_DOOR_ENTRIES 32

typedef struct regx_hello { /* who knocks, and where its frames and its pool will be */
    uint64_t sender;
    regx_vm_cookie_t cookie;       /* its own: what it names must show this when mapped */
    uint64_t mailbox_offset;       /* in the segment of mailboxes */
    uint32_t mailbox_ring;         /* bytes of its payload */
    regx_segment_name_t mailboxes; /* … of the one who knocks */
    regx_segment_name_t pool;      /* its main segment */
    uint64_t pool_offset;
    uint64_t pool_size;
} regx_hello_t;

typedef struct regx_door {
    _Alignas(64) _Atomic uint64_t rung; /* how often */
    _Alignas(64) regx_vm_cookie_t cookie;
    _Atomic uint32_t closed; /* the owner reads nothing any more */
    struct {
        _Alignas(64) _Atomic uint32_t state;
        regx_hello_t hello;
    } entries[REGX_DOOR_ENTRIES];
} regx_door_t;

/* REGX_AGAIN: no entry is free now. */
regx_status_t regx_door_knock(regx_door_t *door, const regx_hello_t *hello);

/* Whether somebody has rung since. */
static inline bool regx_door_has_rung(const regx_door_t *door, uint64_t seen)
{
    return atomic_load_explicit(&door->rung, memory_order_acquire) != seen;
}

/* Takes one hello. `seen` is the owner's count of rings that it has handled. REGX_AGAIN: none. */
regx_status_t regx_door_answer(regx_door_t *door, uint64_t *seen, regx_hello_t *hello);

#endif
