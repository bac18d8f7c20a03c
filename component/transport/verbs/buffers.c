/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport's own registered memory.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memlock.h"
#include "transport/verbs/internal.h"

#define GRH_SIZE 40 /* UD puts so many bytes before what it received */
#define HELLO_ROOM 128u
#define REPOST_LEAST 16u /* receive buffers given back at once; of few, a quarter */

_Static_assert(GRH_SIZE + REGX_VERBS_HELLO_SIZE <= HELLO_ROOM, "a hello fits its buffer");

/* Where the parts begin. */
#define HELLOS_AT ((size_t)REGX_VERBS_RECEIVES * REGX_VERBS_RECEIVE_SIZE)
#define HELLO_SENDS_AT (HELLOS_AT + (size_t)REGX_VERBS_HELLOS * HELLO_ROOM)
#define SLOTS_AT (HELLO_SENDS_AT + (size_t)REGX_VERBS_HELLO_SENDS * HELLO_ROOM)
#define SIZE (SLOTS_AT + (size_t)REGX_VERBS_SLOTS * REGX_VERBS_FRAME_MAX)

/* Memory of our own that no child needs: it would get copies of all that is pinned. */
static uint8_t *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        return NULL;
    }
    madvise(memory, size, MADV_DONTFORK);
    return memory;
}

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

regx_status_t regx_buffers_open(regx_verbs_t *verbs, char *error, size_t error_size)
{
    regx_buffers_t *buffers = &verbs->buffers;

    buffers->size = SIZE;
    buffers->memory = map(SIZE);
    if (buffers->memory == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    buffers->mr = ibv_reg_mr(verbs->pd, buffers->memory, SIZE, IBV_ACCESS_LOCAL_WRITE);
    if (buffers->mr == NULL) {
        explain(SIZE, errno, error, error_size);
        return REGX_NO_MEMORY;
    }
    for (uint32_t i = 0; i < REGX_VERBS_SLOTS; i++) {
        buffers->slots[buffers->slot_count++] = i;
    }
    return REGX_OK;
}

void regx_buffers_close(regx_verbs_t *verbs)
{
    regx_buffers_t *buffers = &verbs->buffers;

    if (buffers->mr != NULL) {
        ibv_dereg_mr(buffers->mr);
    }
    if (buffers->memory != NULL) {
        munmap(buffers->memory, buffers->size);
    }
}

regx_status_t regx_verbs_pool_open(regx_verbs_t *verbs, char *error, size_t error_size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), least = verbs->config.pool_least;
    const uint64_t longest = verbs->super.mr_bytes;
    size_t most = verbs->config.pool_size;

    if (longest != 0 && longest < most) {
        most = longest;
    }
    while (true) {
        const size_t whole = most & ~(page - 1), size = whole > least ? whole : least;
        uint8_t *memory = map(size);

        if (memory == NULL) {
            snprintf(error, error_size, "no memory for a pool of %zu bytes", size);
            return REGX_NO_MEMORY;
        }
        verbs->pool_mr =
            ibv_reg_mr(verbs->pd, memory, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (verbs->pool_mr != NULL) {
            verbs->super.pool_memory = memory;
            verbs->super.pool_size = size;
            if (size < verbs->config.pool_size) {
                regx_tally(verbs->config.counters->fallbacks, "pool: smaller than asked for");
            }
            return REGX_OK;
        }
        const int cause = errno;
        munmap(memory, size);
        if (size == least || cause != ENOMEM) {
            explain(size, cause, error, error_size);
            return REGX_NO_MEMORY;
        }
        most = size / 2;
    }
}

void regx_verbs_pool_close(regx_verbs_t *verbs)
{
    if (verbs->pool_mr != NULL) {
        ibv_dereg_mr(verbs->pool_mr);
        munmap(verbs->super.pool_memory, verbs->super.pool_size);
    }
}

const uint8_t *regx_buffer_received(const regx_verbs_t *verbs, uint32_t index)
{
    return verbs->buffers.memory + (size_t)index * REGX_VERBS_RECEIVE_SIZE;
}

bool regx_buffers_fill(regx_verbs_t *verbs)
{
    regx_buffers_t *buffers = &verbs->buffers;

    for (uint32_t i = 0; i < buffers->receives; i++) {
        buffers->returned[buffers->returned_count++] = i;
    }
    regx_buffers_repost(verbs);
    for (uint32_t i = 0; i < REGX_VERBS_HELLOS && buffers->returned_count == 0; i++) {
        if (regx_buffer_hello_post(verbs, i) != 0) {
            return false;
        }
    }
    return buffers->returned_count == 0;
}

void regx_buffer_return(regx_verbs_t *verbs, uint32_t index)
{
    verbs->buffers.returned[verbs->buffers.returned_count++] = index;
}

void regx_buffers_repost(regx_verbs_t *verbs)
{
    regx_buffers_t *buffers = &verbs->buffers;
    struct ibv_recv_wr requests[REGX_VERBS_RECEIVES], *refused = requests;
    struct ibv_sge pieces[REGX_VERBS_RECEIVES];
    const uint32_t count = buffers->returned_count, quarter = buffers->receives / 4;

    if (count < (quarter < REPOST_LEAST ? quarter : REPOST_LEAST) || count == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t index = buffers->returned[i];

        pieces[i] = (struct ibv_sge){.addr = (uintptr_t)regx_buffer_received(verbs, index),
                                     .length = REGX_VERBS_RECEIVE_SIZE,
                                     .lkey = buffers->mr->lkey};
        requests[i] = (struct ibv_recv_wr){.wr_id = REGX_RECEIVED | index,
                                           .next = i + 1 < count ? &requests[i + 1] : NULL,
                                           .sg_list = &pieces[i],
                                           .num_sge = 1};
    }
    /* What is refused now is tried again with the next ones, if any can come. */
    const int error = ibv_post_srq_recv(verbs->srq, requests, &refused);
    const uint32_t posted = error == 0 ? count : (uint32_t)(refused - requests);
    buffers->returned_count = count - posted;
    if (buffers->returned_count == buffers->receives) {
        regx_pairs_break(verbs, "receive queue", strerror(error));
    }
    memmove(buffers->returned, buffers->returned + posted,
            buffers->returned_count * sizeof(buffers->returned[0]));
}

uint8_t *regx_buffer_slot(const regx_verbs_t *verbs, uint32_t slot)
{
    return verbs->buffers.memory + SLOTS_AT + (size_t)slot * REGX_VERBS_FRAME_MAX;
}

uint32_t regx_slot_take(regx_pair_t *pair)
{
    regx_buffers_t *buffers = &pair->verbs->buffers;

    /* No pair holds more than are left: so peers that do not read, even several, leave some. */
    if (pair->slots >= buffers->slot_count) {
        return REGX_SLOT_NOT;
    }
    pair->slots++;
    return buffers->slots[--buffers->slot_count];
}

void regx_slot_give(regx_pair_t *pair, uint32_t slot)
{
    regx_buffers_t *buffers = &pair->verbs->buffers;

    pair->slots--;
    buffers->slots[buffers->slot_count++] = slot;
}

static uint8_t *hello_room(const regx_verbs_t *verbs, uint32_t index)
{
    return verbs->buffers.memory + HELLOS_AT + (size_t)index * HELLO_ROOM;
}

const uint8_t *regx_buffer_hello(const regx_verbs_t *verbs, uint32_t index)
{
    return hello_room(verbs, index) + GRH_SIZE;
}

int regx_buffer_hello_post(regx_verbs_t *verbs, uint32_t index)
{
    struct ibv_sge piece = {.addr = (uintptr_t)hello_room(verbs, index),
                            .length = HELLO_ROOM,
                            .lkey = verbs->buffers.mr->lkey};
    struct ibv_recv_wr request = {.wr_id = REGX_RECEIVED | index, .sg_list = &piece, .num_sge = 1};
    struct ibv_recv_wr *refused;

    return ibv_post_recv(verbs->ud, &request, &refused);
}

int regx_buffer_hello_send(regx_verbs_t *verbs, const regx_pair_t *pair,
                           const uint8_t hello[REGX_VERBS_HELLO_SIZE])
{
    regx_buffers_t *buffers = &verbs->buffers;
    uint8_t *room = buffers->memory + HELLO_SENDS_AT +
                    (buffers->hellos_sent % REGX_VERBS_HELLO_SENDS) * HELLO_ROOM;
    struct ibv_sge piece = {
        .addr = (uintptr_t)room, .length = REGX_VERBS_HELLO_SIZE, .lkey = buffers->mr->lkey};
    struct ibv_send_wr request = {.sg_list = &piece,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr.ud = {.ah = pair->ah,
                                            .remote_qpn = pair->address.qpn,
                                            .remote_qkey = pair->address.qkey}};
    struct ibv_send_wr *refused;

    if (buffers->hellos_sent - buffers->hellos_done == REGX_VERBS_HELLO_SENDS) {
        return 0;
    }
    memcpy(room, hello, REGX_VERBS_HELLO_SIZE);
    const int error = ibv_post_send(verbs->ud, &request, &refused);
    if (error == 0) {
        buffers->hellos[buffers->hellos_sent++ % REGX_VERBS_HELLO_SENDS].way = pair->ah;
    }
    return error;
}

void regx_buffer_hello_done(regx_verbs_t *verbs)
{
    regx_buffers_t *buffers = &verbs->buffers;
    const uint64_t hello = buffers->hellos_done++ % REGX_VERBS_HELLO_SENDS;

    if (buffers->hellos[hello].orphaned) {
        ibv_destroy_ah(buffers->hellos[hello].way);
        buffers->hellos[hello].orphaned = false;
    }
}

void regx_buffer_way_drop(regx_verbs_t *verbs, struct ibv_ah *way)
{
    regx_buffers_t *buffers = &verbs->buffers;

    for (uint64_t i = buffers->hellos_sent; i != buffers->hellos_done; i--) {
        const uint64_t hello = (i - 1) % REGX_VERBS_HELLO_SENDS;

        if (buffers->hellos[hello].way == way) {
            buffers->hellos[hello].orphaned = true;
            return;
        }
    }
    ibv_destroy_ah(way);
}
