/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between processes on one machine: mailboxes and the peer's pool in shared memory,
 * and the kernel's copy (vm.h) into and out of memory that is not shared. transport.h says what
 * its operations do.
 *
 * Each process owns a main segment, which holds its connect queue, its claim cells and its pool,
 * and segments of mailboxes, which are allocated as peers are first written to. The mailbox from A
 * to B lies in A's memory. It takes some 273 KiB; 145 with more than 32 neighbours; 81 where more
 * would be over half of the shared memory that is free. Four are allocated at once, and none for a
 * pair of processes that do not talk.
 *
 * A connection is refused only before its first frame was accepted: its memory cannot be mapped, or
 * there is none for a mailbox. The reason is tallied, and the connection is broken.
 *
 * Closing waits until each neighbour has read what was sent to it, has closed, or is dead.
 */
#ifndef REGX_TRANSPORT_SHM_H
#define REGX_TRANSPORT_SHM_H

#include "transport/transport.h"

#define REGX_SHM_MAX_FRAME 16448u /* an eager message of 16 KiB with its headers */
#define REGX_SHM_MAX_ZCOPY 65536u

extern const regx_transport_ops_t regx_shm_ops;
extern const regx_catalog_entry_t regx_shm_entry;

#endif
