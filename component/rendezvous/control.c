/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/control.h"

#include <string.h>

#include "base/little_endian.h"

/* Where the next byte of a message is to be written. */
typedef struct regx_cursor {
    uint8_t *at;
} regx_cursor_t;

static inline void put_number(regx_cursor_t *to, uint64_t value, unsigned size)
{
    regx_le_put(to->at, value, size);
    to->at += size;
}

static inline uint64_t get_number(const uint8_t **from, unsigned size)
{
    const uint64_t value = regx_le_get(*from, size);

    *from += size;
    return value;
}

static inline void put_handle(regx_cursor_t *to, regx_handle_t handle)
{
    put_number(to, handle.id, 4);
    put_number(to, handle.generation, 4);
}

static inline regx_handle_t get_handle(const uint8_t **from)
{
    regx_handle_t handle;

    handle.id = (uint32_t)get_number(from, 4);
    handle.generation = (uint32_t)get_number(from, 4);
    return handle;
}

static inline void put_slots(regx_cursor_t *to, const regx_slot_grant_t *slots, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        put_number(to, slots[i].slot, 4);
        put_number(to, slots[i].length, 4);
    }
}

static inline void get_slots(const uint8_t **from, regx_slot_grant_t *slots, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        slots[i].slot = (uint32_t)get_number(from, 4);
        slots[i].length = (uint32_t)get_number(from, 4);
    }
}

static inline void put_key(regx_cursor_t *to, const regx_key_t *key)
{
    memcpy(to->at, key->bytes, REGX_KEY_SIZE);
    to->at += REGX_KEY_SIZE;
}

static inline void get_key(const uint8_t **from, regx_key_t *key)
{
    memcpy(key->bytes, *from, REGX_KEY_SIZE);
    *from += REGX_KEY_SIZE;
}

static unsigned count_grants(const regx_cts_t *cts)
{
    return cts->grants == REGX_GRANTS_SLOTS   ? cts->slot_count
           : cts->grants == REGX_GRANTS_RKEYS ? cts->rkeys
                                              : cts->chunk_length > 0;
}

/* Bits of the CTS. */
enum {
    CTS_FALLBACK = 1,
    CTS_VERIFY = 2,
    CTS_PIECES = 4,
    CTS_SUSPECT = 8,
    CTS_REVOCABLE = 16,
    CTS_OPTIMISTIC = 32,
    CTS_BITS = 63
};

void regx_cts_pack(const regx_cts_t *cts, uint8_t bytes[REGX_CTS_SIZE])
{
    regx_cursor_t to = {bytes};

    memset(bytes, 0, REGX_CTS_SIZE);
    put_number(&to, REGX_CONTROL_VERSION, 1);
    put_number(&to, cts->path, 1);
    put_number(&to, count_grants(cts), 2);
    put_handle(&to, cts->recv);
    put_number(&to,
               (cts->fallback ? CTS_FALLBACK : 0) | (cts->verify ? CTS_VERIFY : 0) |
                   (cts->pieces ? CTS_PIECES : 0) | (cts->suspect ? CTS_SUSPECT : 0) |
                   (cts->revocable ? CTS_REVOCABLE : 0) | (cts->optimistic ? CTS_OPTIMISTIC : 0),
               4);
    put_number(&to, cts->length, 8);
    if (cts->grants == REGX_GRANTS_SLOTS) {
        put_slots(&to, cts->slots, cts->slot_count);
    } else if (cts->grants == REGX_GRANTS_RKEYS) {
        put_number(&to, cts->rkey_max, 8);
    } else if (cts->chunk_length > 0) {
        put_number(&to, cts->chunk_length, 8);
        put_number(&to, cts->chunk_start, 8);
        put_key(&to, &cts->key);
    }
}

static bool get_first_slots(const uint8_t **from, unsigned count, regx_cts_t *cts)
{
    if (count > REGX_CTS_SLOTS) {
        return false;
    }
    cts->slot_count = count;
    get_slots(from, cts->slots, count);
    return true;
}

static bool get_chunk(const uint8_t **from, unsigned count, regx_cts_t *cts)
{
    if (count == 0) {
        return true;
    }
    cts->chunk_length = get_number(from, 8);
    cts->chunk_start = get_number(from, 8);
    get_key(from, &cts->key);
    return count == 1 && cts->chunk_length > 0;
}

static bool get_rkeys(const uint8_t **from, unsigned count, regx_cts_t *cts)
{
    cts->rkeys = count;
    cts->rkey_max = get_number(from, 8);
    return count >= 1 && count <= REGX_CTS_RKEYS && cts->rkey_max > 0;
}

unsigned regx_cts_path(const uint8_t bytes[REGX_CTS_SIZE])
{
    return bytes[1];
}

bool regx_cts_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_grants_t grants, regx_cts_t *cts)
{
    const uint8_t *from = bytes;
    const uint64_t version = get_number(&from, 1);
    const uint64_t path = get_number(&from, 1);
    const unsigned count = (unsigned)get_number(&from, 2);

    memset(cts, 0, sizeof(*cts));
    cts->recv = get_handle(&from);
    const uint64_t bits = get_number(&from, 4);
    cts->length = get_number(&from, 8);
    if (version != REGX_CONTROL_VERSION || bits > CTS_BITS) {
        return false;
    }
    cts->fallback = (bits & CTS_FALLBACK) != 0;
    cts->verify = (bits & CTS_VERIFY) != 0;
    cts->pieces = (bits & CTS_PIECES) != 0;
    cts->suspect = (bits & CTS_SUSPECT) != 0;
    cts->revocable = (bits & CTS_REVOCABLE) != 0;
    cts->optimistic = (bits & CTS_OPTIMISTIC) != 0;
    cts->path = (regx_path_t)path;
    cts->grants = grants;
    return grants == REGX_GRANTS_SLOTS   ? get_first_slots(&from, count, cts)
           : grants == REGX_GRANTS_CHUNK ? get_chunk(&from, count, cts)
                                         : get_rkeys(&from, count, cts);
}

/* In the place of a CTS's path. */
#define EXPOSURE 255u

void regx_exposure_pack(const regx_exposure_t *exposure, uint8_t bytes[REGX_CTS_SIZE])
{
    regx_cursor_t to = {bytes};

    memset(bytes, 0, REGX_CTS_SIZE);
    put_number(&to, REGX_CONTROL_VERSION, 1);
    put_number(&to, EXPOSURE, 1);
    put_number(&to, 0, 2);
    put_number(&to, exposure->has_checksum, 4);
    put_number(&to, exposure->length, 8);
    put_key(&to, &exposure->key);
    put_number(&to, exposure->start, 8);
    put_number(&to, exposure->has_checksum ? exposure->checksum : 0, 8);
}

bool regx_exposure_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_exposure_t *exposure)
{
    const uint8_t *from = bytes;
    const uint64_t version = get_number(&from, 1);
    const uint64_t what = get_number(&from, 1);
    const uint64_t unused = get_number(&from, 2);
    const uint64_t has_checksum = get_number(&from, 4);

    exposure->has_checksum = has_checksum == 1;
    exposure->length = get_number(&from, 8);
    get_key(&from, &exposure->key);
    exposure->start = get_number(&from, 8);
    exposure->checksum = get_number(&from, 8);
    return version == REGX_CONTROL_VERSION && what == EXPOSURE && unused == 0 &&
           has_checksum <= 1 && exposure->length > 0;
}

bool regx_exposure_is(const uint8_t bytes[REGX_CTS_SIZE])
{
    return bytes[1] == EXPOSURE;
}

/* Why something is not acknowledged (NACK). */
enum { PERMANENT = 1, FAILED = 2 };

static uint32_t why(const regx_control_t *control)
{
    return control->permanent ? PERMANENT : control->failed ? FAILED : 0;
}

static bool may_have_checksum(regx_control_type_t type)
{
    return type == REGX_CONTROL_ATP_SLOT || type == REGX_CONTROL_ATP_CHUNK ||
           type == REGX_CONTROL_RKEY;
}

/* Why something that was advertised was not read (ATS). */
enum { UNREAD = 1, UNREAD_FAILED = 2 };

static uint32_t why_unread(const regx_control_t *control)
{
    return !control->unread ? 0 : control->failed ? UNREAD_FAILED : UNREAD;
}

static void pack_from_sender(regx_cursor_t *to, const regx_control_t *control)
{
    put_handle(to, control->from);
    if (control->type == REGX_CONTROL_READY || control->type == REGX_CONTROL_DIFFERS) {
        return;
    }
    if (control->type == REGX_CONTROL_RKEY) {
        put_number(to, control->length, 4);
        put_number(to, control->offset, 8);
        put_number(to, control->start, 8);
        put_key(to, &control->key);
    } else {
        put_number(to, control->type == REGX_CONTROL_ATP_SLOT ? control->slot : why(control), 4);
        put_number(to, control->offset, 8);
        put_number(to, control->length, 8);
    }
    if (may_have_checksum(control->type) && control->has_checksum) {
        put_number(to, control->checksum, 8);
    }
}

#define CHECKSUM_SIZE 8

/* Messages of the receiver with an offset alone, or a checksum besides. */
static bool is_of_agreement(regx_control_type_t type)
{
    return type == REGX_CONTROL_REVOKE || type == REGX_CONTROL_RESUME ||
           type == REGX_CONTROL_ARRIVED;
}

size_t regx_control_pack(const regx_control_t *control, uint8_t *bytes)
{
    regx_cursor_t to = {bytes};

    put_number(&to, REGX_CONTROL_VERSION, 1);
    put_number(&to, control->type, 1);
    put_number(&to, control->type == REGX_CONTROL_CTS_SLOTS ? control->slot_count : 0, 2);
    put_handle(&to, control->to);
    if (regx_control_from_sender(control->type)) {
        pack_from_sender(&to, control);
    } else if (control->type == REGX_CONTROL_CTS_SLOTS) {
        put_number(&to, 0, 4);
        put_number(&to, control->offset, 8);
        put_slots(&to, control->slots, control->slot_count);
    } else if (control->type == REGX_CONTROL_ATS) {
        put_number(&to, why_unread(control), 4);
        put_number(&to, control->offset, 8);
        put_number(&to, control->length, 8);
    } else if (is_of_agreement(control->type)) {
        put_number(&to, 0, 4);
        put_number(&to, control->offset, 8);
        if (control->has_checksum) {
            put_number(&to, control->checksum, CHECKSUM_SIZE);
        }
    } else {
        put_number(&to, control->length, 4);
        put_number(&to, control->offset, 8);
        put_number(&to, control->start, 8);
        put_key(&to, &control->key);
    }
    return (size_t)(to.at - bytes);
}

/* Whether a message of this type and number of grants may be that long. */
static bool fits(uint64_t type, unsigned count, size_t length)
{
    if (type != REGX_CONTROL_CTS_SLOTS && count != 0) {
        return false;
    }
    switch (type) {
    case REGX_CONTROL_READY:
    case REGX_CONTROL_DIFFERS:
        return length == 20;
    case REGX_CONTROL_ATP_SLOT:
    case REGX_CONTROL_ATP_CHUNK:
        return length == 40 || length == 40 + CHECKSUM_SIZE;
    case REGX_CONTROL_NACK:
        return length == 40;
    case REGX_CONTROL_RKEY:
        return length == 64 || length == 64 + CHECKSUM_SIZE;
    case REGX_CONTROL_CTS_SLOTS:
        return count >= 1 && count <= REGX_MESSAGE_SLOTS && length == 24 + 8 * (size_t)count;
    case REGX_CONTROL_CTS_CHUNK:
        return length == 56;
    case REGX_CONTROL_ATS:
        return length == 32;
    case REGX_CONTROL_REVOKE:
    case REGX_CONTROL_RESUME:
        return length == 24;
    case REGX_CONTROL_ARRIVED:
        return length == 24 || length == 24 + CHECKSUM_SIZE;
    default:
        return false;
    }
}

static bool unpack_from_sender(const uint8_t *from, size_t length, regx_control_t *control)
{
    const bool is_nack = control->type == REGX_CONTROL_NACK;

    control->from = get_handle(&from);
    if (control->type == REGX_CONTROL_READY || control->type == REGX_CONTROL_DIFFERS) {
        return true;
    }
    if (control->type == REGX_CONTROL_RKEY) {
        control->length = get_number(&from, 4);
        control->offset = get_number(&from, 8);
        control->start = get_number(&from, 8);
        get_key(&from, &control->key);
        control->has_checksum = length == 64 + CHECKSUM_SIZE;
    } else {
        control->slot = (uint32_t)get_number(&from, 4);
        control->offset = get_number(&from, 8);
        control->length = get_number(&from, 8);
        control->permanent = is_nack && control->slot == PERMANENT;
        control->failed = is_nack && control->slot == FAILED;
        control->has_checksum = length == 40 + CHECKSUM_SIZE;
    }
    control->checksum = control->has_checksum ? get_number(&from, CHECKSUM_SIZE) : 0;
    return control->type == REGX_CONTROL_ATP_SLOT || control->type == REGX_CONTROL_RKEY ||
           control->slot == 0 || control->permanent || control->failed;
}

bool regx_control_unpack(const void *bytes, size_t length, regx_control_t *control)
{
    uint8_t copy[REGX_CONTROL_MAX]; /* the peer may still write what it sent */
    const uint8_t *from = copy;

    if (length < 20 || length > sizeof(copy)) {
        return false;
    }
    memcpy(copy, bytes, length);
    const uint64_t version = get_number(&from, 1);
    const uint64_t type = get_number(&from, 1);
    const unsigned count = (unsigned)get_number(&from, 2);
    if (version != REGX_CONTROL_VERSION || !fits(type, count, length)) {
        return false;
    }
    control->type = (regx_control_type_t)type;
    control->to = get_handle(&from);
    if (regx_control_from_sender(control->type)) {
        return unpack_from_sender(from, length, control);
    }
    const uint64_t first = get_number(&from, 4);
    control->offset = get_number(&from, 8);
    if (control->type == REGX_CONTROL_CTS_SLOTS) {
        control->slot_count = count;
        get_slots(&from, control->slots, count);
        return first == 0;
    }
    if (control->type == REGX_CONTROL_ATS) {
        control->length = get_number(&from, 8);
        control->unread = first != 0;
        control->failed = first == UNREAD_FAILED;
        return first <= UNREAD_FAILED;
    }
    if (is_of_agreement(control->type)) {
        control->has_checksum = length == 24 + CHECKSUM_SIZE;
        control->checksum = control->has_checksum ? get_number(&from, CHECKSUM_SIZE) : 0;
        return first == 0;
    }
    control->length = first;
    control->start = get_number(&from, 8);
    get_key(&from, &control->key);
    return true;
}
