/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which of the transports that two processes have open carry their messages. Plain C, without Open
 * MPI.
 *
 * Each process decides by itself, from what both have published. Both must come to the same result:
 * Open MPI answers a large message over the module on which it arrived.
 */
#ifndef REGX_BTL_PAIRING_H
#define REGX_BTL_PAIRING_H

#include <stdbool.h>
#include <stddef.h>

#define REGX_PAIRING_MAX 128 /* transports of one process */

/* One open transport of a process. */
typedef struct regx_candidate {
    const char *kind; /* the transport's name, which need not end in a zero */
    size_t kind_length;
    bool for_node; /* of this kind is preferred on a node, of others between nodes */
} regx_candidate_t;

typedef struct regx_pairing {
    const regx_candidate_t *ours, *theirs; /* in the order in which they are published; those of
                                        one kind stand together; of theirs for_node is not read */
    unsigned our_count, their_count;       /* at most REGX_PAIRING_MAX */
    bool same_node;
    /* Whether one of ours leads to one of theirs, which is of the same kind. The other process gets
     * the same answer about the two. */
    bool (*reaches)(void *context, unsigned ours, unsigned theirs);
    void *context;
} regx_pairing_t;

#define REGX_PAIRING_NONE (-1)   /* it leads to none of theirs */
#define REGX_PAIRING_OTHERS (-2) /* a transport of another kind carries the messages */

/* For each of ours, which of theirs it talks to, or REGX_PAIRING_*. All that talk are of one kind:
 * on one node of the kind that is for the node, else of the other, if there are some. Within a kind
 * they are paired, as many as can be: those at the same place in both lists first, then by how far
 * apart their places are. */
void regx_pair(const regx_pairing_t *pairing, int talks_to[REGX_PAIRING_MAX]);

#endif
