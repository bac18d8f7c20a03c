/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Control messages, the CTS and the exposure: what is accepted has the form of its type, so nothing
 * that matters is read past, and nothing that is not understood passes.
 */
#include "fuzz.h"

#include "rendezvous/control.h"

/* By what control.h says of each type, in numbers of its own. */
static bool is_well_formed(const regx_control_t *control, size_t size)
{
    const unsigned bits = control->bits, count = control->slot_count;

    switch (control->type) {
    case REGX_CONTROL_READY:
    case REGX_CONTROL_DIFFERS:
        return size == 40 && bits == 0 && count == 0;
    case REGX_CONTROL_NACK:
        return size == 40 && (bits & ~6u) == 0 && count == 0;
    case REGX_CONTROL_ATP_SLOT:
    case REGX_CONTROL_ATP_CHUNK:
        return bits <= 1 && size == 40 + 8 * bits && count == 0;
    case REGX_CONTROL_RKEY:
        return size == 80 && bits <= 1 && count == 0;
    case REGX_CONTROL_CTS_SLOTS:
        return bits == 0 && count >= 1 && count <= 4 && size == 24 + 8 * count;
    case REGX_CONTROL_CTS_CHUNK:
        return size == 80 && bits == 0 && count == 0;
    case REGX_CONTROL_ATS:
        return size == 32 && (bits & ~12u) == 0 && count == 0;
    case REGX_CONTROL_REVOKE:
    case REGX_CONTROL_RESUME:
        return size == 24 && bits == 0 && count == 0;
    case REGX_CONTROL_ARRIVED:
        return bits <= 1 && size == 24 + 24 * bits && count == 0;
    default:
        return false;
    }
}

static bool is_good_control(const uint8_t *bytes, size_t size)
{
    regx_control_t control = {0};

    if (!regx_control_unpack(bytes, size, &control)) {
        return false;
    }
    fuzz_check(control.version == REGX_CONTROL_VERSION && is_well_formed(&control, size));
    fuzz_check(memcmp(&control, bytes, size) == 0);
    return true;
}

static bool is_good_cts(const uint8_t *bytes, regx_grants_t grants)
{
    regx_cts_t cts;

    if (!regx_cts_unpack(bytes, grants, &cts)) {
        return false;
    }
    fuzz_check(memcmp(&cts, bytes, sizeof(cts)) == 0 && cts.version == REGX_CONTROL_VERSION);
    fuzz_check(cts.bits < 64 && cts.count <= (grants == REGX_GRANTS_SLOTS   ? REGX_CTS_SLOTS
                                              : grants == REGX_GRANTS_CHUNK ? 1
                                                                            : REGX_CTS_RKEYS));
    return true;
}

static bool is_good_exposure(const uint8_t *bytes)
{
    regx_exposure_t exposure;

    if (!regx_exposure_unpack(bytes, &exposure)) {
        return false;
    }
    fuzz_check(regx_exposure_is(bytes) && memcmp(&exposure, bytes, sizeof(exposure)) == 0);
    fuzz_check(exposure.has_checksum <= 1 && exposure.length > 0);
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
        accepted = is_good_control(bytes, length);
    } else if (length == REGX_CTS_SIZE) {
        accepted = kind == 4 ? is_good_exposure(bytes)
                             : is_good_cts(bytes, kind == 1   ? REGX_GRANTS_SLOTS
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
         .bits = REGX_CONTROL_CHECKSUM,
         .checksum = 12345},
        {.type = REGX_CONTROL_NACK,
         .to = to,
         .from = from,
         .length = 65536,
         .bits = REGX_CONTROL_FAILED},
        {.type = REGX_CONTROL_RKEY, .to = to, .from = from, .length = 65536, .offset = 65536},
        {.type = REGX_CONTROL_CTS_SLOTS, .to = to, .slot_count = 2, .slots = {{0, 99}, {4096, 1}}},
        {.type = REGX_CONTROL_CTS_CHUNK, .to = to, .length = 65536, .start = 4096},
        {.type = REGX_CONTROL_ATS, .to = to, .length = 65536, .bits = REGX_CONTROL_UNREAD},
        {.type = REGX_CONTROL_DIFFERS, .to = to, .from = from},
        {.type = REGX_CONTROL_REVOKE, .to = to, .offset = 65536},
        {.type = REGX_CONTROL_RESUME, .to = to, .offset = 65536},
        {.type = REGX_CONTROL_ARRIVED, .to = to, .offset = 65536, .bits = REGX_CONTROL_CHECKSUM},
    };

    return number < sizeof(messages) / sizeof(messages[0])
               ? regx_control_pack(&messages[number], at)
               : 0;
}

static size_t seed_handle(unsigned kind, uint8_t at[REGX_CTS_SIZE])
{
    regx_cts_t cts = {.version = REGX_CONTROL_VERSION,
                      .bits = REGX_CTS_PIECES,
                      .count = 1,
                      .recv = to,
                      .length = 1 << 20};
    const regx_exposure_t exposure = {.version = REGX_CONTROL_VERSION,
                                      .path = REGX_EXPOSURE,
                                      .has_checksum = 1,
                                      .length = 1 << 20,
                                      .start = 4096};

    memset(at, 0, REGX_CTS_SIZE);
    if (kind == 4) {
        memcpy(at, &exposure, sizeof(exposure));
        return REGX_CTS_SIZE;
    }
    if (kind == 1) {
        cts.slots[0] = (regx_slot_grant_t){4096, 1024};
    } else if (kind == 2) {
        cts.chunk_length = 65536;
    } else {
        cts.rkey_max = 65536;
    }
    memcpy(at, &cts, sizeof(cts));
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
