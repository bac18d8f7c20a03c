/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Names for objects that peers refer to: a number and a generation that changes with each use of
 * the number, so that an old name finds nothing. The caller holds the engine's lock.
 */
#ifndef REGX_RENDEZVOUS_TABLE_H
#define REGX_RENDEZVOUS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/control.h"

typedef struct regx_table {
    struct regx_table_entry {
        void *object; /* NULL: free */
        uint32_t generation;
        uint32_t next_free;
    } * entries;
    uint32_t count;
    uint32_t free; /* UINT32_MAX: none */
} regx_table_t;

void regx_table_init(regx_table_t *table);
void regx_table_fini(regx_table_t *table);
/* false: no memory. */
bool regx_table_add(regx_table_t *table, void *object, regx_name_t *name);
void regx_table_remove(regx_table_t *table, regx_name_t name);
/* NULL: nothing has that name now. */
void *regx_table_find(const regx_table_t *table, regx_name_t name);
/* What has that number now, whichever the generation. */
void *regx_table_at(const regx_table_t *table, uint32_t id);

#endif
