/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/immediate.h"

#include "rendezvous/landing.h"

#define IS_ONE (1u << 23)
#define IS_DONE (1u << 22)
#define GENERATION_BITS 5u
#define WHAT_BITS 17u
#define SLOT_UNIT 4096u /* slots are whole pages */
#define SLOT_BITS 12u
#define SLOT_LANDING_BITS 5u
#define LANDING_BITS 10u
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
    if (notice->type == REGX_CONTROL_WRITTEN) {
        return notice->slot % SLOT_UNIT == 0 && fits(notice->slot / SLOT_UNIT, SLOT_BITS)
                   ? head | low(notice->to.id, SLOT_LANDING_BITS) << SLOT_BITS |
                         notice->slot / SLOT_UNIT
                   : 0;
    }
    if (chunk_size == 0 || notice->offset % chunk_size != 0 ||
        !fits(notice->offset / chunk_size, CHUNK_BITS) || !fits(notice->to.id, LANDING_BITS)) {
        return 0;
    }
    return head | IS_DONE | (uint32_t)(notice->offset / chunk_size) << LANDING_BITS | notice->to.id;
}

static const regx_landing_t *find_slot(const regx_rndv_t *rndv, uint32_t what,
                                       regx_control_t *control)
{
    const uint64_t offset = (uint64_t)low(what, SLOT_BITS) * SLOT_UNIT;
    const uint64_t index = offset / rndv->pool->slot_size;

    if (offset % rndv->pool->slot_size != 0 || index >= rndv->pool->slots) {
        return NULL;
    }
    const regx_slot_use_t *use = &rndv->slots[index];
    if (use->landing == NULL ||
        low(use->landing->name.id, SLOT_LANDING_BITS) != what >> SLOT_BITS) {
        return NULL;
    }
    control->type = REGX_CONTROL_WRITTEN;
    control->slot = (uint32_t)offset;
    control->offset = use->offset;
    control->length = use->length;
    return use->landing;
}

static const regx_landing_t *find_chunk(const regx_rndv_t *rndv, uint32_t what,
                                        regx_control_t *control)
{
    const regx_landing_t *landing = regx_handle_table_at(&rndv->landings, low(what, LANDING_BITS));
    const uint64_t offset = (uint64_t)(what >> LANDING_BITS) * rndv->config.chunk_size;

    for (unsigned i = 0; landing != NULL && i < rndv->config.chunk_depth; i++) {
        const regx_chunk_t *chunk = &landing->chunks[i];

        if (chunk->state == REGX_CHUNK_GRANTED && chunk->offset == offset) {
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
    const uint32_t what = low(immediate, WHAT_BITS);

    *control = (regx_control_t){.anonymous = true};
    const regx_landing_t *landing = (immediate & IS_DONE) != 0 ? find_chunk(rndv, what, control)
                                                               : find_slot(rndv, what, control);
    if ((immediate & IS_ONE) == 0 || landing == NULL ||
        low(landing->name.generation, GENERATION_BITS) !=
            low(immediate >> WHAT_BITS, GENERATION_BITS)) {
        return false;
    }
    control->to = landing->name;
    return true;
}
