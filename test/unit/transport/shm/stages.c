/* SPDX-License-Identifier: BSD-3-Clause */
#include "stages.h"

#include <stdlib.h>

#include "transport/counters.h"
#include "transport/shm/key.h"

bool sent_expose(sent_t *sent, side_t *side, size_t length, uint64_t stream)
{
    *sent = (sent_t){.side = side, .data = malloc(length), .length = length};
    REQUIRE(sent->data != NULL);
    unit_fill(sent->data, length, stream, 0);
    regx_shm_expose(sent->data, length, &sent->key);
    return regx_shm_stage(side->conn, sent->data, length, &sent->key);
}

void sent_tell(const sent_t *sent)
{
    pair_tell(sent->side->socket, &sent->key, sizeof(sent->key));
}

void sent_hear(const side_t *side, regx_key_t *key)
{
    pair_hear(side->socket, key, sizeof(*key));
}

void sent_forget(sent_t *sent, bool staged)
{
    if (staged) {
        regx_shm_unstage(sent->side->transport, &sent->key);
    }
    memset(sent->data, 0xdd, sent->length); /* nobody reads it any more */
    free(sent->data);
}

static void got(regx_get_t *get, regx_status_t status)
{
    taken_t *taken = get->context;

    taken->ended++;
    taken->status = status;
}

regx_status_t taken_begin(taken_t *taken, const side_t *side, size_t length, const regx_key_t *key,
                          bool staged)
{
    *taken = (taken_t){.bytes = malloc(length + 2 * GUARD)};
    REQUIRE(taken->bytes != NULL);
    memset(taken->bytes, 0xee, length + 2 * GUARD);
    taken->get = (regx_get_t){.local = taken->bytes + GUARD,
                              .length = length,
                              .key = *key,
                              .staged = staged,
                              .done = got,
                              .context = taken};
    memset(taken->get.scratch, 0xee, sizeof(taken->get.scratch)); /* as of one used before */
    return regx_shm_get(side->conn, &taken->get);
}

void taken_await(side_t *side, const taken_t *taken)
{
    while (taken->ended == 0) {
        progress(side);
    }
}

void taken_drop(taken_t *taken)
{
    for (size_t i = 0; i < GUARD; i++) {
        REQUIRE(taken->bytes[i] == 0xee);
        REQUIRE(taken->bytes[GUARD + taken->get.length + i] == 0xee);
    }
    free(taken->bytes);
}

void taken_assert_whole(taken_t *taken, uint64_t stream)
{
    REQUIRE(taken->ended == 1 && taken->status == REGX_OK);
    REQUIRE(unit_is_filled(taken->bytes + GUARD, taken->get.length, stream));
    taken_drop(taken);
}

uint64_t stage_count(const side_t *side, unsigned counter)
{
    return side->counters.transport[counter];
}

uint64_t stage_ready(const side_t *side, unsigned stage)
{
    return (uint32_t)atomic_load(&regx_shm_main(side->shm)->stage.cells[stage].ready);
}

void stage_work_in_vain(side_t *side)
{
    for (unsigned i = 0; i < 100; i++) {
        REQUIRE(regx_shm_progress(side->transport) == 0);
    }
}

void stage_compute_with_two(side_t *side)
{
    sent_t sent[2];

    attach(side);
    for (unsigned i = 0; i < 2; i++) {
        REQUIRE(sent_expose(&sent[i], side, MOST, i));
        sent_tell(&sent[i]);
    }
    meet(side);
    for (unsigned i = 0; i < 2; i++) {
        sent_forget(&sent[i], true);
    }
    meet(side);
}
