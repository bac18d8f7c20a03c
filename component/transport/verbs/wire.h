/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What verbs puts on the wire, apart from the application's bytes: the structures below as they
 * are, little-endian.
 *
 * Over the RC queue pairs go frames. The immediate data of each says in its highest byte the kind, in
 * its lowest the tag; that of an RDMA WRITE (kind WRITTEN) in the lower three what the sender tells
 * of it.
 */
#ifndef REGX_VERBS_WIRE_H
#define REGX_VERBS_WIRE_H

#include <string.h>

#include "transport/transport.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "see above");

#define REGX_VERBS_VERSION 11
#define REGX_VERBS_ADDRESS_SIZE 36
#define REGX_CM_MESSAGE_SIZE 104
#define REGX_VERBS_GID_SIZE 16

#define REGX_VERBS_MTU_MAX 5 /* 4096 bytes, as verbs counts */
#define REGX_VERBS_INFINIBAND 1
#define REGX_VERBS_ETHERNET 2

/* Flags of an address. */
#define REGX_VERBS_NEEDS_GRH 1
#define REGX_VERBS_ANY_SUBNET 2

/* An address: what a process publishes of one port. */
typedef struct regx_verbs_address {
    uint8_t version;
    uint8_t link_layer; /* REGX_VERBS_INFINIBAND, REGX_VERBS_ETHERNET */
    uint8_t gid_type;   /* 0 InfiniBand or RoCE v1, 2 RoCE v2 */
    uint8_t mtu;        /* as verbs counts it */
    uint16_t lid;
    uint16_t pkey;
    uint32_t qpn;  /* UD queue pair */
    uint32_t qkey; /* its Q_Key */
    uint8_t gid[REGX_VERBS_GID_SIZE];
    uint8_t flags;
    uint8_t network_bits; /* of the GID that name its IP network; 0: not known, or InfiniBand */
    uint8_t zero[2];
} regx_verbs_address_t;
_Static_assert(sizeof(regx_verbs_address_t) == REGX_VERBS_ADDRESS_SIZE, "no gaps");

typedef enum regx_cm_kind {
    REGX_CM_REQUEST = 1,
    REGX_CM_ACCEPT = 2,
    REGX_CM_READY = 3
} regx_cm_kind_t;

/* A message of connection management (ep.h), sent from one UD queue pair to the other. It has what
 * the receiver needs to connect its RC queue pair to the sender's. */
typedef struct regx_cm_message {
    uint8_t version;
    uint8_t kind;  /* regx_cm_kind_t */
    uint8_t reads; /* RDMA READs that the sender answers at once */
    uint8_t zero;
    uint32_t qpn; /* the sender's RC queue pair */
    uint32_t psn; /* the first packet number that it sends */
    uint32_t pool_key;
    uint64_t from; /* ids of the processes */
    uint64_t to;
    uint64_t pool; /* where the sender's pool begins */
    uint64_t pool_size;
    uint64_t epoch; /* of the sender's queue pair */
    uint64_t known; /* of the receiver's that it is connected to; REQUEST: 0 */
    regx_verbs_address_t address;
    uint32_t zeros;
} regx_cm_message_t;
_Static_assert(sizeof(regx_cm_message_t) == REGX_CM_MESSAGE_SIZE, "no gaps");

typedef enum regx_verbs_kind {
    REGX_VERBS_FRAME = 1,
    REGX_VERBS_GOODBYE = 2, /* nothing follows by this queue pair; tag: regx_verbs_goodbye_t */
    REGX_VERBS_WRITTEN = 3  /* no frame: by RDMA WRITE */
} regx_verbs_kind_t;

typedef enum regx_verbs_goodbye {
    REGX_VERBS_DISCONNECTED = 0,
    REGX_VERBS_EVICTED = 1 /* only this queue pair ends: another peer needs one */
} regx_verbs_goodbye_t;

static inline uint32_t regx_verbs_immediate(regx_verbs_kind_t kind, uint32_t value)
{
    return (uint32_t)kind << 24 | value;
}

/* How a peer names registered memory. It fills a regx_key_t, which the other layers carry unread. */
typedef struct regx_verbs_key {
    uint64_t base;
    uint64_t length;
    uint32_t rkey; /* the device's */
    uint32_t zero;
} regx_verbs_key_t;
_Static_assert(sizeof(regx_verbs_key_t) == REGX_KEY_SIZE, "no gaps");

static inline regx_verbs_key_t regx_verbs_key_unpack(const regx_key_t *packed)
{
    regx_verbs_key_t key;

    memcpy(&key, packed->bytes, sizeof(key));
    return key;
}

/* false: it is not an address of this version. */
static inline bool regx_verbs_address_read(const void *bytes, size_t length,
                                           regx_verbs_address_t *address)
{
    const uint8_t flags = REGX_VERBS_NEEDS_GRH | REGX_VERBS_ANY_SUBNET;

    if (length != sizeof(*address)) {
        return false;
    }
    memcpy(address, bytes, sizeof(*address));
    return address->version == REGX_VERBS_VERSION &&
           (address->link_layer == REGX_VERBS_INFINIBAND ||
            address->link_layer == REGX_VERBS_ETHERNET) &&
           address->mtu >= 1 && address->mtu <= REGX_VERBS_MTU_MAX &&
           (address->flags & ~flags) == 0 && address->network_bits <= 8 * REGX_VERBS_GID_SIZE &&
           address->zero[0] == 0 && address->zero[1] == 0;
}

static inline bool regx_verbs_begin_alike(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    const unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* Whether the two ports are in one subnet, as far as their addresses tell, or need not be.
 * InfiniBand's subnet is the first half of the GID. */
static inline bool regx_verbs_share_subnet(const regx_verbs_address_t *a,
                                           const regx_verbs_address_t *b)
{
    const uint8_t bits = a->network_bits < b->network_bits ? a->network_bits : b->network_bits;

    return ((a->flags | b->flags) & REGX_VERBS_ANY_SUBNET) != 0 ||
           regx_verbs_begin_alike(a->gid, b->gid,
                                  a->link_layer == REGX_VERBS_INFINIBAND ? 64 : bits);
}

#endif
