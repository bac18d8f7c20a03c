/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The mailbox: every frame arrives once, whole and in order; a full one takes nothing; a poller
 * reads nothing outside the memory whatever the poster wrote, and the other way round.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "transport/uct/mailbox.h"

/* Content: any frame is a piece of this, cut at a place that its number gives. */
enum { PATTERN = 1 << 16 };

static uint8_t pattern[PATTERN];

static const uint8_t *content(uint64_t number)
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

static box_t *box_open(void)
{
    box_t *box = calloc(1, sizeof(*box));

    assert_non_null(box);
    box->page = (size_t)sysconf(_SC_PAGESIZE);
    box->pages = (sizeof(*box->memory) / box->page + 1) * box->page;
    box->before = box->pages - sizeof(*box->memory);
    box->mapped = mmap(NULL, box->pages + box->page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(box->mapped, MAP_FAILED);
    assert_int_equal(mprotect(box->mapped + box->pages, box->page, PROT_NONE), 0);
    memset(box->mapped, 0xee, box->before);
    box->memory = (regx_mailbox_memory_t *)(void *)(box->mapped + box->before);
    regx_mailbox_out_init(&box->out, box->memory);
    regx_mailbox_in_init(&box->in, box->memory);
    return box;
}

static void assert_guarded(const box_t *box)
{
    for (size_t i = 0; i < box->before; i++) {
        assert_int_equal(box->mapped[i], 0xee);
    }
}

static void box_close(box_t *box)
{
    assert_guarded(box);
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

/* Posts the frame of that number: part as header, the rest as payload. */
static regx_status_t post(box_t *box, uint64_t number, size_t length)
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

static bool is_frame(const regx_frame_t *frame, uint64_t number, size_t length)
{
    const regx_frame_kind_t kind = length <= REGX_MAILBOX_INLINE ? REGX_FRAME_INLINE
                                   : length <= REGX_MAILBOX_SPAN ? REGX_FRAME_SPAN
                                                                 : REGX_FRAME_PAYLOAD;

    return frame->tag == (uint8_t)number && frame->length == length && frame->kind == kind &&
           memcmp(frame->data, content(number), length) == 0;
}

/* Takes the next frame, which must be that one. */
static void take(box_t *box, uint64_t number, size_t length)
{
    regx_frame_t frame;

    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
    assert_true(is_frame(&frame, number, length));
    regx_mailbox_pop(&box->in, &frame);
}

static void assert_empty(box_t *box)
{
    regx_frame_t frame;

    assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_AGAIN);
}

static void every_length_arrives(void **state)
{
    box_t *box = box_open();

    (void)state;
    assert_empty(box);
    for (size_t length = 0; length <= REGX_MAILBOX_MAX; length++) {
        assert_int_equal(post(box, length, length), REGX_OK);
        take(box, length, length);
        assert_empty(box);
    }
    assert_int_equal(post(box, 1, REGX_MAILBOX_MAX + 1), REGX_INVALID);
    assert_empty(box);
    box_close(box);
}

/* A length as messages have it: mostly short, all kinds of long. */
static size_t some_length(uint64_t *seed)
{
    const uint64_t random = unit_random(seed);

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

static void laps_and_wraps_keep_order_and_content(void **state)
{
    enum { FRAMES = 50000 };
    box_t *box = box_open();
    uint64_t seed = 1; /* decides how many are in flight */
    uint64_t posting = 2;
    uint64_t taking = 2;
    uint64_t posted = 0;
    uint64_t taken = 0;
    uint64_t full = 0;

    (void)state;
    while (taken < FRAMES) {
        for (uint64_t more = unit_random(&seed) % 300; more > 0; more--) {
            uint64_t ahead = posting;

            if (post(box, posted, some_length(&ahead)) == REGX_AGAIN) {
                full++;
                break;
            }
            posting = ahead;
            posted++;
        }
        for (uint64_t fewer = unit_random(&seed) % 300; fewer > 0 && taken < posted; fewer--) {
            take(box, taken, some_length(&taking));
            taken++;
        }
    }
    while (taken < posted) {
        take(box, taken, some_length(&taking));
        taken++;
    }
    assert_empty(box);
    assert_true(full > 100);
    assert_true(box->out.line > 100 * REGX_MAILBOX_LINES);
    assert_true(box->out.payload > 100 * (uint64_t)REGX_MAILBOX_PAYLOAD);
    box_close(box);
}

/* Asserts that posting that frame answers AGAIN and that nothing shows it. */
static void assert_refused(box_t *box, uint64_t number, size_t length)
{
    regx_mailbox_memory_t *copy = malloc(sizeof(*copy));
    const uint64_t line = box->out.line;
    const uint64_t payload = box->out.payload;

    assert_non_null(copy);
    memcpy(copy, box->memory, sizeof(*copy));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(post(box, number, length), REGX_AGAIN);
    }
    assert_memory_equal(copy, box->memory, sizeof(*copy));
    assert_int_equal(box->out.line, line);
    assert_int_equal(box->out.payload, payload);
    free(copy);
}

static void a_ring_full_of_lines_takes_nothing(void **state)
{
    box_t *box = box_open();
    uint64_t posted = 0;
    uint64_t taken = 0;

    (void)state;
    for (int round = 0; round < 5; round++) {
        while (regx_mailbox_ready(&box->out)) {
            assert_int_equal(post(box, posted, posted % (REGX_MAILBOX_INLINE + 1)), REGX_OK);
            posted++;
        }
        assert_int_equal(posted - taken, REGX_MAILBOX_LINES);
        assert_refused(box, posted, 0);
        assert_refused(box, posted, REGX_MAILBOX_INLINE);
        assert_refused(box, posted, REGX_MAILBOX_MAX);
        assert_int_equal(regx_mailbox_post_lent(&box->out, 1, 0, 64, 0, 1), REGX_AGAIN);
        assert_false(regx_mailbox_ready(&box->out));
        while (taken < posted) {
            take(box, taken, taken % (REGX_MAILBOX_INLINE + 1));
            taken++;
        }
        assert_empty(box);
    }
    box_close(box);
}

/* A frame that goes on in the next lines needs them all, wherever the ring ends. */
static void a_span_needs_all_its_lines(void **state)
{
    static const uint64_t starts[] = {0, 1, 100, 248, 252, 255, 256, 700};
    enum { MOST = 8 };

    (void)state;
    for (size_t s = 0; s < sizeof(starts) / sizeof(starts[0]); s++) {
        for (uint32_t room = 0; room <= MOST; room++) {
            for (uint32_t lines = 2; lines <= MOST; lines++) {
                const size_t length = REGX_MAILBOX_INLINE + (lines - 1) * REGX_MAILBOX_MORE;
                box_t *box = box_open();
                uint64_t taken = starts[s];

                for (uint64_t number = 0; number < starts[s]; number++) {
                    assert_int_equal(post(box, number, 8), REGX_OK);
                    take(box, number, 8);
                }
                /* What the poller freed and has not said yet is not there for the poster. */
                atomic_store(&box->memory->consumed.lines, box->in.line);
                box->in.published_lines = box->in.line;
                uint64_t number = starts[s];
                for (; number < starts[s] + REGX_MAILBOX_LINES - room; number++) {
                    assert_int_equal(post(box, number, 8), REGX_OK);
                }
                if (lines > room) {
                    assert_refused(box, number, length);
                } else {
                    assert_int_equal(post(box, number, length), REGX_OK);
                }
                while (taken < number) {
                    take(box, taken++, 8);
                }
                if (lines <= room) {
                    take(box, number, length);
                }
                assert_empty(box);
                assert_int_equal(post(box, number + 1, length), REGX_OK);
                take(box, number + 1, length);
                assert_empty(box);
                box_close(box);
            }
        }
    }
}

static void a_ring_full_of_payload_takes_short_frames_only(void **state)
{
    (void)state;
    for (size_t length = REGX_MAILBOX_SPAN + 1; length <= REGX_MAILBOX_MAX;
         length += length < 600 ? 1 : 997) {
        box_t *box = box_open();
        uint64_t posted = 0;
        uint64_t taken = 0;

        for (int round = 0; round < 6; round++) {
            while (post(box, posted, length) == REGX_OK) {
                posted++;
            }
            /* At least half of the payload, or all lines. */
            assert_true((posted - taken) * length >= REGX_MAILBOX_PAYLOAD / 2 - length ||
                        posted - taken == REGX_MAILBOX_LINES);
            assert_refused(box, posted, length);
            if (regx_mailbox_ready(&box->out)) {
                assert_int_equal(post(box, posted, REGX_MAILBOX_INLINE), REGX_OK);
                assert_refused(box, posted + 1, length);
                while (taken < posted) {
                    take(box, taken++, length);
                }
                take(box, taken++, REGX_MAILBOX_INLINE);
                posted++;
            }
            while (taken < posted) {
                take(box, taken++, length);
            }
            assert_empty(box);
        }
        box_close(box);
    }
}

/* Wherever the rings stand, an emptied mailbox takes a frame of any length: nothing starves. */
static void an_empty_mailbox_takes_any_length(void **state)
{
    (void)state;
    for (size_t step = REGX_MAILBOX_INLINE + 1; step <= REGX_MAILBOX_MAX; step += 61) {
        box_t *box = box_open();

        for (uint64_t number = 0; number < 200; number++) {
            const size_t length = number % 2 == 0 ? step : REGX_MAILBOX_MAX;

            assert_int_equal(post(box, number, length), REGX_OK);
            take(box, number, length);
        }
        box_close(box);
    }
}

static void the_laps_number_may_overflow(void **state)
{
    box_t *box = box_open();
    const uint64_t start = (UINT64_C(0xfffffffe) - 1) * REGX_MAILBOX_LINES;

    (void)state;
    box->out.line = box->out.consumed_lines = start;
    box->in.line = box->in.published_lines = start;
    box->in.lap = UINT32_C(0xfffffffe);
    box->memory->consumed.lines = start;
    for (uint64_t number = 0; number < 5 * REGX_MAILBOX_LINES; number++) {
        assert_empty(box);
        assert_int_equal(post(box, number, number % 100), REGX_OK);
        take(box, number, number % 100);
    }
    box_close(box);
}

static void lent_frames_come_back(void **state)
{
    box_t *box = box_open();
    regx_frame_t frame;

    (void)state;
    for (uint32_t lap = 1; lap <= 100; lap++) {
        for (uint32_t token = 0; token < REGX_MAILBOX_LENDS; token++) {
            assert_false(regx_mailbox_returned(&box->out, token, lap));
            assert_int_equal(regx_mailbox_post_lent(&box->out, (uint8_t)(token + lap),
                                                    UINT64_C(0x123456789a) * lap + token,
                                                    0xfedcba98u - token, token, lap),
                             REGX_OK);
        }
        for (uint32_t token = 0; token < REGX_MAILBOX_LENDS; token++) {
            assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
            assert_int_equal(frame.kind, REGX_FRAME_LENT);
            assert_int_equal(frame.tag, (uint8_t)(token + lap));
            assert_int_equal(frame.offset, UINT64_C(0x123456789a) * lap + token);
            assert_int_equal(frame.length, 0xfedcba98u - token);
            assert_int_equal(frame.token, token);
            assert_int_equal(frame.lap, lap);
            regx_mailbox_pop(&box->in, &frame);
        }
        assert_empty(box);
        /* Given back later and in another order. */
        for (uint32_t i = 0; i < REGX_MAILBOX_LENDS; i++) {
            const uint32_t token = i * 5 % REGX_MAILBOX_LENDS;

            assert_false(regx_mailbox_returned(&box->out, token, lap));
            regx_mailbox_return(&box->in, token, lap);
            assert_true(regx_mailbox_returned(&box->out, token, lap));
        }
    }
    box_close(box);
}

/* ---- two threads ---- */

enum { STREAM = 1000000, STREAM_SEED = 7 };

typedef struct stream {
    box_t *box;
    _Atomic bool failed;
} stream_t;

static void *produce(void *argument)
{
    stream_t *stream = argument;
    uint64_t seed = STREAM_SEED;

    for (uint64_t number = 0; number < STREAM; number++) {
        const size_t length = some_length(&seed);

        while (post(stream->box, number, length) == REGX_AGAIN) {
            if (atomic_load(&stream->failed)) {
                return NULL;
            }
            sched_yield();
        }
    }
    return NULL;
}

static void a_million_frames_between_threads(void **state)
{
    stream_t stream = {.box = box_open()};
    regx_frame_t frame;
    pthread_t producer;
    uint64_t seed = STREAM_SEED;
    uint64_t number = 0;

    (void)state;
    assert_int_equal(pthread_create(&producer, NULL, produce, &stream), 0);
    while (number < STREAM && !atomic_load(&stream.failed)) {
        const regx_status_t status = regx_mailbox_peek(&stream.box->in, &frame);

        if (status == REGX_AGAIN) {
            sched_yield();
        } else if (status == REGX_OK && is_frame(&frame, number, some_length(&seed))) {
            regx_mailbox_pop(&stream.box->in, &frame);
            number++;
        } else {
            atomic_store(&stream.failed, true);
        }
    }
    pthread_join(producer, NULL);
    assert_int_equal(number, STREAM);
    assert_empty(stream.box);
    box_close(stream.box);
}

/* ---- a poster that writes anything ---- */

/* What a line of those bytes must be answered with, said in other words than the code's. */
static regx_status_t expected(const box_t *box, const regx_mailbox_line_t *line)
{
    uint64_t position;
    uint32_t token;

    memcpy(&position, line->data, sizeof(position));
    memcpy(&token, line->data + 12, sizeof(token));
    if (line->kind == REGX_FRAME_INLINE) {
        return line->length <= REGX_MAILBOX_INLINE ? REGX_OK : REGX_INVALID;
    }
    if (line->kind == REGX_FRAME_SPAN) {
        return line->length > REGX_MAILBOX_INLINE && line->length <= REGX_MAILBOX_SPAN
                   ? REGX_OK
                   : REGX_INVALID;
    }
    if (line->kind == REGX_FRAME_PAYLOAD) {
        const bool near =
            position >= box->in.payload && position - box->in.payload <= REGX_MAILBOX_PAYLOAD;
        const bool fits = line->length <= REGX_MAILBOX_MAX &&
                          position % REGX_MAILBOX_PAYLOAD + line->length <= REGX_MAILBOX_PAYLOAD;

        return near && fits && position % 64 == 0 ? REGX_OK : REGX_INVALID;
    }
    return line->kind == REGX_FRAME_LENT && token < REGX_MAILBOX_LENDS ? REGX_OK : REGX_INVALID;
}

static volatile uint8_t sink; /* so that reading is not left out */

/* Handles the line as a poller does that uses whatever it is given. */
static void poll_whatever(box_t *box)
{
    const regx_mailbox_line_t *line = &box->memory->lines[box->in.line % REGX_MAILBOX_LINES];
    const regx_status_t right = expected(box, line);
    regx_frame_t frame;

    assert_int_equal(regx_mailbox_peek(&box->in, &frame), right);
    if (right != REGX_OK) {
        regx_mailbox_skip(&box->in);
        return;
    }
    if (frame.kind == REGX_FRAME_LENT) {
        regx_mailbox_return(&box->in, frame.token, frame.lap);
    } else {
        const uint8_t *data = frame.data;
        const uint8_t *from = frame.kind == REGX_FRAME_INLINE ? line->data
                              : frame.kind == REGX_FRAME_SPAN ? box->in.gathered
                                                              : box->memory->payload;
        const size_t size = frame.kind == REGX_FRAME_INLINE ? sizeof(line->data)
                            : frame.kind == REGX_FRAME_SPAN ? sizeof(box->in.gathered)
                                                            : sizeof(box->memory->payload);

        assert_true(data >= from && data + frame.length <= from + size);
        for (uint32_t i = 0; i < frame.length; i++) {
            sink = data[i];
        }
    }
    regx_mailbox_pop(&box->in, &frame);
}

/* Posts, with the rings standing at some place, one frame of the kind. */
static void post_kind(box_t *box, regx_frame_kind_t kind, uint64_t before)
{
    for (uint64_t i = 0; i < before; i++) {
        assert_int_equal(post(box, i, 1000 + i), REGX_OK);
        take(box, i, 1000 + i);
    }
    switch (kind) {
    case REGX_FRAME_INLINE:
        assert_int_equal(post(box, 3, 20), REGX_OK);
        break;
    case REGX_FRAME_SPAN:
        assert_int_equal(post(box, 3, 300), REGX_OK);
        break;
    case REGX_FRAME_PAYLOAD:
        assert_int_equal(post(box, 3, 5000), REGX_OK);
        break;
    case REGX_FRAME_LENT:
        assert_int_equal(regx_mailbox_post_lent(&box->out, 3, 4096, 100, 5, 1), REGX_OK);
        break;
    }
}

static void every_byte_of_a_line_may_be_anything(void **state)
{
    /* Before the first wrap of the payload, at its end and behind it; where the lines wrap. */
    static const uint64_t places[] = {0, 40, 53, 59, 100, 250, 253, 255};

    (void)state;
    for (int kind = REGX_FRAME_INLINE; kind <= REGX_FRAME_LENT; kind++) {
        for (size_t place = 0; place < sizeof(places) / sizeof(places[0]); place++) {
            box_t *box = box_open();
            regx_mailbox_memory_t *kept = malloc(sizeof(*kept));
            unsigned refused = 0;

            assert_non_null(kept);
            post_kind(box, (regx_frame_kind_t)kind, places[place]);
            memcpy(kept, box->memory, sizeof(*kept));
            const regx_mailbox_in_t in = box->in;
            const size_t at = in.line % REGX_MAILBOX_LINES;

            for (size_t byte = 0; byte < sizeof(regx_mailbox_line_t); byte++) {
                for (unsigned value = 0; value < 256; value++) {
                    uint8_t *line = (uint8_t *)&box->memory->lines[at];
                    const bool same = line[byte] == value;

                    line[byte] = (uint8_t)value;
                    if (byte < sizeof(box->memory->lines[at].sequence)) {
                        regx_frame_t frame;

                        assert_int_equal(regx_mailbox_peek(&box->in, &frame),
                                         same ? REGX_OK : REGX_AGAIN);
                    } else {
                        refused += expected(box, &box->memory->lines[at]) == REGX_INVALID;
                        poll_whatever(box);
                        assert_in_range(box->in.line, in.line + 1, in.line + 8);
                    }
                    box->in = in;
                    memcpy(box->memory->lines, kept->lines, sizeof(kept->lines));
                }
            }
            /* kinds that there are not, and of each kind what does not fit it */
            assert_true(refused > 250);
            free(kept);
            box_close(box);
        }
    }
}

static void random_lines_are_survived(void **state)
{
    box_t *box = box_open();
    uint64_t seed = 11;

    (void)state;
    for (uint64_t i = 0; i < 500000; i++) {
        regx_mailbox_line_t *line = &box->memory->lines[box->in.line % REGX_MAILBOX_LINES];
        uint64_t words[8];

        for (size_t w = 0; w < 8; w++) {
            words[w] = unit_random(&seed);
        }
        /* Half of them near to what is right: small lengths and positions. */
        if (words[7] % 2 == 0) {
            words[0] &= UINT64_C(0x07ff3fff00000000);
            words[1] = box->in.payload + words[1] % (2 * REGX_MAILBOX_PAYLOAD) / 64 * 64;
            words[2] %= UINT64_C(1) << 37;
        }
        memcpy((void *)line, words, sizeof(words));
        atomic_store(&line->sequence, (uint32_t)(box->in.line / REGX_MAILBOX_LINES) + 1);
        poll_whatever(box);
    }
    box_close(box);
}

/* ---- a poller that writes anything ---- */

static void any_count_of_consumed_is_survived(void **state)
{
    box_t *box = box_open();
    uint64_t seed = 13;
    uint64_t accepted = 0;

    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        const uint64_t random = unit_random(&seed);

        switch (random % 4) {
        case 0: /* anything */
            box->memory->consumed.lines = unit_random(&seed);
            box->memory->consumed.payload = unit_random(&seed);
            break;
        case 1: /* more than was posted, or less than was said before */
            box->memory->consumed.lines = box->out.line + random / 4 % 1000 - 500;
            box->memory->consumed.payload = box->out.payload + random / 4 % 100000 - 50000;
            break;
        default:
            box->memory->consumed.lines = box->out.line;
            box->memory->consumed.payload = box->out.payload;
        }
        accepted += post(box, i, some_length(&seed)) == REGX_OK;
    }
    assert_true(accepted > 1000);
    box_close(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_arrives),
        cmocka_unit_test(laps_and_wraps_keep_order_and_content),
        cmocka_unit_test(a_ring_full_of_lines_takes_nothing),
        cmocka_unit_test(a_span_needs_all_its_lines),
        cmocka_unit_test(a_ring_full_of_payload_takes_short_frames_only),
        cmocka_unit_test(an_empty_mailbox_takes_any_length),
        cmocka_unit_test(the_laps_number_may_overflow),
        cmocka_unit_test(lent_frames_come_back),
        cmocka_unit_test(a_million_frames_between_threads),
        cmocka_unit_test(every_byte_of_a_line_may_be_anything),
        cmocka_unit_test(random_lines_are_survived),
        cmocka_unit_test(any_count_of_consumed_is_survived),
    };

    for (size_t i = 0; i < PATTERN; i++) {
        pattern[i] = unit_stamp(1, i);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
