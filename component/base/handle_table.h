/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A table of handles: what a peer calls an object of this process. A handle is an index and a
 * generation. The generation changes each time the index is used again, so that an old handle
 * finds nothing.
 *
 * Not thread safe: the caller holds a lock over all calls.
 */
#ifndef REGX_BASE_HANDLE_TABLE_H
#define REGX_BASE_HANDLE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct regx_handle {
    uint32_t id; /* the index */
    uint32_t generation;
} regx_handle_t;

typedef struct regx_handle_table {
    struct regx_handle_entry {
        void *object; /* NULL: free */
        uint32_t generation;
        uint32_t next_free;
    } * entries;
    uint32_t count; /* of entries */
    uint32_t free;  /* UINT32_MAX: none */
} regx_handle_table_t;

void regx_handle_table_init(regx_handle_table_t *table);
/* Frees the table, not the objects. */
void regx_handle_table_fini(regx_handle_table_t *table);
/* Gives `object`, which is not NULL, a handle. false: no memory. */
bool regx_handle_table_add(regx_handle_table_t *table, void *object, regx_handle_t *handle);
/* `handle` must be one that add gave and that was not removed since. */
void regx_handle_table_remove(regx_handle_table_t *table, regx_handle_t handle);
/* Any handle may be asked for, as it came from a peer. NULL: no object has it now. */
void *regx_handle_table_find(const regx_handle_table_t *table, regx_handle_t handle);
/* The object at that index, whatever its generation. NULL: none. */
void *regx_handle_table_at(const regx_handle_table_t *table, uint32_t id);

#endif
