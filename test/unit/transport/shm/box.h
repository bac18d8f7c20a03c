/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the mailbox: one between guards, and frames whose content their number gives.
 */
#ifndef REGX_TEST_BOX_H
#define REGX_TEST_BOX_H

#include "../../unit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/shm/mailbox.h"

/* Content: any frame is a piece of this, cut at a place that its number gives. */
enum { PATTERN = 1 << 16 };

/* Bytes of payload: the shorter ring comes round more often. */
#define BOX_RING REGX_MAILBOX_PAYLOAD_LEAST
#define BOX_SIZE regx_mailbox_size(BOX_RING)

static uint8_t pattern[PATTERN];

/* Before the first test of a group. */
static inline int box_setup(void **state)
{
    (void)state;
    unit_fill(pattern, PATTERN, 1, 0);
    return 0;
}

static inline const uint8_t *content(uint64_t number)
{
    return pattern + number * 37 % (PATTERN - REGX_MAILBOX_MAX);
}

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

static inline box_t *box_open(void)
{
    box_t *box = calloc(1, sizeof(*box));

    assert_non_null(box);
    box->page = (size_t)sysconf(_SC_PAGESIZE);
    box->pages = (BOX_SIZE / box->page + 1) * box->page;
    box->before = box->pages - BOX_SIZE;
    box->mapped = mmap(NULL, box->pages + box->page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(box->mapped, MAP_FAILED);
    assert_int_equal(mprotect(box->mapped + box->pages, box->page, PROT_NONE), 0);
    memset(box->mapped, 0xee, box->before);
    box->memory = (regx_mailbox_memory_t *)(void *)(box->mapped + box->before);
    regx_mailbox_out_init(&box->out, box->memory, BOX_RING);
    regx_mailbox_in_init(&box->in, box->memory, BOX_RING);
    return box;
}

static inline void assert_guarded(const box_t *box)
{
    for (size_t i = 0; i < box->before; i++) {
        assert_int_equal(box->mapped[i], 0xee);
    }
}

static inline void box_close(box_t *box)
{
    assert_guarded(box);
    munmap(box->mapped, box->pages + box->page);
    free(box);
}

typedef struct packing {
    const uint8_t *from;
    unsigned calls;
} packing_t;

static inline void pack(void *context, void *to, size_t length)
{
    packing_t *packing = context;

    memcpy(to, packing->from, length);
    packing->calls++;
}

/* Posts the frame of that number: part as header, the rest as payload. */
static inline regx_status_t post(box_t *box, uint64_t number, size_t length)
{
    const size_t header = number % 3 == 0 ? length : length * (number % 7) / 7;
    packing_t packing = {.from = content(number) + header};
    const regx_status_t status = regx_mailbox_post(&box->out, (uint8_t)number, content(number),
                                                   header, pack, &packing, length - header);

    if (packing.calls != (status == REGX_OK && length > header)) {
        fail_msg("pack was called %u times", packing.calls);
    }
    return status;
}

static inline bool is_frame(const regx_frame_t *frame, uint64_t number, size_t length)
{
    const regx_frame_kind_t kind = length <= REGX_MAILBOX_INLINE ? REGX_FRAME_INLINE
                                   : length <= REGX_MAILBOX_SPAN ? REGX_FRAME_SPAN
                                                                 : REGX_FRAME_PAYLOAD;

    return frame->tag == (uint8_t)number && frame->length == length && frame->kind == kind &&
           memcmp(frame->data, content(number), length) == 0;
}

/* Takes the next frame, which must be that one. */
static inline void take(box_t *box, uint64_t number, size_t length)
{
    regx_frame_t frame;

    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
    assert_true(is_frame(&frame, number, length));
    regx_mailbox_pop(&box->in, &frame);
}

static inline void assert_empty(box_t *box)
{
    regx_frame_t frame;

    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_AGAIN);
}

/* A length as messages have it: mostly short, all kinds of long. */
static inline size_t some_length(uint64_t *seed)
{
    const uint64_t random = chance_next(seed);

    switch (random % 8) {
    case 0:
        return random / 8 % (REGX_MAILBOX_MAX + 1);
    case 1:
    case 2:
        return random / 8 % 2048;
    default:
        return random / 8 % (REGX_MAILBOX_INLINE + 2);
    }
}

#endif
