/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The arbiter: connections that wait to be served by progress, first come first served. Each has an
 * entry of its own, so waiting takes no memory. One thread at a time.
 */
#ifndef REGX_TRANSPORT_ARBITER_H
#define REGX_TRANSPORT_ARBITER_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct regx_arbiter_entry {
    struct regx_arbiter_entry *next;
    bool waits;
} regx_arbiter_entry_t;

typedef struct regx_arbiter {
    regx_arbiter_entry_t *first; /* NULL: nobody waits */
    regx_arbiter_entry_t *last;  /* if there is a first */
} regx_arbiter_t;

/* Puts an entry behind all others, unless it waits already. */
static inline void regx_arbiter_add(regx_arbiter_t *arbiter, regx_arbiter_entry_t *entry)
{
    if (entry->waits) {
        return;
    }
    *entry = (regx_arbiter_entry_t){.waits = true};
    if (arbiter->first == NULL) {
        arbiter->first = entry;
    } else {
        arbiter->last->next = entry;
    }
    arbiter->last = entry;
}

/* Takes the first entry, which there must be. It waits no more. */
static inline regx_arbiter_entry_t *regx_arbiter_take(regx_arbiter_t *arbiter)
{
    regx_arbiter_entry_t *entry = arbiter->first;

    assert(entry != NULL && entry->waits);
    arbiter->first = entry->next;
    entry->waits = false;
    return entry;
}

/* Takes an entry out, if it waits. */
static inline void regx_arbiter_remove(regx_arbiter_t *arbiter, regx_arbiter_entry_t *entry)
{
    regx_arbiter_entry_t **at = &arbiter->first, *before = NULL;

    if (!entry->waits) {
        return;
    }
    while (*at != entry) {
        before = *at;
        at = &before->next;
    }
    *at = entry->next;
    if (arbiter->last == entry) {
        arbiter->last = before;
    }
    entry->waits = false;
}

#endif
