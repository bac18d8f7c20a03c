/* SPDX-License-Identifier: BSD-3-Clause */
#include "box.h"

static uint8_t pattern[PATTERN];

static int setup(void **state)
{
    unit_fill(pattern, PATTERN, 1, 0);
    return 0;
}

const unit_group_t unit_group = {.setup = setup};

const uint8_t *content(uint64_t number)
{
    return pattern + number * 37 % (PATTERN - REGX_MAILBOX_MAX);
}

box_t *box_open(void)
{
    box_t *box = calloc(1, sizeof(*box));

    assert_non_null(box);
    box->page = (size_t)sysconf(_SC_PAGESIZE);
    box->pages = (BOX_SIZE / box->page + 1) * box->page;
    box->before = box->pages - BOX_SIZE;
    box->mapped = unit_map(NULL, box->pages + box->page);
    assert_int_equal(mprotect(box->mapped + box->pages, box->page, PROT_NONE), 0);
    memset(box->mapped, 0xee, box->before);
    box->memory = (regx_mailbox_memory_t *)(void *)(box->mapped + box->before);
    regx_mailbox_out_init(&box->out, box->memory, BOX_RING);
    regx_mailbox_in_init(&box->in, box->memory, BOX_RING);
    return box;
}

void box_close(box_t *box)
{
    assert_true(unit_is_all(box->mapped, box->before, 0xee));
    munmap(box->mapped, box->pages + box->page);
    free(box);
}

typedef struct packing {
    const uint8_t *from;
    unsigned calls;
} packing_t;

static void pack(void *context, void *to, size_t length)
{
    packing_t *packing = context;

    memcpy(to, packing->from, length);
    packing->calls++;
}

static regx_frame_kind_t kind_of(uint64_t number, size_t length)
{
    return length > REGX_MAILBOX_SPAN                         ? REGX_FRAME_PAYLOAD
           : number % 5 == 0 && length <= REGX_MAILBOX_INLINE ? REGX_FRAME_SHARED_COPY
                                                              : REGX_FRAME_INLINE;
}

/* As a request, or by pack, from plain memory, or the short way: of these three, whichever it is, the
 * frame looks the same to the poller. */
regx_status_t post_bytes(box_t *box, uint64_t number, const void *bytes, size_t length)
{
    const size_t header = number % 3 == 0 ? length : length * (number % 7) / 7;
    packing_t packing = {.from = (const uint8_t *)bytes + header};
    void *plain = (void *)(uintptr_t)packing.from;

    if (kind_of(number, length) == REGX_FRAME_SHARED_COPY) {
        return regx_mailbox_post_line(&box->out, REGX_FRAME_SHARED_COPY, (uint8_t)number, bytes,
                                      (uint32_t)length);
    }
    if (number % 4 == 1 && regx_mailbox_is_short(&box->out, length)) {
        regx_mailbox_post_short(&box->out, 0, (uint8_t)number, bytes, header, plain,
                                length - header);
        return length <= REGX_MAILBOX_INLINE ? REGX_OK : REGX_FAILED;
    }
    if (number % 4 < 2) {
        return regx_mailbox_post(&box->out, (uint8_t)number, bytes, header, NULL, plain,
                                 length - header);
    }
    const regx_status_t status = regx_mailbox_post(&box->out, (uint8_t)number, bytes, header, pack,
                                                   &packing, length - header);

    unit_expect(packing.calls == (status == REGX_OK && length > header), "pack was called %u times",
                packing.calls);
    return status;
}

regx_status_t post(box_t *box, uint64_t number, size_t length)
{
    return post_bytes(box, number, content(number), length);
}

bool is_frame(const regx_frame_t *frame, uint64_t number, const void *bytes, size_t length)
{
    return frame->tag == (uint8_t)number && frame->length == length &&
           frame->kind == kind_of(number, length) && memcmp(frame->data, bytes, length) == 0;
}

/* What lies in one line goes either way. */
void take_bytes(box_t *box, uint64_t number, const void *bytes, size_t length)
{
    const bool may_be_short =
        kind_of(number, length) == REGX_FRAME_INLINE && length <= REGX_MAILBOX_INLINE;
    regx_frame_t frame = {.kind = REGX_FRAME_INLINE};

    assert_int_equal(regx_mailbox_peek_short(&box->in, box->in.next, &frame), may_be_short);
    if (may_be_short && number % 3 != 0) {
        assert_true(is_frame(&frame, number, bytes, length));
        regx_mailbox_pop_short(&box->in, box->in.next);
        regx_mailbox_end_row(&box->in);
        return;
    }
    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
    assert_true(is_frame(&frame, number, bytes, length));
    regx_mailbox_pop(&box->in, &frame);
}

void take(box_t *box, uint64_t number, size_t length)
{
    take_bytes(box, number, content(number), length);
}

void assert_empty(box_t *box)
{
    regx_frame_t frame;

    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_AGAIN);
}

size_t some_length(uint64_t *seed)
{
    const uint64_t random = chance_next(seed);

    switch (random % 8) {
    case 0:
        return random / 8 % (REGX_MAILBOX_MAX + 1);
    case 1:
        return random / 8 % 2048;
    case 2:
    case 3:
        return random / 8 % (REGX_MAILBOX_SPAN + 2);
    default:
        return random / 8 % (REGX_MAILBOX_INLINE + 2);
    }
}
