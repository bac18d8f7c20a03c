/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Control messages, the CTS and the exposure: what is accepted is packed again to the same bytes,
 * so nothing that matters is read past, and nothing that is not understood passes.
 */
#include "fuzz.h"

#include "rendezvous/control.h"

static bool is_same_control(const uint8_t *bytes, size_t size)
{
    regx_control_t control = {0};
    uint8_t again[REGX_CONTROL_MAX];

    if (!regx_control_unpack(bytes, size, &control)) {
        return false;
    }
    fuzz_check(regx_control_pack(&control, again) == size && memcmp(again, bytes, size) == 0);
    return true;
}

/* Of a CTS only what its grants need is read: the rest may be anything. */
static bool is_same_cts(const uint8_t *bytes, regx_grants_t grants)
{
    uint8_t packed[REGX_CTS_SIZE], again[REGX_CTS_SIZE];
    regx_cts_t cts;

    if (!regx_cts_unpack(bytes, grants, &cts)) {
        return false;
    }
    fuzz_check(cts.slot_count <= REGX_CTS_SLOTS && cts.rkeys <= REGX_CTS_RKEYS);
    regx_cts_pack(&cts, packed);
    fuzz_check(memcmp(packed, bytes, 24) == 0);
    fuzz_check(regx_cts_unpack(packed, grants, &cts));
    regx_cts_pack(&cts, again);
    fuzz_check(memcmp(again, packed, sizeof(again)) == 0);
    return true;
}

static bool is_same_exposure(const uint8_t *bytes)
{
    uint8_t packed[REGX_CTS_SIZE];
    regx_exposure_t exposure;

    if (!regx_exposure_unpack(bytes, &exposure)) {
        return false;
    }
    regx_exposure_pack(&exposure, packed);
    fuzz_check(regx_exposure_is(bytes) && memcmp(packed, bytes, 48) == 0);
    return true;
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size};
    const uint64_t kind = fuzz_number(&input, 1);
    size_t length = kind == 0 ? input.left : REGX_CTS_SIZE;
    uint8_t *bytes = fuzz_take(&input, &length);
    bool accepted = false;

    if (kind == 0) {
        accepted = is_same_control(bytes, length);
    } else if (length == REGX_CTS_SIZE) {
        accepted = kind == 4 ? is_same_exposure(bytes)
                             : is_same_cts(bytes, kind == 1   ? REGX_GRANTS_SLOTS
                                                  : kind == 2 ? REGX_GRANTS_CHUNK
                                                              : REGX_GRANTS_RKEYS);
    }
    free(bytes);
    return accepted;
}

static const regx_handle_t to = {3, 7}, from = {5, 9};

static size_t seed_control(unsigned number, uint8_t *at)
{
    const regx_control_t messages[] = {
        {.type = REGX_CONTROL_READY, .to = to, .from = from},
        {.type = REGX_CONTROL_ATP_SLOT, .to = to, .from = from, .slot = 4096, .length = 1024},
        {.type = REGX_CONTROL_ATP_CHUNK, .to = to, .from = from, .length = 65536},
        {.type = REGX_CONTROL_ATP_CHUNK,
         .to = to,
         .from = from,
         .length = 65536,
         .has_checksum = true,
         .checksum = 12345},
        {.type = REGX_CONTROL_NACK, .to = to, .from = from, .length = 65536, .failed = true},
        {.type = REGX_CONTROL_RKEY, .to = to, .from = from, .length = 65536, .offset = 65536},
        {.type = REGX_CONTROL_CTS_SLOTS, .to = to, .slot_count = 2, .slots = {{0, 99}, {4096, 1}}},
        {.type = REGX_CONTROL_CTS_CHUNK, .to = to, .length = 65536, .start = 4096},
        {.type = REGX_CONTROL_ATS, .to = to, .length = 65536, .unread = true},
        {.type = REGX_CONTROL_DIFFERS, .to = to, .from = from},
        {.type = REGX_CONTROL_REVOKE, .to = to, .offset = 65536},
        {.type = REGX_CONTROL_RESUME, .to = to, .offset = 65536},
        {.type = REGX_CONTROL_ARRIVED, .to = to, .offset = 65536, .has_checksum = true},
    };

    return number < sizeof(messages) / sizeof(messages[0])
               ? regx_control_pack(&messages[number], at)
               : 0;
}

static size_t seed_handle(unsigned kind, uint8_t at[REGX_CTS_SIZE])
{
    regx_cts_t cts = {.recv = to, .length = 1 << 20, .pieces = true};
    const regx_exposure_t exposure = {.length = 1 << 20, .start = 4096, .has_checksum = true};

    if (kind == 4) {
        regx_exposure_pack(&exposure, at);
        return REGX_CTS_SIZE;
    }
    if (kind == 1) {
        cts.slot_count = 1;
        cts.slots[0] = (regx_slot_grant_t){4096, 1024};
    } else if (kind == 2) {
        cts.grants = REGX_GRANTS_CHUNK;
        cts.chunk_length = 65536;
    } else {
        cts.grants = REGX_GRANTS_RKEYS;
        cts.rkeys = 4;
        cts.rkey_max = 65536;
    }
    regx_cts_pack(&cts, at);
    return REGX_CTS_SIZE;
}

size_t fuzz_seed(unsigned number, uint8_t *at)
{
    if (number < 4) {
        at[0] = (uint8_t)(number + 1);
        return 1 + seed_handle(number + 1, at + 1);
    }
    at[0] = 0;
    const size_t size = seed_control(number - 4, at + 1);

    return size > 0 ? 1 + size : 0;
}
