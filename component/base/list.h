/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A circular doubly linked list whose links are part of what is listed. The head is a link, too.
 * A link that is in no list is zero, as in memory that was just cleared; a head is made.
 * It allocates nothing and takes no lock: the caller serialises. A thread that leaves a function of this file
 * by a jump may lose the link that it was at, but no other.
 */
#ifndef REGX_BASE_LIST_H
#define REGX_BASE_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct regx_link {
    struct regx_link *next, *previous;
} regx_link_t;

/* Makes the head of an empty list, as {&head, &head} does where one is declared. */
static inline void regx_list_init(regx_link_t *head)
{
    head->next = head;
    head->previous = head;
}

static inline bool regx_list_empty(const regx_link_t *head)
{
    return head->next == head;
}

/* The link must be in no list. */
static inline void regx_list_append(regx_link_t *head, regx_link_t *link)
{
    link->previous = head->previous;
    link->next = head;
    head->previous->next = link;
    head->previous = link;
}

/* Moves all of `from` to the end of `to`, in order. */
static inline void regx_list_move(regx_link_t *to, regx_link_t *from)
{
    if (!regx_list_empty(from)) {
        from->next->previous = to->previous;
        from->previous->next = to;
        to->previous->next = from->next;
        to->previous = from->previous;
        regx_list_init(from);
    }
}

/* Whether a link is in some list. */
static inline bool regx_list_has(const regx_link_t *link)
{
    return link->next != NULL;
}

/* Takes a link out of its list. A link that is in no list stays so. */
static inline void regx_list_remove(regx_link_t *link)
{
    if (regx_list_has(link)) {
        link->next->previous = link->previous;
        atomic_signal_fence(memory_order_seq_cst); /* what is appended from here on is reached */
        link->previous->next = link->next;
        *link = (regx_link_t){.next = NULL};
    }
}

/* Moves a link to the end of that list, out of the one that it is in. */
static inline void regx_list_shift(regx_link_t *head, regx_link_t *link)
{
    regx_list_remove(link);
    regx_list_append(head, link);
}

/* Sees to it that a link is in that list, or another one (in), or that it is in none (not in). */
static inline void regx_list_set(regx_link_t *head, regx_link_t *link, bool in)
{
    if (in && !regx_list_has(link)) {
        regx_list_append(head, link);
    } else if (!in) {
        regx_list_remove(link);
    }
}

#endif
