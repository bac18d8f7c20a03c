/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory of the mailboxes that this process posts to: segments of four, allocated as they are
 * needed, used again when their readers have left them, and freed when the process closes.
 *
 * All calls are made with the owner's lock held.
 */
#ifndef REGX_TRANSPORT_BOXES_H
#define REGX_TRANSPORT_BOXES_H

#include "transport/shm/mailbox.h"
#include "transport/shm/segment.h"

#define REGX_BOXES_SEGMENT 4 /* mailboxes per segment */
#define REGX_BOXES_FEW 32u   /* neighbours for whom there is memory for the longest rings */

typedef struct regx_boxes_segment regx_boxes_segment_t;

typedef struct regx_shm_boxes {
    regx_boxes_segment_t *first;
    unsigned neighbours; /* connections there are, set by the owner: how many boxes there may be */
} regx_shm_boxes_t;

/* A box that was taken. */
typedef struct regx_shm_box {
    regx_mailbox_memory_t *memory; /* NULL: none was taken */
    regx_boxes_segment_t *segment;
    unsigned number; /* in the segment */
} regx_shm_box_t;

/* Takes a box, zeroed but for the owner's cookie. REGX_NO_MEMORY: none is to be had. */
regx_status_t regx_boxes_take(regx_shm_boxes_t *boxes, regx_segment_domain_t *domain,
                              const regx_vm_cookie_t *owner, regx_shm_box_t *box);
/* Gives it back. It is used again when its reader has left it. */
void regx_boxes_give(const regx_shm_box_t *box);
/* Frees all memory; nobody reads it any more. */
void regx_boxes_free(regx_shm_boxes_t *boxes);

/* For the one who is to read it: the segment, where in it the box lies, and its ring's bytes. */
const regx_segment_name_t *regx_box_segment(const regx_shm_box_t *box);
size_t regx_box_offset(const regx_shm_box_t *box);
uint32_t regx_box_ring(const regx_shm_box_t *box);

#endif
