/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What verbs puts on the wire beside the data. All numbers are little-endian.
 *
 * The address, which a process publishes, 32 bytes:
 *
 *      0 u8  version (4)              1 u8  link layer: 1 InfiniBand, 2 Ethernet
 *      2 u8  GID type: 0 InfiniBand or RoCE v1, 2 RoCE v2            3 u8  MTU, as verbs counts it
 *      4 u16 LID                      6 u16 partition key
 *      8 u32 UD queue pair           12 u32 its Q_Key
 *     16 16B GID
 *
 * A hello, sent from one UD queue pair to the other, 88 bytes: what the receiver needs to connect
 * its RC queue pair for this peer to the sender's.
 *
 *      0 u8  version (4)              1 u8  flags: 1 the sender asks for a hello in return
 *      2 u8  RDMA READs that the sender answers at once
 *      3 u8  how often the sender, having said goodbye, came back to its queue pair
 *      4 u32 the sender's RC queue pair
 *      8 u32 the first packet number that it sends
 *     12 u32 the receiver's RC queue pair, once the sender is connected to it; else 0
 *     16 u64 id of the sender        24 u64 id of the receiver
 *     32 u64 where the sender's pool begins     40 u64 its length     48 u32 its key
 *     52 u8  of the receiver's returns, how many the sender knows of     53 3B zero
 *     56 32B the sender's address
 *
 * Over the RC queue pairs go frames. What is longer than a receive buffer goes in pieces, all but
 * the last full. The immediate data of each says in its highest byte the kind, in its lowest the
 * tag; that of an RDMA WRITE (kind WRITTEN) in the lower three what the sender tells of it.
 */
#ifndef REGX_VERBS_WIRE_H
#define REGX_VERBS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define REGX_VERBS_VERSION 4
#define REGX_VERBS_ADDRESS_SIZE 32
#define REGX_VERBS_HELLO_SIZE 88
#define REGX_VERBS_GID_SIZE 16

#define REGX_VERBS_INFINIBAND 1
#define REGX_VERBS_ETHERNET 2

typedef struct regx_verbs_address {
    uint8_t link_layer;
    uint8_t gid_type;
    uint8_t mtu;
    uint16_t lid;
    uint16_t pkey;
    uint32_t qpn;
    uint32_t qkey;
    uint8_t gid[REGX_VERBS_GID_SIZE];
} regx_verbs_address_t;

#define REGX_VERBS_ASKS 1

typedef struct regx_verbs_hello {
    uint8_t flags;
    uint8_t reads;   /* that the sender answers at once */
    uint8_t returns; /* the sender's */
    uint8_t heard;   /* of the receiver's returns */
    uint32_t qpn;
    uint32_t psn;
    uint32_t known; /* the receiver's queue pair, or 0 */
    uint64_t from;
    uint64_t to;
    uint64_t pool;
    uint64_t pool_size;
    uint32_t pool_key;
    regx_verbs_address_t address;
} regx_verbs_hello_t;

typedef enum regx_piece {
    REGX_PIECE_LAST = 1, /* or the only one: what it ends is delivered */
    REGX_PIECE_MORE = 2,
    REGX_PIECE_GOODBYE = 3, /* nothing follows; the sender's process may end */
    REGX_PIECE_WRITTEN = 4  /* no frame: by RDMA WRITE */
} regx_piece_t;

static inline uint32_t regx_piece_pack(regx_piece_t kind, uint32_t value)
{
    return (uint32_t)kind << 24 | value;
}

void regx_verbs_address_pack(const regx_verbs_address_t *address,
                             uint8_t bytes[REGX_VERBS_ADDRESS_SIZE]);
/* REGX_OK; REGX_INVALID: it is not an address of this version. */
regx_status_t regx_verbs_address_unpack(const void *bytes, size_t length,
                                        regx_verbs_address_t *address);

void regx_verbs_hello_pack(const regx_verbs_hello_t *hello, uint8_t bytes[REGX_VERBS_HELLO_SIZE]);
/* REGX_OK; REGX_INVALID: it is not a hello of this version. */
regx_status_t regx_verbs_hello_unpack(const void *bytes, size_t length, regx_verbs_hello_t *hello);

#endif
