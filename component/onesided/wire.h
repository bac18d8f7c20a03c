/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What one-sided operations send, byte by byte. All numbers are little-endian, all lengths in
 * bytes.
 *
 * The name of a window is shipped to its peers by Open MPI:
 *      0 u8  version (3)         1 u8  254, which no rendezvous' handle has there
 *      2 u16 zero                4 u32 handle: index      8 u32 its generation      12 u32 zero
 *     16 u64 address of the first byte                   24 u64 length
 *
 * A message is a frame with the tag REGX_TAG_ONESIDED. What its type does not need is zero.
 *      0 u8  version (2)         1 u8  type
 *      2 u8  PUT: 1, the last piece; ATOMIC: the operation; REPLY, DATA: 1, refused
 *      3 u8  ATOMIC: bytes of the number, 4 or 8
 *      4 u32 the origin's request            8 u32 its generation
 *     12 u32 the target's window            16 u32 its generation      20 u32 zero
 *     24 u64 address in the target
 *     32 u64 GET: length; ATOMIC: operand; REPLY: what was there before; DATA: offset in what was
 *            asked for
 *     40 u64 ATOMIC: what to compare with. Of 4 bytes the lower half of both counts
 *     48     PUT, DATA: the bytes, to the end of the frame
 *
 * The last piece of a put and an atomic operation are answered by REPLY, a get by DATA.
 */
#ifndef REGX_ONESIDED_WIRE_H
#define REGX_ONESIDED_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/handle_table.h"

#define REGX_ONESIDED_NAME_SIZE 32
#define REGX_TAG_ONESIDED 0x29 /* of the tags that Open MPI keeps for BTLs, one that none uses */
#define REGX_ONESIDED_HEADER 48

typedef enum regx_onesided_type {
    REGX_ONESIDED_PUT = 1,
    REGX_ONESIDED_GET,
    REGX_ONESIDED_ATOMIC,
    REGX_ONESIDED_REPLY,
    REGX_ONESIDED_DATA,
    REGX_ONESIDED_TYPES
} regx_onesided_type_t;

/* Only operations are here that come out alike for signed and unsigned numbers. */
typedef enum regx_onesided_op {
    REGX_ONESIDED_ADD,
    REGX_ONESIDED_AND,
    REGX_ONESIDED_OR,
    REGX_ONESIDED_XOR,
    REGX_ONESIDED_SWAP,
    REGX_ONESIDED_COMPARE_SWAP, /* writes the operand if what is there is `compare` */
    REGX_ONESIDED_OPS
} regx_onesided_op_t;

/* What a name holds. It is as trustworthy as the peer that gave it. */
typedef struct regx_onesided_name {
    regx_handle_t handle;
    uint64_t base;
    uint64_t length;
} regx_onesided_name_t;

typedef struct regx_onesided_message {
    regx_onesided_type_t type;
    uint8_t detail; /* the byte at 2 */
    uint8_t size;   /* of a number */
    regx_handle_t request;
    regx_handle_t window;
    uint64_t address;
    uint64_t value; /* the number at 32 */
    uint64_t compare;
    const void *data; /* unpack: what follows the header in the frame */
    size_t data_length;
} regx_onesided_message_t;

void regx_onesided_name_pack(const regx_onesided_name_t *name,
                             uint8_t bytes[REGX_ONESIDED_NAME_SIZE]);
/* Whether a handle of Open MPI's is the name of a window, and not a rendezvous'. */
bool regx_onesided_name_is(const uint8_t bytes[REGX_ONESIDED_NAME_SIZE]);
/* Of bytes that regx_onesided_name_is. */
void regx_onesided_name_unpack(const uint8_t bytes[REGX_ONESIDED_NAME_SIZE],
                               regx_onesided_name_t *name);

/* `data` is not packed. */
void regx_onesided_pack(const regx_onesided_message_t *message,
                        uint8_t bytes[REGX_ONESIDED_HEADER]);
/* false: malformed. Checks the form only: of handles and ranges the addressee knows. */
bool regx_onesided_unpack(const void *bytes, size_t length, regx_onesided_message_t *message);

/* Whether the bytes lie inside a range of `all` bytes at `base`. */
static inline bool regx_onesided_holds(uint64_t base, uint64_t all, uint64_t address,
                                       uint64_t length)
{
    return address >= base && length <= all && address - base <= all - length;
}

#endif
