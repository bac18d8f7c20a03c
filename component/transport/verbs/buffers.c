/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport's own registered memory.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memlock.h"
#include "transport/verbs/verbs.h"

#define DATAGRAM_ROOM 192u
#define REPOST_MIN 16u             /* receive buffers given back at once; of few, a quarter */
#define RETRY_NS INT64_C(10000000) /* after which slots are tried for again */
#define REPOST_BATCH 64u           /* posted by one call */

_Static_assert(REGX_GRH_SIZE + REGX_CM_MESSAGE_SIZE <= DATAGRAM_ROOM, "a message fits its room");
_Static_assert(REGX_VERBS_SLOTS % REGX_VERBS_SLOT_BLOCK == 0, "whole blocks");

/* Why the device does not register that much. */
static void explain(size_t size, int cause, char *error, size_t error_size)
{
    const uint64_t limit = regx_memlock_limit();

    if (cause == ENOMEM && limit != REGX_MEMLOCK_NONE) {
        snprintf(error, error_size,
                 "the device cannot register %zu KiB: the limit of locked memory (ulimit -l) is "
                 "%llu KiB; " REGX_MEMLOCK_REMEDY,
                 size / 1024, (unsigned long long)limit / 1024);
    } else {
        snprintf(error, error_size, "the device cannot register %zu KiB: %s", size / 1024,
                 strerror(cause));
    }
}

/* Maps and registers memory. false: see errno. */
static bool open_block(const regx_verbs_t *verbs, size_t size, int access,
                       regx_verbs_block_t *block)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return false;
    }
    madvise(memory, size, MADV_DONTFORK); /* a child would get copies of all that is pinned */
    struct ibv_mr *mr = (ibv_reg_mr)(verbs->pd, memory, size, access);
    if (mr == NULL) {
        const int cause = errno;

        munmap(memory, size);
        errno = cause;
        return false;
    }
    *block = (regx_verbs_block_t){.memory = memory, .size = size, .mr = mr};
    return true;
}

static void close_block(const regx_verbs_block_t *block)
{
    if (block->mr != NULL) {
        ibv_dereg_mr(block->mr);
        munmap(block->memory, block->size);
    }
}

static void add_slots(regx_verbs_buffers_t *buffers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        buffers->slots[buffers->slot_count++] = buffers->slot_total++;
    }
}

/* The pool's memory, registered: as much as is wanted and can be had. */
static regx_status_t open_pool(regx_verbs_t *verbs, char *error, size_t error_size)
{
    const size_t page = regx_page_size(), min = verbs->config.pool_min;
    const uint64_t longest = verbs->super.mr_bytes;
    size_t size = verbs->config.pool_size;

    if (longest != 0 && longest < size) {
        size = regx_max(longest & ~(page - 1), min);
    }
    while (!open_block(verbs, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                       &verbs->buffers.pool)) {
        if (size == min || errno != ENOMEM) {
            explain(size, errno, error, error_size);
            return REGX_NO_MEMORY;
        }
        size = regx_max(size / 2 & ~(page - 1), min);
    }
    verbs->super.pool_memory = verbs->buffers.pool.memory;
    verbs->super.pool_size = size;
    if (size < verbs->config.pool_size) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CHOICE, "pool: smaller than asked for");
    }
    return REGX_OK;
}

regx_status_t regx_verbs_buffers_open(regx_verbs_t *verbs, char *error, size_t error_size)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;

    buffers->cm_receives_at = (size_t)buffers->receives * REGX_VERBS_RECEIVE_SIZE;
    buffers->cm_sends_at = buffers->cm_receives_at + (size_t)REGX_CM_RECEIVES * DATAGRAM_ROOM;
    buffers->slots_at = buffers->cm_sends_at + (size_t)REGX_CM_SENDS * DATAGRAM_ROOM;
    const size_t size = buffers->slots_at + (size_t)REGX_VERBS_SLOTS * REGX_VERBS_FRAME_MAX;
    buffers->returned = calloc(buffers->receives, sizeof(buffers->returned[0]));
    if (buffers->returned == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    if (!open_block(verbs, size, IBV_ACCESS_LOCAL_WRITE, &buffers->own)) {
        explain(size, errno, error, error_size);
        return REGX_NO_MEMORY;
    }
    add_slots(buffers, REGX_VERBS_SLOTS);
    return open_pool(verbs, error, error_size);
}

void regx_verbs_buffers_close(regx_verbs_t *verbs)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;

    for (uint32_t i = 0; i < REGX_VERBS_SLOT_BLOCKS; i++) {
        close_block(&buffers->blocks[i]);
    }
    close_block(&buffers->own);
    close_block(&buffers->pool);
    free(buffers->returned);
}

bool regx_verbs_buffers_fill(regx_verbs_t *verbs)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;

    for (uint32_t i = 0; i < buffers->receives; i++) {
        buffers->returned[buffers->returned_count++] = i;
    }
    regx_verbs_buffers_repost(verbs);
    for (uint32_t i = 0; i < REGX_CM_RECEIVES && buffers->returned_count == 0; i++) {
        if (regx_verbs_buffer_datagram_post(verbs, i) != 0) {
            return false;
        }
    }
    return buffers->returned_count == 0;
}

void regx_verbs_buffer_return(regx_verbs_t *verbs, uint32_t index)
{
    verbs->buffers.returned[verbs->buffers.returned_count++] = index;
}

/* Posts the last `count` of those that were returned; how many the device took. */
static uint32_t post_last(regx_verbs_t *verbs, uint32_t count, int *error)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    struct ibv_recv_wr requests[REPOST_BATCH], *refused = requests;
    struct ibv_sge segments[REPOST_BATCH];

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = buffers->returned[buffers->returned_count - 1 - i];

        segments[i] = (struct ibv_sge){.addr = (uintptr_t)regx_verbs_buffer_received(verbs, index),
                                       .length = REGX_VERBS_RECEIVE_SIZE,
                                       .lkey = buffers->own.mr->lkey};
        requests[i] = (struct ibv_recv_wr){.wr_id = REGX_RECEIVED | index,
                                           .next = i + 1 < count ? &requests[i + 1] : NULL,
                                           .sg_list = &segments[i],
                                           .num_sge = 1};
    }
    *error = ibv_post_srq_recv(verbs->srq, requests, &refused);
    return *error == 0 ? count : (uint32_t)(refused - requests);
}

int regx_verbs_buffers_repost(regx_verbs_t *verbs)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    const uint32_t few = (uint32_t)regx_min(REPOST_MIN, buffers->receives / 4);
    int error = 0;

    if (buffers->returned_count < few) {
        return 0;
    }
    while (buffers->returned_count > 0 && error == 0) {
        buffers->returned_count -=
            post_last(verbs, (uint32_t)regx_min(buffers->returned_count, REPOST_BATCH), &error);
    }
    return buffers->returned_count == buffers->receives ? error : 0;
}

/* Slots behind the first ones lie in blocks of their own. */
static uint32_t block_of(uint32_t slot)
{
    return (slot - REGX_VERBS_SLOTS) / REGX_VERBS_SLOT_BLOCK;
}

uint8_t *regx_verbs_slot_memory(const regx_verbs_t *verbs, uint32_t slot)
{
    const regx_verbs_buffers_t *buffers = &verbs->buffers;

    return slot < REGX_VERBS_SLOTS
               ? buffers->own.memory + buffers->slots_at + (size_t)slot * REGX_VERBS_FRAME_MAX
               : buffers->blocks[block_of(slot)].memory +
                     (size_t)(slot % REGX_VERBS_SLOT_BLOCK) * REGX_VERBS_FRAME_MAX;
}

uint32_t regx_verbs_slot_key(const regx_verbs_t *verbs, uint32_t slot)
{
    return slot < REGX_VERBS_SLOTS ? verbs->buffers.own.mr->lkey
                                   : verbs->buffers.blocks[block_of(slot)].mr->lkey;
}

/* Every endpoint without a slot asks again and again, so what failed is not tried again at once. */
static void get_more_slots(regx_verbs_t *verbs)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;

    if (buffers->slot_total == REGX_VERBS_SLOTS_MAX ||
        (buffers->retry_at != 0 && regx_now_ns() < buffers->retry_at)) {
        return;
    }
    if (open_block(verbs, (size_t)REGX_VERBS_SLOT_BLOCK * REGX_VERBS_FRAME_MAX,
                   IBV_ACCESS_LOCAL_WRITE, &buffers->blocks[block_of(buffers->slot_total)])) {
        add_slots(buffers, REGX_VERBS_SLOT_BLOCK);
        buffers->retry_at = 0;
        return;
    }
    if (buffers->retry_at == 0) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: no memory for more slots for a while");
    }
    buffers->retry_at = regx_now_ns() + RETRY_NS;
}

/* Slots are added for endpoints that hold none. As many as were added are kept back for such, less
 * one for each endpoint that holds some. Of the others, no endpoint takes more than are left. So
 * peers that do not read, even several, leave some. */
uint32_t regx_verbs_slot_take(regx_verbs_t *verbs, uint32_t held)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    const uint32_t added = buffers->slot_total - REGX_VERBS_SLOTS;
    const uint32_t kept = added - (uint32_t)regx_min(added, buffers->slot_holders);

    if (held > 0 && held + kept >= buffers->slot_count) {
        return REGX_SLOT_NONE;
    }
    if (buffers->slot_count == 0) {
        get_more_slots(verbs);
    }
    if (buffers->slot_count == 0) {
        return REGX_SLOT_NONE;
    }
    buffers->slot_holders += held == 0;
    return buffers->slots[--buffers->slot_count];
}

void regx_verbs_slot_give(regx_verbs_t *verbs, uint32_t slot, uint32_t left)
{
    assert(verbs->buffers.slot_count < verbs->buffers.slot_total);
    assert(verbs->buffers.slot_holders > 0);
    verbs->buffers.slot_holders -= left == 0;
    verbs->buffers.slots[verbs->buffers.slot_count++] = slot;
}

static uint8_t *datagram_room(const regx_verbs_t *verbs, uint32_t index)
{
    return verbs->buffers.own.memory + verbs->buffers.cm_receives_at +
           (size_t)index * DATAGRAM_ROOM;
}

const uint8_t *regx_verbs_buffer_datagram(const regx_verbs_t *verbs, uint32_t index)
{
    return datagram_room(verbs, index) + REGX_GRH_SIZE;
}

int regx_verbs_buffer_datagram_post(regx_verbs_t *verbs, uint32_t index)
{
    struct ibv_sge segment = {.addr = (uintptr_t)datagram_room(verbs, index),
                              .length = DATAGRAM_ROOM,
                              .lkey = verbs->buffers.own.mr->lkey};
    struct ibv_recv_wr request = {
        .wr_id = REGX_RECEIVED | index, .sg_list = &segment, .num_sge = 1};
    struct ibv_recv_wr *refused;

    return ibv_post_recv(verbs->cm.qp, &request, &refused);
}

uint8_t *regx_verbs_buffer_datagram_send(const regx_verbs_t *verbs, uint32_t index)
{
    return verbs->buffers.own.memory + verbs->buffers.cm_sends_at + (size_t)index * DATAGRAM_ROOM;
}

const uint8_t *regx_verbs_buffer_received(const regx_verbs_t *verbs, uint32_t index)
{
    return verbs->buffers.own.memory + (size_t)index * REGX_VERBS_RECEIVE_SIZE;
}
