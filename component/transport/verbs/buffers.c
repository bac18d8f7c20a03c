/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport's own registered memory.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/memlock.h"
#include "transport/verbs/verbs.h"

#define REPOST_MIN 16u             /* receive buffers given back at once; of few, a quarter */
#define RETRY_NS INT64_C(10000000) /* after which slots are tried for again */
#define SLOTS_SIZE ((size_t)REGX_VERBS_SLOTS * REGX_VERBS_FRAME_MAX)
#define REPOST_BATCH 64u /* posted by one call */

_Static_assert(REGX_GRH_SIZE + REGX_CM_MESSAGE_SIZE <= REGX_VERBS_DATAGRAM_ROOM,
               "a message fits its room");

/* The device does not register that much. */
static regx_status_t refuse(size_t size, int cause, regx_error_t error)
{
    const uint64_t limit = regx_memlock_limit();

    if (cause == ENOMEM && limit != REGX_MEMLOCK_NONE) {
        return regx_refuse(
            error, REGX_NO_MEMORY,
            "the device cannot register %zu KiB: the limit of locked memory (ulimit -l) is "
            "%llu KiB; " REGX_MEMLOCK_REMEDY,
            size / 1024, (unsigned long long)limit / 1024);
    }
    return regx_refuse(error, REGX_NO_MEMORY, "the device cannot register %zu KiB: %s", size / 1024,
                       strerror(cause));
}

/* AMD's Zen to Zen 4 gain by relaxed ordering, by UCX's list of processors. */
static bool processor_gains(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amdfam17h") || __builtin_cpu_is("amdfam19h");
#else
    return false;
#endif
}

/* Nothing is read before a completion announces it, so writes need no order among themselves. The
 * library drops the flag where the kernel does not know it. */
struct ibv_mr *regx_verbs_register(regx_verbs_t *verbs, void *base, size_t length, int access)
{
    regx_verbs_port_has_device(&verbs->port);
    return ibv_reg_mr_iova2(verbs->pd, base, length, (uintptr_t)base,
                            (unsigned)access |
                                (verbs->relaxed ? (unsigned)IBV_ACCESS_RELAXED_ORDERING : 0));
}

/* The transport's first registration. There is firmware that refuses keys without relaxed ordering
 * (mlx5's mkc_order_write_after_write_ro_only). */
static struct ibv_mr *register_first(regx_verbs_t *verbs, void *base, size_t length, int access)
{
    const regx_verbs_ordering_t wanted = verbs->settings.relaxed_ordering;

    verbs->relaxed =
        wanted == REGX_VERBS_RELAXED || (wanted == REGX_VERBS_ORDERING_AUTO && processor_gains());
    struct ibv_mr *mr = regx_verbs_register(verbs, base, length, access);
    if (mr == NULL && errno == EINVAL && wanted == REGX_VERBS_ORDERING_AUTO && !verbs->relaxed) {
        verbs->relaxed = true;
        mr = regx_verbs_register(verbs, base, length, access);
    }
    return mr;
}

/* Maps and registers memory. false: see errno. */
static bool open_block(regx_verbs_t *verbs, size_t size, int access, regx_verbs_block_t *block)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return false;
    }
    madvise(memory, size, MADV_DONTFORK); /* a child would get copies of all that is pinned */
    struct ibv_mr *mr = verbs->buffers.own.mr == NULL
                            ? register_first(verbs, memory, size, access)
                            : regx_verbs_register(verbs, memory, size, access);
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

static void put_slot(regx_verbs_buffers_t *buffers, regx_verbs_slot_t *slot)
{
    slot->next = buffers->free;
    buffers->free = slot;
    buffers->slot_count++;
}

/* Registers more slots. false: see errno. */
static bool add_slots(regx_verbs_t *verbs)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    regx_verbs_block_t *block = &buffers->blocks[buffers->slot_total / REGX_VERBS_SLOTS];

    if (!open_block(verbs, SLOTS_SIZE, IBV_ACCESS_LOCAL_WRITE, block)) {
        return false;
    }
    for (size_t at = 0; at < SLOTS_SIZE; at += REGX_VERBS_FRAME_MAX) {
        regx_verbs_slot_t *slot = &buffers->slots[buffers->slot_total++];

        slot->memory = (uint8_t *)block->memory + at;
        slot->lkey = block->mr->lkey;
        put_slot(buffers, slot);
    }
    return true;
}

/* The pool's memory, registered: as much as is wanted and can be had. */
static regx_status_t open_pool(regx_verbs_t *verbs, regx_error_t error)
{
    const size_t page = regx_page_size(), min = verbs->config.pool_min;
    size_t size = verbs->config.pool_size;

    if (verbs->super.mr_bytes != 0 && verbs->super.mr_bytes < size) {
        size = regx_max(verbs->super.mr_bytes & ~(page - 1), min);
    }
    while (!open_block(verbs, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                       &verbs->buffers.pool)) {
        if (size == min || errno != ENOMEM) {
            return refuse(size, errno, error);
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

regx_status_t regx_verbs_buffers_open(regx_verbs_t *verbs, regx_error_t error)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    const size_t size = sizeof(regx_verbs_area_t) + buffers->receives * REGX_VERBS_FRAME_MAX;

    buffers->returned = calloc(buffers->receives, sizeof(buffers->returned[0]));
    if (buffers->returned == NULL ||
        !open_block(verbs, size, IBV_ACCESS_LOCAL_WRITE, &buffers->own) || !add_slots(verbs)) {
        return refuse(size + SLOTS_SIZE, errno, error);
    }
    buffers->area = buffers->own.memory;
    const regx_status_t status = open_pool(verbs, error);
    if (status != REGX_OK) {
        return status;
    }
    for (uint32_t i = 0; i < buffers->receives; i++) {
        buffers->returned[buffers->returned_count++] = i;
    }
    regx_verbs_buffers_repost(verbs);
    bool posted = buffers->returned_count == 0;
    for (uint32_t i = 0; i < REGX_CM_RECEIVES && posted; i++) {
        posted = regx_verbs_buffer_datagram_post(verbs, i) == 0;
    }
    return posted ? REGX_OK : regx_verbs_port_refuse(&verbs->port, "receives", error);
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

/* Posts the last `count` of those that were returned; how many the device took. */
static uint32_t post_last(regx_verbs_t *verbs, uint32_t count, int *error)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    struct ibv_recv_wr requests[REPOST_BATCH], *refused = requests;
    struct ibv_sge segments[REPOST_BATCH];

    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = buffers->returned[buffers->returned_count - 1 - i];

        segments[i] = (struct ibv_sge){.addr = (uintptr_t)buffers->area->received[index],
                                       .length = REGX_VERBS_FRAME_MAX,
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

/* Slots are added for endpoints that hold none. As many as were added are kept back for such, less
 * one for each endpoint that holds some. Of the others, no endpoint takes more than are left. So
 * peers that do not read, even several, leave some. */
regx_verbs_slot_t *regx_verbs_slot_take(regx_verbs_t *verbs, uint32_t *held)
{
    regx_verbs_buffers_t *buffers = &verbs->buffers;
    const uint32_t added = buffers->slot_total - REGX_VERBS_SLOTS;
    const uint32_t kept = added - (uint32_t)regx_min(added, buffers->slot_holders);

    if (*held > 0 && *held + kept >= buffers->slot_count) {
        return NULL;
    }
    if (buffers->slot_count == 0 && buffers->slot_total < REGX_VERBS_SLOTS_MAX &&
        regx_now_ns() >= buffers->retry_at) {
        if (add_slots(verbs)) {
            buffers->retry_at = 0;
        } else {
            if (buffers->retry_at == 0) {
                regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                         "verbs: no memory for more slots for a while");
            }
            /* Every endpoint without a slot asks again and again: not at once. */
            buffers->retry_at = regx_now_ns() + RETRY_NS;
        }
    }
    regx_verbs_slot_t *slot = buffers->free;
    if (slot != NULL) {
        buffers->free = slot->next;
        buffers->slot_count--;
        buffers->slot_holders += (*held)++ == 0;
    }
    return slot;
}

void regx_verbs_slot_give(regx_verbs_t *verbs, regx_verbs_slot_t *slot, uint32_t *held)
{
    assert(verbs->buffers.slot_count < verbs->buffers.slot_total);
    assert(verbs->buffers.slot_holders > 0 && *held > 0);
    verbs->buffers.slot_holders -= --*held == 0;
    put_slot(&verbs->buffers, slot);
}

int regx_verbs_buffer_datagram_post(regx_verbs_t *verbs, uint32_t index)
{
    struct ibv_sge segment = {.addr = (uintptr_t)verbs->buffers.area->datagrams[index],
                              .length = REGX_VERBS_DATAGRAM_ROOM,
                              .lkey = verbs->buffers.own.mr->lkey};
    struct ibv_recv_wr request = {
        .wr_id = REGX_RECEIVED | index, .sg_list = &segment, .num_sge = 1};
    struct ibv_recv_wr *refused;

    return ibv_post_recv(verbs->cm.qp, &request, &refused);
}
