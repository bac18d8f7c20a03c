/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/immediate.h"

#include "rendezvous/landing.h"

#define IS_ONE (1u << 23)
#define IS_DONE (1u << 22)
#define GENERATION_BITS 6u
#define GENERATION_AT 16u
#define SLOT_BITS 16u
#define SLOT_UNIT 4096u
#define LANDING_BITS 10u
#define CHUNK_BITS 6u

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
    const uint32_t head = IS_ONE | low(notice->to.generation, GENERATION_BITS) << GENERATION_AT;

    if (notice->has_checksum) {
        return 0;
    }
    if (notice->type == REGX_CONTROL_WRITTEN) {
        return notice->slot % SLOT_UNIT == 0 && fits(notice->slot / SLOT_UNIT, SLOT_BITS)
                   ? head | notice->slot / SLOT_UNIT
                   : 0;
    }
    if (chunk_size == 0 || notice->offset % chunk_size != 0 ||
        !fits(notice->offset / chunk_size, CHUNK_BITS) || !fits(notice->to.id, LANDING_BITS)) {
        return 0;
    }
    return head | IS_DONE | (uint32_t)(notice->offset / chunk_size) << LANDING_BITS | notice->to.id;
}

static const regx_landing_t *find_slot(const regx_rndv_t *rndv, uint32_t slot,
                                       regx_control_t *control)
{
    const uint64_t offset = (uint64_t)slot * SLOT_UNIT, index = offset / rndv->pool->slot_size;

    if (offset % rndv->pool->slot_size != 0 || index >= rndv->pool->slots) {
        return NULL;
    }
    control->type = REGX_CONTROL_WRITTEN;
    control->slot = (uint32_t)offset;
    control->offset = rndv->slots[index].offset;
    control->length = rndv->slots[index].length;
    return rndv->slots[index].landing;
}

static const regx_landing_t *find_chunk(const regx_rndv_t *rndv, uint32_t id, uint32_t number,
                                        regx_control_t *control)
{
    const regx_landing_t *landing = regx_table_at(&rndv->landings, id);

    for (unsigned i = 0; landing != NULL && i < rndv->config.chunk_depth; i++) {
        const regx_chunk_t *chunk = &landing->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED &&
            chunk->offset == number * (uint64_t)rndv->config.chunk_size) {
            control->type = REGX_CONTROL_DONE;
            control->offset = chunk->offset;
            control->length = chunk->length;
            return landing;
        }
    }
    return NULL;
}

bool regx_immediate_unpack_locked(const regx_rndv_t *rndv, uint32_t immediate,
                                  regx_control_t *control)
{
    const uint32_t what = low(immediate, SLOT_BITS);
    const regx_landing_t *landing = NULL;

    *control = (regx_control_t){.anonymous = true};
    if ((immediate & IS_DONE) != 0) {
        landing = find_chunk(rndv, low(what, LANDING_BITS), what >> LANDING_BITS, control);
    } else {
        landing = find_slot(rndv, what, control);
    }
    if ((immediate & IS_ONE) == 0 || landing == NULL ||
        low(landing->name.generation, GENERATION_BITS) !=
            low(immediate >> GENERATION_AT, GENERATION_BITS)) {
        return false;
    }
    control->to = landing->name;
    return true;
}
