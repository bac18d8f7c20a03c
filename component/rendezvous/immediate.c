/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/immediate.h"

#include "rendezvous/recv.h"

#define IS_ONE (1u << 23)
#define IS_CHUNK (1u << 22)
#define GENERATION_BITS 5u
#define WHAT_BITS 17u
#define SLOT_UNIT 4096u /* slots are whole pages */
#define SLOT_BITS 12u
#define SLOT_RECV_BITS 5u
#define RECV_BITS 10u
#define CHUNK_BITS 7u

static uint32_t low(uint32_t value, unsigned bits)
{
    return value & ((1u << bits) - 1);
}

static bool fits(uint64_t value, unsigned bits)
{
    return value >> bits == 0;
}

uint32_t regx_immediate_pack(const regx_control_t *notice, uint64_t chunk_size)
{
    const uint32_t head = IS_ONE | low(notice->to.generation, GENERATION_BITS) << WHAT_BITS;

    if (notice->has_checksum) {
        return 0;
    }
    if (notice->type == REGX_CONTROL_ATP_SLOT) {
        return notice->slot % SLOT_UNIT == 0 && fits(notice->slot / SLOT_UNIT, SLOT_BITS)
                   ? head | low(notice->to.id, SLOT_RECV_BITS) << SLOT_BITS |
                         notice->slot / SLOT_UNIT
                   : 0;
    }
    if (chunk_size == 0 || notice->offset % chunk_size != 0 ||
        !fits(notice->offset / chunk_size, CHUNK_BITS) || !fits(notice->to.id, RECV_BITS)) {
        return 0;
    }
    return head | IS_CHUNK | (uint32_t)(notice->offset / chunk_size) << RECV_BITS | notice->to.id;
}

static const regx_rndv_recv_t *find_slot(const regx_rndv_t *rndv, uint32_t what,
                                         regx_control_t *control)
{
    const uint64_t offset = (uint64_t)low(what, SLOT_BITS) * SLOT_UNIT;
    const uint64_t index = offset / rndv->pool->slot_size;

    if (offset % rndv->pool->slot_size != 0 || index >= rndv->pool->slots) {
        return NULL;
    }
    const regx_slot_use_t *use = &rndv->slots[index];
    if (use->recv == NULL || low(use->recv->handle.id, SLOT_RECV_BITS) != what >> SLOT_BITS) {
        return NULL;
    }
    control->type = REGX_CONTROL_ATP_SLOT;
    control->slot = (uint32_t)offset;
    control->offset = use->offset;
    control->length = use->length;
    return use->recv;
}

static const regx_rndv_recv_t *find_chunk(const regx_rndv_t *rndv, uint32_t what,
                                          regx_control_t *control)
{
    const regx_rndv_recv_t *recv = regx_handle_table_at(&rndv->recvs, low(what, RECV_BITS));
    const uint64_t offset = (uint64_t)(what >> RECV_BITS) * rndv->config.chunk_size;

    for (unsigned i = 0; recv != NULL && i < rndv->config.chunk_depth; i++) {
        const regx_chunk_t *chunk = &recv->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED && chunk->offset == offset) {
            control->type = REGX_CONTROL_ATP_CHUNK;
            control->offset = chunk->offset;
            control->length = chunk->length;
            return recv;
        }
    }
    return NULL;
}

bool regx_immediate_unpack_locked(const regx_rndv_t *rndv, uint32_t immediate,
                                  regx_control_t *control)
{
    const uint32_t what = low(immediate, WHAT_BITS);

    *control = (regx_control_t){.anonymous = true};
    const regx_rndv_recv_t *recv = (immediate & IS_CHUNK) != 0 ? find_chunk(rndv, what, control)
                                                               : find_slot(rndv, what, control);
    if ((immediate & IS_ONE) == 0 || recv == NULL ||
        low(recv->handle.generation, GENERATION_BITS) !=
            low(immediate >> WHAT_BITS, GENERATION_BITS)) {
        return false;
    }
    control->to = recv->handle;
    return true;
}
