/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows: what peers may write on wires where the receiver copies (tcp).
 *
 * A window is a range of this process's memory that was registered. Its key travels to the peer
 * and comes back in front of the data; a write is copied only if the key names a window that is
 * open now, with the access it needs, and lies wholly inside it. Closing a window makes its key
 * worthless for ever: the slot's generation goes up, and a slot is used four thousand million
 * times before a generation comes back.
 *
 * The key is 24 bytes, all little-endian:
 *
 *     0  u64  address of the first byte in the owner's address space
 *     8  u64  length in bytes
 *    16  u32  number of the slot
 *    20  u32  generation of the slot
 *
 * On one node the address in the key is also what process_vm_* needs.
 *
 * Any thread may call any of this; the table's lock is a leaf and the one lock under which up to
 * a frame is copied, so that closing waits for the copy under way. Adding and removing cost some
 * ten nanoseconds and allocate nothing once the table has grown to what is in use at once.
 */
#ifndef REGX_TRANSPORT_RKEY_TABLE_H
#define REGX_TRANSPORT_RKEY_TABLE_H

#include "base/lock.h"
#include "transport/transport.h"

#define REGX_WINDOWS_FIRST 64  /* slots of a table at its first use */
#define REGX_RKEY_TABLE_MAX 65536 /* rkeys open at once */

typedef struct regx_window regx_window_t;

typedef struct regx_windows {
    regx_lock_t lock;
    regx_window_t *slots; /* grown by doubling; NULL until the first window */
    uint32_t count;       /* of slots */
    uint32_t free;        /* number of the first free slot; `count` if there is none */
} regx_rkey_table_t;

void regx_rkey_table_init(regx_rkey_table_t *rkeys, bool threads);
/* Frees the table. Windows still open are closed by it. */
void regx_rkey_table_fini(regx_rkey_table_t *rkeys);

/* Opens a window on [base, base + length) and gives its key. `handle` is for remove.
 * REGX_OK; REGX_NO_MEMORY: REGX_RKEY_TABLE_MAX rkeys are open, or memory ran out. */
regx_status_t regx_rkey_table_add(regx_rkey_table_t *rkeys, void *base, size_t length, unsigned access,
                               regx_key_t *key, void **handle);
/* Closes the window. When it returns, nothing lands in it any more. */
void regx_rkey_table_remove(regx_rkey_table_t *rkeys, void *handle);

/* Copies `length` bytes of `data` to `offset` in the window that the key names.
 * REGX_OK; REGX_INVALID: no such window is open, it is not open for REGX_ACCESS_REMOTE_WRITE, or
 * the range is not inside it; nothing was written. */
regx_status_t regx_rkey_table_write(regx_rkey_table_t *rkeys, const regx_key_t *key, uint64_t offset,
                                 const void *data, size_t length);

/* What the key says about itself; the peer who sent it vouches for it, nobody else. */
uint64_t regx_key_address(const regx_key_t *key);
uint64_t regx_key_length(const regx_key_t *key);

#endif
