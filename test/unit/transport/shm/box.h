/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the mailbox: one between guards, and frames whose content their number gives.
 */
#pragma once

#include "../../unit.h"

#include "transport/shm/mailbox.h"

/* Content: any frame is a piece of this, cut at a place that its number gives. */
enum { PATTERN = 1 << 16 };

/* Bytes of payload: a short ring comes round often. */
#define BOX_RING (2 * REGX_MAILBOX_PAYLOAD_MIN)
#define BOX_SIZE regx_mailbox_size(BOX_RING)

/* What the frame of that number holds, as much as it holds. */
const uint8_t *content(uint64_t number);

/* A mailbox whose memory ends where the next page cannot be touched and begins behind bytes that
 * must stay as they are. */
typedef struct box {
    regx_mailbox_memory_t *memory;
    regx_mailbox_out_t out;
    regx_mailbox_in_t in;
    uint8_t *mapped;
    size_t before; /* guarding bytes */
    size_t pages;  /* bytes that can be touched */
    size_t page;
} box_t;

box_t *box_open(void);
void box_close(box_t *box);

/* Posts a frame with the number's tag: part of the bytes as header, the rest as payload. */
regx_status_t post_bytes(box_t *box, uint64_t number, const void *bytes, size_t length);
/* The frame of that number. */
regx_status_t post(box_t *box, uint64_t number, size_t length);
/* Whether it is that frame. */
bool is_frame(const regx_frame_t *frame, uint64_t number, const void *bytes, size_t length);
/* Takes the next frame, which must be that one. */
void take_bytes(box_t *box, uint64_t number, const void *bytes, size_t length);
void take(box_t *box, uint64_t number, size_t length);
void assert_empty(box_t *box);

/* A length as messages have it: mostly short, all kinds of long. */
size_t some_length(uint64_t *seed);
