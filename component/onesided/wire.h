/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The messages of one-sided operations, byte by byte. All numbers are little-endian, all lengths in
 * bytes. Each is a frame with the tag REGX_TAG_ONESIDED:
 *
 *      0 u8  version (1)         1 u8  type
 *      2 u8  PUT: 1, the last piece; ATOMIC: the operation (atomic.h); REPLY, DATA: 1, refused
 *      3 u8  ATOMIC, SWAP: bytes of the number, 4 or 8
 *      4 u32 the origin's request        8 u32 its generation
 *
 *   from the origin to the target
 *     12 u32 the target's window        16 u32 its generation      20 u32 zero
 *     24 u64 address in the target
 *     PUT        32 the bytes, to the end of the frame. Answered by REPLY to the last piece.
 *     GET        32 u64 length. Answered by DATA.
 *     ATOMIC     32 u64 operand. Answered by REPLY.
 *     SWAP       32 u64 what to compare with     40 u64 the new value. Answered by REPLY.
 *
 *   from the target to the origin
 *     REPLY      12 u32 zero    16 u64 the number that was there before, if there was one
 *     DATA       12 u32 zero    16 u64 offset in what was asked for    24 the bytes, to the end
 */
#ifndef REGX_ONESIDED_WIRE_H
#define REGX_ONESIDED_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/handle_table.h"

#define REGX_TAG_ONESIDED 0x29 /* of the tags that Open MPI keeps for BTLs, one that none uses */
#define REGX_ONESIDED_HEADER_MAX 48

typedef enum regx_onesided_type {
    REGX_ONESIDED_PUT = 1,
    REGX_ONESIDED_GET,
    REGX_ONESIDED_ATOMIC,
    REGX_ONESIDED_SWAP,
    REGX_ONESIDED_REPLY,
    REGX_ONESIDED_DATA
} regx_onesided_type_t;

typedef struct regx_onesided_message {
    regx_onesided_type_t type;
    uint8_t detail; /* the byte at 2 */
    uint8_t size;   /* of a number */
    regx_handle_t request;
    regx_handle_t window;
    uint64_t address;
    uint64_t length;  /* GET */
    uint64_t operand; /* ATOMIC, SWAP: the new value; REPLY: the number before; DATA: the offset */
    uint64_t compare; /* SWAP */
    const void *data; /* unpack: what follows the header in the frame */
    size_t data_length; /* bytes of it */
} regx_onesided_message_t;

/* Returns the length of the header. `data` is not packed. */
size_t regx_onesided_pack(const regx_onesided_message_t *message,
                          uint8_t bytes[REGX_ONESIDED_HEADER_MAX]);
/* false: malformed. Checks the form only: of handles and ranges the addressee knows. */
bool regx_onesided_unpack(const void *bytes, size_t length, regx_onesided_message_t *message);

#endif
