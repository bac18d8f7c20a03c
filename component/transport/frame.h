/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A frame that is copied: what send was given, one behind the other.
 */
#ifndef REGX_TRANSPORT_FRAME_H
#define REGX_TRANSPORT_FRAME_H

#include <string.h>

#include "transport/transport.h"

static inline void regx_frame_fill(void *to, const void *header, size_t header_length,
                                   regx_pack_t pack, void *pack_context, size_t payload_length)
{
    if (header_length > 0) {
        memcpy(to, header, header_length);
    }
    if (payload_length > 0) {
        pack(pack_context, (char *)to + header_length, payload_length);
    }
}

#endif
