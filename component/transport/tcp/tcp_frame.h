/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What travels on a tcp connection: messages, one behind the other. Everything is little-endian.
 *
 *     0  u8   version, REGX_TCP_VERSION
 *     1  u8   kind: 1 frame, 2 piece of a put, 3 last piece of a put, 4 hello, 5 goodbye,
 *             6 connect, 7 welcome
 *     2  u8   tag of the frame or of the put's notice; 0 in other pieces
 *     3  u8   what a piece writes: 0 the pool, 1 a region; 0 in frames
 *     4  u32  length of the data
 *     8  u64  id of the sending process
 *
 * A frame's data follows. In pieces follows
 *
 *    16  u64  offset in the pool or region
 *    24  24B  key of the region; 0 for the pool
 *    48  u8   length of the notice, at most REGX_NOTICE_MAX; 0 unless it is the last piece
 *    49  7B   0
 *    56       the notice, then the data.
 *
 * Who opens a connection begins with connect, whose data is the 8 bytes that the other published as
 * its token, and sends nothing more until a welcome has come, but for a second connect, which says
 * that it cannot let in a connection of the other's: it has no descriptor. After that both may
 * send. Hello is the first message of each direction and goodbye the last; who sends nothing may
 * send goodbye alone. Welcome, hello and goodbye are without data. A peer whose connection ends
 * after a hello and without a goodbye died.
 */
#ifndef REGX_TRANSPORT_TCP_FRAME_H
#define REGX_TRANSPORT_TCP_FRAME_H

#include "transport/transport.h"

#define REGX_TCP_VERSION 2
#define REGX_TCP_DATA_MAX 65536                  /* bytes of data in a frame */
#define REGX_TCP_PIECE_MAX (1u << 20)            /* bytes of data in a piece of a put */
#define REGX_TCP_HEAD_MAX (56 + REGX_NOTICE_MAX) /* bytes before the data */

typedef enum regx_tcp_kind {
    REGX_TCP_FRAME = 1,
    REGX_TCP_PIECE = 2,
    REGX_TCP_LAST = 3,
    REGX_TCP_HELLO = 4,
    REGX_TCP_GOODBYE = 5,
    REGX_TCP_CONNECT = 6,
    REGX_TCP_WELCOME = 7
} regx_tcp_kind_t;

static inline bool regx_tcp_is_put(regx_tcp_kind_t kind)
{
    return kind == REGX_TCP_PIECE || kind == REGX_TCP_LAST;
}

typedef struct regx_tcp_frame {
    regx_tcp_kind_t kind;
    uint8_t tag;
    uint64_t sender;
    /* Of pieces only: */
    regx_target_t target;
    uint64_t offset;
    regx_key_t key;
    uint8_t notice_length;
    const void *notice;
    /* Of all: */
    const void *data; /* set by decode, not used by encode */
    size_t length;
} regx_tcp_frame_t;

/* Writes what comes before the data to `head`, which has room for REGX_TCP_HEAD_MAX bytes, and
 * returns its length. The frame must be well formed. */
size_t regx_tcp_encode(const regx_tcp_frame_t *frame, void *head);

/* Looks at the beginning of a message, of which `have` bytes are there. REGX_OK: it has `head`
 * bytes before its data, and the frame says its kind, sender and length of the data; REGX_AGAIN:
 * more is needed to tell; REGX_INVALID: nobody knows where the next message would begin. */
regx_status_t regx_tcp_measure(const void *message, size_t have, regx_tcp_frame_t *frame,
                               size_t *head);

/* Reads what comes before the data, all `head` bytes of it. `notice` and `data` point into or
 * behind it. REGX_OK; REGX_INVALID: malformed. */
regx_status_t regx_tcp_decode_head(const void *message, size_t head, regx_tcp_frame_t *frame);

/* Reads a whole message; `notice` and `data` then point into it. REGX_OK; REGX_INVALID: it is
 * malformed in any way that can be seen without knowing pool and rkeys. */
regx_status_t regx_tcp_decode(const void *message, size_t length, regx_tcp_frame_t *frame);

#endif
