/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/verbs/wire.h"

#define MTU_MAX 5 /* 4096 bytes, as verbs counts */

regx_status_t regx_verbs_address_read(const void *bytes, size_t length,
                                      regx_verbs_address_t *address)
{
    const uint8_t flags = REGX_VERBS_NEEDS_GRH | REGX_VERBS_ANY_SUBNET;

    if (length != sizeof(*address)) {
        return REGX_INVALID;
    }
    memcpy(address, bytes, sizeof(*address));
    const bool is_one = address->version == REGX_VERBS_VERSION &&
                        (address->link_layer == REGX_VERBS_INFINIBAND ||
                         address->link_layer == REGX_VERBS_ETHERNET) &&
                        address->mtu >= 1 && address->mtu <= MTU_MAX &&
                        (address->flags & ~flags) == 0 &&
                        address->network_bits <= 8 * REGX_VERBS_GID_SIZE && address->zero[0] == 0 &&
                        address->zero[1] == 0;
    return is_one ? REGX_OK : REGX_INVALID;
}

static bool begin_alike(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    const unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* InfiniBand's subnet is the first half of the GID. */
bool regx_verbs_share_subnet(const regx_verbs_address_t *a, const regx_verbs_address_t *b)
{
    const uint8_t bits = a->network_bits < b->network_bits ? a->network_bits : b->network_bits;

    return ((a->flags | b->flags) & REGX_VERBS_ANY_SUBNET) != 0 ||
           begin_alike(a->gid, b->gid, a->link_layer == REGX_VERBS_INFINIBAND ? 64 : bits);
}

regx_status_t regx_cm_message_read(const void *bytes, size_t length, regx_cm_message_t *message)
{
    if (length != sizeof(*message)) {
        return REGX_INVALID;
    }
    memcpy(message, bytes, sizeof(*message));
    if (message->version != REGX_VERBS_VERSION || message->kind < REGX_CM_REQUEST ||
        message->kind > REGX_CM_READY || message->zero != 0 || message->zeros != 0 ||
        message->qpn == 0 || message->qpn > 0xffffff || message->psn > 0xffffff ||
        message->epoch == 0 || (message->known == 0) != (message->kind == REGX_CM_REQUEST) ||
        message->pool + message->pool_size < message->pool) {
        return REGX_INVALID;
    }
    return regx_verbs_address_read(&message->address, sizeof(message->address), &message->address);
}
