/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What one-sided operations send. All ranks run the same build: structures go as they are.
 *
 * The name of a window is shipped to its peers by Open MPI. A message is a frame with the tag
 * REGX_TAG_ONESIDED: its header, and of PUT and DATA the bytes, to the end of the frame. What its
 * type does not need is zero. The last piece of a put and an atomic operation are answered by
 * REPLY, a get by DATA.
 */
#ifndef REGX_ONESIDED_WIRE_H
#define REGX_ONESIDED_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/handle_table.h"

#define REGX_ONESIDED_NAME_SIZE 32
#define REGX_TAG_ONESIDED 0x29 /* of the tags that Open MPI keeps for BTLs, one that none uses */
#define REGX_ONESIDED_HEADER 48
#define REGX_ONESIDED_VERSION 3

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

/* It is as trustworthy as the peer that gave it. */
typedef struct regx_onesided_name {
    uint8_t version, kind; /* kind: 254, which no rendezvous' handle has there; set by pack */
    uint16_t zero;
    regx_handle_t handle;
    uint32_t none;
    uint64_t base; /* address of the first byte */
    uint64_t length;
} regx_onesided_name_t;

typedef struct regx_onesided_message {
    uint8_t version; /* set by pack */
    uint8_t type;    /* regx_onesided_type_t */
    uint8_t detail;  /* PUT: 1, the last piece; ATOMIC: the operation; REPLY, DATA: 1, refused */
    uint8_t size;    /* ATOMIC: bytes of the number, 4 or 8 */
    regx_handle_t request; /* the origin's */
    regx_handle_t window;  /* the target's */
    uint32_t zero;
    uint64_t address; /* in the target */
    uint64_t
        value; /* GET: length; ATOMIC: operand, of 4 bytes the lower half; REPLY: what was there
                         before; DATA: offset in what was asked for */
    uint64_t compare; /* ATOMIC: what to compare with in the same way */
    /* Not in the header. */
    const void *data; /* unpack: what follows the header in the frame */
    size_t data_length;
} regx_onesided_message_t;

_Static_assert(sizeof(regx_onesided_name_t) == REGX_ONESIDED_NAME_SIZE, "no padding");
_Static_assert(offsetof(regx_onesided_message_t, data) == REGX_ONESIDED_HEADER, "no padding");

void regx_onesided_name_pack(regx_onesided_name_t name, uint8_t bytes[REGX_ONESIDED_NAME_SIZE]);
/* Whether a handle of Open MPI's is the name of a window, and not a rendezvous'. */
bool regx_onesided_name_is(const uint8_t bytes[REGX_ONESIDED_NAME_SIZE]);

/* `data` is not packed. */
static inline void regx_onesided_pack(const regx_onesided_message_t *message,
                                      uint8_t bytes[REGX_ONESIDED_HEADER])
{
    memcpy(bytes, message, REGX_ONESIDED_HEADER);
    bytes[0] = REGX_ONESIDED_VERSION;
}

/* false: malformed. Checks the form only: of handles and ranges the addressee knows. */
bool regx_onesided_unpack(const void *bytes, size_t length, regx_onesided_message_t *message);

/* Whether the bytes lie inside a range of `all` bytes at `base`. */
static inline bool regx_onesided_holds(uint64_t base, uint64_t all, uint64_t address,
                                       uint64_t length)
{
    return address >= base && length <= all && address - base <= all - length;
}

#endif
