/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The rkey table: which memory of this process peers may write, on wires where no device checks it
 * and the receiver copies (tcp).
 *
 * Registering memory gives a key. The key travels to the peer and comes back in front of the data.
 * The data is copied only if the key is one that was given and not taken back since, allows the
 * write, and names a region that holds all of it. A key that was taken back is worthless for good:
 * the index is used four thousand million times before its generation comes back.
 *
 * The key is 24 bytes, all little-endian:
 *
 *     0  u64  address of the first byte in the owner's address space
 *     8  u64  length in bytes
 *    16  u32  handle: index
 *    20  u32  handle: generation
 *
 * On one node the address in the key is also what process_vm_writev needs.
 *
 * Any thread may call any of this. The table's lock is a leaf. Data is written under it, up to 256
 * KiB at once, so that taking a key back waits for the copy under way.
 */
#ifndef REGX_TRANSPORT_RKEY_TABLE_H
#define REGX_TRANSPORT_RKEY_TABLE_H

#include "base/handle_table.h"
#include "base/lock.h"
#include "transport/transport.h"

#define REGX_RKEY_TABLE_MAX 65536u /* keys given and not taken back */

typedef struct regx_rkey_table {
    regx_lock_t lock;
    regx_handle_table_t regions;
    uint32_t count; /* of regions */
} regx_rkey_table_t;

void regx_rkey_table_init(regx_rkey_table_t *table, bool threads);
/* Takes back all keys and frees the table. */
void regx_rkey_table_fini(regx_rkey_table_t *table);

/* Gives a key for [base, base + length). `handle` is for remove.
 * REGX_OK; REGX_NO_MEMORY: REGX_RKEY_TABLE_MAX keys are given, or memory ran out. */
regx_status_t regx_rkey_table_add(regx_rkey_table_t *table, void *base, size_t length,
                                  unsigned access, regx_key_t *key, void **handle);
/* Takes the key back. When it returns, nothing is written by it any more. */
void regx_rkey_table_remove(regx_rkey_table_t *table, void *handle);

/* Writes up to `length` bytes to `to`, which the key's owner has granted. */
typedef void (*regx_rkey_fill_t)(void *context, void *to, size_t length);

/* Has `fill` write `length` bytes at `offset` in the region that the key names. It is called under
 * the table's lock, once if the answer is REGX_OK, and never if it is REGX_INVALID: the key is not
 * valid, not for REGX_ACCESS_REMOTE_WRITE, or the range is not inside the region. */
regx_status_t regx_rkey_table_fill(regx_rkey_table_t *table, const regx_key_t *key, uint64_t offset,
                                   size_t length, regx_rkey_fill_t fill, void *context);

/* Fills a key that no table has: over shared memory the kernel can read by it, and nobody
 * writes. */
void regx_key_expose(const void *base, size_t length, regx_key_t *key);

/* Changes the handle in a key that no table has. */
void regx_key_mark(regx_key_t *key, regx_handle_t handle);
regx_handle_t regx_key_handle(const regx_key_t *key);

/* What the key holds. It is as trustworthy as the peer that sent it. */
uint64_t regx_key_address(const regx_key_t *key);
uint64_t regx_key_length(const regx_key_t *key);

#endif
