/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The memory of the mailboxes that this process posts to.
 */
#include <stdlib.h>

#include "transport/shm/shm_internal.h"

/* Bytes of all rings of a process for the neighbours that it has when they are made, unless rings of
 * REGX_MAILBOX_PAYLOAD_MIN take more. */
#define ALL_RINGS (8u << 20)

/* Mailboxes that lie in one segment of shared memory. */
struct regx_mailbox_segment {
    struct regx_mailbox_segment *next;
    regx_segment_t memory; /* base NULL: it is the main segment's, and not freed with this */
    unsigned count;        /* of boxes */
    regx_mailbox_box_t boxes[];
};

uint32_t regx_mailbox_ring_choose(size_t neighbours, size_t all, size_t room)
{
    uint32_t ring = REGX_MAILBOX_PAYLOAD_MAX;

    while (ring > REGX_MAILBOX_PAYLOAD_MIN &&
           (neighbours > ALL_RINGS / ring || all * regx_mailbox_size(ring) > room)) {
        ring /= 2;
    }
    return ring;
}

/* NULL: no memory for what describes them. */
static struct regx_mailbox_segment *describe(regx_mailbox_pool_t *pool, const regx_segment_t *in,
                                             size_t offset, unsigned count, uint32_t ring)
{
    const size_t size = regx_mailbox_size(ring);
    struct regx_mailbox_segment *segment =
        calloc(1, sizeof(*segment) + count * sizeof(segment->boxes[0]));

    if (segment == NULL) {
        return NULL;
    }
    segment->count = count;
    for (unsigned i = 0; i < count; i++) {
        segment->boxes[i] = (regx_mailbox_box_t){.memory = (void *)(in->base + offset + i * size),
                                                 .segment = in->name,
                                                 .offset = offset + i * size,
                                                 .ring = ring};
    }
    segment->next = pool->segments;
    pool->segments = segment;
    return segment;
}

bool regx_mailbox_pool_begin(regx_mailbox_pool_t *pool, const regx_segment_t *main, size_t offset,
                             unsigned boxes, uint32_t ring)
{
    pool->kind = (regx_segment_kind_t)main->name.kind;
    pool->in_main = boxes > 0 ? describe(pool, main, offset, boxes, ring) : NULL;
    return boxes == 0 || pool->in_main != NULL;
}

/* One that was given back may be taken once its reader has left it. NULL: there is none. */
static regx_mailbox_box_t *find_box(struct regx_mailbox_segment *segment)
{
    for (unsigned i = 0; segment != NULL && i < segment->count; i++) {
        regx_mailbox_box_t *box = &segment->boxes[i];

        if (!box->in_use &&
            (!box->begun || atomic_load_explicit(&box->memory->left, memory_order_acquire) != 0)) {
            box->in_use = true;
            return box;
        }
    }
    return NULL;
}

regx_mailbox_box_t *regx_mailbox_box_reserve(regx_mailbox_pool_t *pool)
{
    return find_box(pool->in_main);
}

regx_mailbox_box_t *regx_mailbox_box_take(regx_mailbox_pool_t *pool)
{
    for (struct regx_mailbox_segment *at = pool->segments; at != NULL; at = at->next) {
        regx_mailbox_box_t *box = find_box(at);

        if (box != NULL) {
            return box;
        }
    }
    /* More, in memory of the pool's kind or of the other; and one more than is needed: a mailbox may be
     * taken while another is being left. */
    const regx_segment_kind_t other =
        pool->kind == REGX_SEGMENT_SYSV ? REGX_SEGMENT_POSIX : REGX_SEGMENT_SYSV;
    const size_t count = regx_min(pool->neighbours + 1, REGX_MAILBOX_POOL_UNIT);
    const size_t segments = (pool->neighbours + count - 1) / count;
    const uint32_t ring = regx_mailbox_ring_choose(
        pool->neighbours, ((size_t)pool->neighbours + 1) * segments * count,
        regx_segment_room(pool->kind) / 2);
    const size_t length = count * regx_mailbox_size(ring);
    regx_segment_t memory;

    if (regx_segment_alloc(pool->kind, length, &memory) != REGX_OK &&
        regx_segment_alloc(other, length, &memory) != REGX_OK) {
        return NULL;
    }
    struct regx_mailbox_segment *segment = describe(pool, &memory, 0, (unsigned)count, ring);
    if (segment == NULL) {
        regx_segment_free(&memory);
        return NULL;
    }
    segment->memory = memory;
    return find_box(segment);
}

void regx_mailbox_box_begin(regx_mailbox_box_t *box, const regx_vm_cookie_t *owner)
{
    memset(box->memory, 0, sizeof(*box->memory));
    box->memory->owner = *owner;
    box->begun = true;
}

void regx_mailbox_box_give_back(regx_mailbox_box_t *box)
{
    if (box->begun) {
        atomic_store(&box->memory->left, 1); /* its reader has left it, or never knew of it */
    }
    box->in_use = false;
}

void regx_mailbox_pool_free(regx_mailbox_pool_t *pool)
{
    while (pool->segments != NULL) {
        struct regx_mailbox_segment *segment = pool->segments;

        pool->segments = segment->next;
        if (segment->memory.base != NULL) {
            regx_segment_free(&segment->memory);
        }
        free(segment);
    }
}
