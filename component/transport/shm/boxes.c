/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/boxes.h"

#include <stdlib.h>
#include <string.h>

struct regx_boxes_segment {
    regx_segment_t memory;
    uint32_t ring; /* bytes of payload of each box */
    bool taken[REGX_BOXES_SEGMENT];
    struct regx_boxes_segment *next;
};

static size_t offset_of(const regx_boxes_segment_t *segment, unsigned number)
{
    return number * regx_mailbox_size(segment->ring);
}

static regx_mailbox_memory_t *memory_of(const regx_boxes_segment_t *segment, unsigned number)
{
    char *base = segment->memory.base;

    return (regx_mailbox_memory_t *)(void *)(base + offset_of(segment, number));
}

/* A box that was given back may be taken once its reader has left it. */
static bool is_free(const regx_boxes_segment_t *segment, unsigned number)
{
    return !segment->taken[number] &&
           atomic_load_explicit(&memory_of(segment, number)->left, memory_order_acquire) != 0;
}

/* What the mailboxes of all processes of this machine take with such rings, if all talk. */
static size_t size_of_all(const regx_shm_boxes_t *boxes, uint32_t ring)
{
    const size_t segments = (boxes->neighbours + REGX_BOXES_SEGMENT - 1) / REGX_BOXES_SEGMENT;

    return (boxes->neighbours + 1) * segments * REGX_BOXES_SEGMENT * regx_mailbox_size(ring);
}

/* The longest that leaves enough shared memory for others, since a segment takes all of its own at
 * once. */
static uint32_t choose_ring(const regx_shm_boxes_t *boxes, const regx_segment_domain_t *domain)
{
    const size_t room = regx_segment_room(domain);
    uint32_t ring = REGX_MAILBOX_PAYLOAD_MAX;

    if (boxes->neighbours > REGX_BOXES_FEW) {
        ring /= 2;
    }
    while (ring > REGX_MAILBOX_PAYLOAD_MIN && size_of_all(boxes, ring) > room / 2) {
        ring /= 2;
    }
    return ring;
}

static regx_boxes_segment_t *add_segment(regx_shm_boxes_t *boxes, regx_segment_domain_t *domain)
{
    regx_boxes_segment_t *segment = calloc(1, sizeof(*segment));

    if (segment == NULL) {
        return NULL;
    }
    segment->ring = choose_ring(boxes, domain);
    const size_t length = offset_of(segment, REGX_BOXES_SEGMENT);
    if (regx_segment_alloc(domain, length, &segment->memory) != REGX_OK &&
        regx_segment_alloc(regx_segment_other(domain), length, &segment->memory) != REGX_OK) {
        free(segment);
        return NULL;
    }
    for (unsigned i = 0; i < REGX_BOXES_SEGMENT; i++) {
        atomic_store(&memory_of(segment, i)->left, 1);
    }
    segment->next = boxes->first;
    boxes->first = segment;
    return segment;
}

static bool find_free(regx_shm_boxes_t *boxes, regx_shm_box_t *box)
{
    for (regx_boxes_segment_t *segment = boxes->first; segment != NULL; segment = segment->next) {
        for (unsigned i = 0; i < REGX_BOXES_SEGMENT; i++) {
            if (is_free(segment, i)) {
                *box = (regx_shm_box_t){memory_of(segment, i), segment, i};
                return true;
            }
        }
    }
    return false;
}

regx_status_t regx_boxes_take(regx_shm_boxes_t *boxes, regx_segment_domain_t *domain,
                              const regx_vm_cookie_t *owner, regx_shm_box_t *box)
{
    if (!find_free(boxes, box)) {
        regx_boxes_segment_t *segment = add_segment(boxes, domain);

        if (segment == NULL) {
            return REGX_NO_MEMORY;
        }
        *box = (regx_shm_box_t){memory_of(segment, 0), segment, 0};
    }
    box->segment->taken[box->number] = true;
    memset(box->memory, 0, sizeof(*box->memory));
    box->memory->owner = *owner;
    return REGX_OK;
}

void regx_boxes_give(const regx_shm_box_t *box)
{
    box->segment->taken[box->number] = false;
}

void regx_boxes_free(regx_shm_boxes_t *boxes)
{
    while (boxes->first != NULL) {
        regx_boxes_segment_t *segment = boxes->first;

        boxes->first = segment->next;
        regx_segment_free(&segment->memory);
        free(segment);
    }
}

const regx_segment_name_t *regx_box_segment(const regx_shm_box_t *box)
{
    return &box->segment->memory.name;
}

size_t regx_box_offset(const regx_shm_box_t *box)
{
    return offset_of(box->segment, box->number);
}

uint32_t regx_box_ring(const regx_shm_box_t *box)
{
    return box->segment->ring;
}
