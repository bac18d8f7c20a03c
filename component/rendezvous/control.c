/* SPDX-License-Identifier: BSD-3-Clause */

#include "rendezvous/control.h"

#include <assert.h>
#include <string.h>

#define UP_TO(field) offsetof(regx_control_t, field)

/* The bytes of each type, to which a checksum is added if they end before it; and the bits it may have. */
static const struct {
    uint8_t length;
    uint8_t bits;
} forms[] = {
    [REGX_CONTROL_READY] = {UP_TO(checksum), 0},
    [REGX_CONTROL_ATP_SLOT] = {UP_TO(checksum), REGX_CONTROL_CHECKSUM},
    [REGX_CONTROL_ATP_CHUNK] = {UP_TO(checksum), REGX_CONTROL_CHECKSUM},
    [REGX_CONTROL_NACK] = {UP_TO(checksum), REGX_CONTROL_PERMANENT | REGX_CONTROL_FAILED},
    [REGX_CONTROL_DIFFERS] = {UP_TO(checksum), 0},
    [REGX_CONTROL_CTS_SLOTS] = {UP_TO(slots), 0},
    [REGX_CONTROL_CTS_CHUNK] = {REGX_CONTROL_MAX, 0},
    [REGX_CONTROL_REVOKE] = {UP_TO(length), 0},
    [REGX_CONTROL_ARRIVED] = {UP_TO(length), REGX_CONTROL_CHECKSUM},
    [REGX_CONTROL_RESUME] = {UP_TO(length), 0},
};

enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

static size_t length_of(const regx_control_t *control)
{
    const size_t length =
        forms[control->type].length + control->slot_count * sizeof(control->slots[0]);
    const bool longer = (control->bits & REGX_CONTROL_CHECKSUM) != 0 && length < UP_TO(start);

    return longer ? UP_TO(start) : length;
}

size_t regx_control_pack(const regx_control_t *control, uint8_t *bytes)
{
    const size_t length = length_of(control);

    memcpy(bytes, control, length);
    bytes[offsetof(regx_control_t, version)] = REGX_CONTROL_VERSION;
    return length;
}

uint32_t regx_immediate_pack(const regx_control_t *atp, uint64_t chunk_size)
{
    const uint32_t head =
        REGX_IMMEDIATE_ATP | regx_immediate_low(atp->to.generation, REGX_IMMEDIATE_GENERATION_BITS)
                                 << REGX_IMMEDIATE_WHAT_BITS;

    if ((atp->bits & REGX_CONTROL_CHECKSUM) != 0) {
        return 0;
    }
    if (atp->type == REGX_CONTROL_ATP_SLOT) {
        const uint32_t unit = atp->slot / REGX_IMMEDIATE_SLOT_UNIT;
        const bool whole = atp->slot % REGX_IMMEDIATE_SLOT_UNIT == 0;

        return whole && unit >> REGX_IMMEDIATE_WHAT_BITS == 0 ? head | unit : 0;
    }
    if (atp->offset % chunk_size != 0 ||
        atp->offset / chunk_size >> REGX_IMMEDIATE_CHUNK_BITS != 0 ||
        atp->to.id >> REGX_IMMEDIATE_RECV_BITS != 0) {
        return 0;
    }
    return head | REGX_IMMEDIATE_CHUNK |
           (uint32_t)(atp->offset / chunk_size) << REGX_IMMEDIATE_RECV_BITS | atp->to.id;
}

bool regx_control_unpack(const void *bytes, size_t length, regx_control_t *control)
{
    *control = (regx_control_t){.version = 0};
    if (length > sizeof(*control)) {
        return false;
    }
    memcpy(control, bytes, length); /* once: the peer may still write what it sent */
    const unsigned slots_min = control->type == REGX_CONTROL_CTS_SLOTS ? 1 : 0;
    const unsigned slots_max = slots_min * REGX_MESSAGE_SLOTS;

    return control->version == REGX_CONTROL_VERSION && control->type >= REGX_CONTROL_READY &&
           control->type < FORMS && (control->bits & ~(unsigned)forms[control->type].bits) == 0 &&
           control->slot_count >= slots_min && control->slot_count <= slots_max &&
           length == length_of(control);
}

bool regx_cts_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_grants_t grants, regx_cts_t *cts)
{
    memcpy(cts, bytes, sizeof(*cts));
    if (cts->version != REGX_CONTROL_VERSION || cts->bits >= 2 * REGX_CTS_REVOCABLE ||
        cts->why <= REGX_WHY_eager || cts->why >= REGX_WHY_COUNT) {
        return false;
    }
    return grants == REGX_GRANTS_SLOTS ? cts->count <= REGX_CTS_SLOTS : cts->count == 1;
}

bool regx_exposure_unpack(const uint8_t bytes[REGX_CTS_SIZE], regx_exposure_t *exposure)
{
    memcpy(exposure, bytes, sizeof(*exposure));
    return exposure->version == REGX_CONTROL_VERSION && exposure->path == REGX_EXPOSURE &&
           exposure->has_checksum <= 1 && exposure->length > 0;
}

static regx_status_t send_one(regx_conn_t *conn, const regx_control_t *control)
{
    uint8_t bytes[REGX_CONTROL_MAX];
    const size_t length = regx_control_pack(control, bytes);

    return conn->transport->ops->send(conn, REGX_TAG_CONTROL, bytes, length, NULL, NULL, 0);
}

void regx_control_post(regx_conn_t *conn, regx_outbox_t *outbox, const regx_control_t *control)
{
    if (outbox->count > 0 || send_one(conn, control) != REGX_OK) {
        assert(outbox->count < outbox->room);
        outbox->messages[outbox->count++] = *control;
    }
}

regx_status_t regx_control_flush(regx_conn_t *conn, regx_outbox_t *outbox)
{
    regx_control_t *first = outbox->messages;
    regx_status_t status = REGX_OK;

    while (outbox->count > 0 && (status = send_one(conn, first)) == REGX_OK) {
        memmove(first, first + 1, --outbox->count * sizeof(*first));
    }
    return status;
}
