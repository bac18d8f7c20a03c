/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory that peers may reach by one-sided operations, and its names.
 *
 * Offering memory gives it a name of REGX_WINDOW_NAME_SIZE bytes. The name travels to the peers,
 * and comes back in their requests as its handle. A request is done only if the handle is of a
 * window that is offered now, and all its bytes lie inside. All numbers are little-endian:
 *
 *      0 u8  version (2)          1 u8  254, which no rendezvous' handle has there
 *      2 u16 1: a device reaches the memory by the key, which is zero otherwise; 2: and changes it
 *            in order with the processor's atomic instructions
 *      4 u32 handle: index        8 u32 handle: generation
 *     12 u32 zero                16 u64 address of the first byte
 *     24 u64 length in bytes     32 u64 where the window begins in the key's region, in bytes
 *     40 24B the transport's key
 *
 * Not thread safe: the caller holds a lock over all calls on a table.
 */
#ifndef REGX_ONESIDED_WINDOW_H
#define REGX_ONESIDED_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/handle_table.h"
#include "base/status.h"
#include "registration/registration.h"

#define REGX_WINDOW_NAME_SIZE 64
#define REGX_WINDOWS_MAX 65536u /* offered at once */

/* One offered piece of memory. Owned by the table. */
typedef struct regx_window {
    char *base;
    size_t length;
    regx_handle_t handle;
    bool registered; /* with a device: device.h */
    regx_lasting_t use;
} regx_window_t;

typedef struct regx_windows {
    regx_handle_table_t table;
    uint32_t count;
} regx_windows_t;

/* What a name holds. It is as trustworthy as the peer that gave it. */
typedef struct regx_window_name {
    regx_handle_t handle;
    uint64_t base;
    uint64_t length;
    bool has_key, has_atomics;
    uint64_t offset; /* in the key's region */
    regx_key_t key;
} regx_window_name_t;

void regx_windows_init(regx_windows_t *windows);
/* Withdraws all. None is registered any more. */
void regx_windows_fini(regx_windows_t *windows);

/* The next one that is offered, from the one of that index on. NULL: there are no more. */
regx_window_t *regx_windows_next(const regx_windows_t *windows, uint32_t *index);

/* REGX_OK; REGX_NO_MEMORY: no memory, or REGX_WINDOWS_MAX are offered. */
regx_status_t regx_window_offer(regx_windows_t *windows, void *base, size_t length,
                                regx_window_t **window);
void regx_window_withdraw(regx_windows_t *windows, regx_window_t *window);

/* The memory that a peer asks for. NULL: it is not all inside a window that is offered now. */
char *regx_window_memory(const regx_windows_t *windows, regx_handle_t handle, uint64_t address,
                         uint64_t length);

void regx_window_pack(const regx_window_t *window, uint8_t bytes[REGX_WINDOW_NAME_SIZE]);
/* Whether a handle of Open MPI's is the name of a window, and not a rendezvous'. */
bool regx_window_is(const uint8_t bytes[REGX_WINDOW_NAME_SIZE]);
/* Of bytes that regx_window_is. */
void regx_window_unpack(const uint8_t bytes[REGX_WINDOW_NAME_SIZE], regx_window_name_t *name);

/* Whether the bytes lie inside a range of `all` bytes at `base`. */
static inline bool regx_window_holds(uint64_t base, uint64_t all, uint64_t address, uint64_t length)
{
    return address >= base && length <= all && address - base <= all - length;
}

#endif
