/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What verbs puts on the wire, little-endian, apart from the application's bytes.
 *
 * An address is what a process publishes of one port, 36 bytes:
 *
 *      0 u8  version (9)              1 u8  link layer: 1 InfiniBand, 2 Ethernet
 *      2 u8  GID type: 0 InfiniBand or RoCE v1, 2 RoCE v2            3 u8  MTU, as verbs counts it
 *      4 u16 LID                      6 u16 partition key
 *      8 u32 UD queue pair           12 u32 its Q_Key
 *     16 16B GID
 *     32 u8  flags: 1 the port is reached with a GRH only, 2 also from other subnets
 *     33 u8  bits of the GID that name its IP network; 0: not known, or InfiniBand
 *     34 2B zero
 *
 * A message of connection management (cm.h), sent from one UD queue pair to the other, 100 bytes.
 * It has what the receiver needs to connect its RC queue pair to the sender's.
 *
 *      0 u8  version (9)              1 u8  kind: 1 REQUEST, 2 ACCEPT, 3 READY
 *      2 u8  RDMA READs that the sender answers at once              3 u8  zero
 *      4 u32 the sender's RC queue pair
 *      8 u32 the first packet number that it sends
 *     12 u32 key of the sender's pool
 *     16 u64 id of the sender        24 u64 id of the receiver
 *     32 u64 where the sender's pool begins     40 u64 its length
 *     48 u64 epoch of the sender's queue pair
 *     56 u64 epoch of the receiver's queue pair that it is connected to; REQUEST: 0
 *     64 36B the sender's address
 *
 * Over the RC queue pairs go frames. What is longer than a receive buffer goes in segments, all but
 * the last full. The immediate data of each says in its highest byte the kind, in its lowest the
 * tag; that of an RDMA WRITE (kind WRITTEN) in the lower three what the sender tells of it.
 */
#ifndef REGX_VERBS_WIRE_H
#define REGX_VERBS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/little_endian.h"
#include "base/status.h"
#include "transport/transport.h"

#define REGX_VERBS_VERSION 9
#define REGX_VERBS_ADDRESS_SIZE 36
#define REGX_CM_MESSAGE_SIZE 100
#define REGX_VERBS_GID_SIZE 16

#define REGX_VERBS_INFINIBAND 1
#define REGX_VERBS_ETHERNET 2

/* Flags of an address. */
#define REGX_VERBS_NEEDS_GRH 1
#define REGX_VERBS_ANY_SUBNET 2

typedef struct regx_verbs_address {
    uint8_t link_layer;
    uint8_t gid_type;
    uint8_t mtu;
    uint8_t flags;
    uint8_t network_bits;
    uint16_t lid;
    uint16_t pkey;
    uint32_t qpn;
    uint32_t qkey;
    uint8_t gid[REGX_VERBS_GID_SIZE];
} regx_verbs_address_t;

typedef enum regx_cm_kind {
    REGX_CM_REQUEST = 1,
    REGX_CM_ACCEPT = 2,
    REGX_CM_READY = 3
} regx_cm_kind_t;

typedef struct regx_cm_message {
    regx_cm_kind_t kind;
    uint8_t reads; /* that the sender answers at once */
    uint32_t qpn;
    uint32_t psn;
    uint32_t pool_key;
    uint64_t from;
    uint64_t to;
    uint64_t pool;
    uint64_t pool_size;
    uint64_t epoch;
    uint64_t known; /* the receiver's epoch, or 0 */
    regx_verbs_address_t address;
} regx_cm_message_t;

typedef enum regx_segment {
    REGX_SEGMENT_LAST = 1, /* or the only one: what it ends is delivered */
    REGX_SEGMENT_MORE = 2,
    REGX_SEGMENT_GOODBYE = 3, /* nothing follows by this queue pair */
    REGX_SEGMENT_WRITTEN = 4  /* no frame: by RDMA WRITE */
} regx_segment_t;

static inline uint32_t regx_segment_pack(regx_segment_t kind, uint32_t value)
{
    return (uint32_t)kind << 24 | value;
}

/* How a peer names registered memory: where it begins, its length, and the device's remote key. It
 * fills a regx_key_t, which the other rooms carry unread. */
typedef struct regx_verbs_key {
    uint64_t base;
    uint64_t length;
    uint32_t rkey;
} regx_verbs_key_t;

_Static_assert(REGX_KEY_SIZE >= 20, "a key fits");

static inline regx_key_t regx_verbs_key_pack(const regx_verbs_key_t *key)
{
    regx_key_t packed = {{0}};

    regx_le_put(packed.bytes, key->base, 8);
    regx_le_put(packed.bytes + 8, key->length, 8);
    regx_le_put(packed.bytes + 16, key->rkey, 4);
    return packed;
}

static inline regx_verbs_key_t regx_verbs_key_unpack(const regx_key_t *packed)
{
    return (regx_verbs_key_t){.base = regx_le_get(packed->bytes, 8),
                              .length = regx_le_get(packed->bytes + 8, 8),
                              .rkey = (uint32_t)regx_le_get(packed->bytes + 16, 4)};
}

void regx_verbs_address_pack(const regx_verbs_address_t *address,
                             uint8_t bytes[REGX_VERBS_ADDRESS_SIZE]);
/* REGX_OK; REGX_INVALID: it is not an address of this version. */
regx_status_t regx_verbs_address_unpack(const void *bytes, size_t length,
                                        regx_verbs_address_t *address);
bool regx_verbs_address_equals(const regx_verbs_address_t *a, const regx_verbs_address_t *b);

/* Whether the two ports are in one subnet, as far as their addresses tell, or need not be. */
bool regx_verbs_share_subnet(const regx_verbs_address_t *a, const regx_verbs_address_t *b);

void regx_cm_message_pack(const regx_cm_message_t *message, uint8_t bytes[REGX_CM_MESSAGE_SIZE]);
/* REGX_OK; REGX_INVALID: it is not a message of this version. */
regx_status_t regx_cm_message_unpack(const void *bytes, size_t length, regx_cm_message_t *message);

#endif
