/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A frame that is copied: what send was given, one behind the other.
 */
#ifndef REGX_TRANSPORT_FRAME_H
#define REGX_TRANSPORT_FRAME_H

#include "base/copy.h"
#include "transport/transport.h"

/* Copies `length` bytes; `from` may be NULL if there are none. Open MPI's header and a number or
 * two are 8 to 16 bytes each: these are two moves, which may overlap, for less than a call
 * costs. */
static inline void regx_frame_copy(void *to, const void *from, size_t length)
{
    if (length >= 8 && length <= 16) {
        uint64_t first, last;

        memcpy(&first, from, sizeof(first));
        memcpy(&last, (const char *)from + length - sizeof(last), sizeof(last));
        memcpy(to, &first, sizeof(first));
        memcpy((char *)to + length - sizeof(last), &last, sizeof(last));
    } else if (length > 0) {
        regx_copy(to, from, length);
    }
}

/* The payload as transport.h's send has it. */
static inline void regx_frame_fill(void *to, const void *header, size_t header_length,
                                   regx_pack_t pack, void *payload, size_t payload_length)
{
    regx_frame_copy(to, header, header_length);
    if (pack != NULL && payload_length > 0) {
        pack(payload, (char *)to + header_length, payload_length);
    } else {
        regx_frame_copy((char *)to + header_length, payload, payload_length);
    }
}

#endif
