/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The mailbox beside one that writes anything: a poller reads nothing outside the memory whatever
 * the poster wrote, and the other way round. And what no stream of frames shows in time.
 */
#include "box.h"

#include <time.h>

#define BOX_TEST(name) UNIT_TEST_WITH(name, NULL, box_t *, box, box_open(), box_close(box))

/* ---- a poster that writes anything ---- */

/* What a line of those bytes must be answered with, said in other words than the code's: the tag is
 * byte 4, the length bytes 5 and 6, the kind byte 7. */
static regx_status_t expected(const box_t *box, const regx_mailbox_line_t *line)
{
    const uint8_t *head = (const uint8_t *)line;
    const uint8_t kind = head[7];
    uint64_t position;
    uint16_t length;
    uint32_t token;

    memcpy(&length, head + 5, sizeof(length));
    memcpy(&position, line->data, sizeof(position));
    memcpy(&token, line->data + 12, sizeof(token));
    if (kind == REGX_FRAME_INLINE) {
        return length <= REGX_MAILBOX_SPAN ? REGX_OK : REGX_INVALID;
    }
    if (kind == REGX_FRAME_SHARED_COPY) {
        return length <= REGX_MAILBOX_INLINE ? REGX_OK : REGX_INVALID;
    }
    if (kind == REGX_FRAME_PAYLOAD) {
        const bool near = position >= box->in.payload && position - box->in.payload <= BOX_RING;
        const bool fits = length <= REGX_MAILBOX_MAX && position % BOX_RING + length <= BOX_RING;

        return near && fits ? REGX_OK : REGX_INVALID;
    }
    if (kind == REGX_FRAME_ZCOPY) {
        return token < REGX_MAILBOX_ZCOPIES ? REGX_OK : REGX_INVALID;
    }
    return kind == REGX_FRAME_LAST ? REGX_OK : REGX_INVALID;
}

static volatile uint8_t sink; /* so that reading is not left out */

/* Reads what the frame says, which must lie in lines or in the ring. */
static void read_frame(const box_t *box, const regx_mailbox_line_t *line, const regx_frame_t *frame)
{
    const uint8_t *data = frame->data;
    const bool in_ring = frame->kind == REGX_FRAME_PAYLOAD;
    const uint8_t *from = in_ring ? box->memory->payload : line->data;
    const uint8_t *end = in_ring ? from + BOX_RING : box->memory->payload;

    assert_true(data >= from && data + frame->length <= end);
    for (uint32_t i = 0; i < frame->length; i++) {
        sink = data[i];
    }
}

/* The short way answers only for a right frame that lies in one line, and as the other way does. */
static void peek_both_ways(box_t *box, regx_status_t right, regx_frame_t *frame)
{
    regx_frame_t same = {.data = NULL};
    const bool is_short = regx_mailbox_peek_short(&box->in, box->in.next, &same);

    assert_int_equal(regx_mailbox_peek(&box->in, frame), right);
    assert_int_equal(is_short, right == REGX_OK && frame->kind == REGX_FRAME_INLINE &&
                                   frame->length <= REGX_MAILBOX_INLINE);
    assert_true(!is_short || (same.tag == frame->tag && same.length == frame->length &&
                              same.data == frame->data));
}

/* By the count of lines, not by where the poller looks. */
static regx_mailbox_line_t *next_line(box_t *box)
{
    return &box->memory->lines[regx_mailbox_line(&box->in) % REGX_MAILBOX_LINES];
}

/* Handles the line as a poller does that uses whatever it is given. */
static void poll_whatever(box_t *box)
{
    const regx_mailbox_line_t *line = next_line(box);
    const regx_status_t right = expected(box, line);
    regx_frame_t frame;

    peek_both_ways(box, right, &frame);
    if (right != REGX_OK) {
        regx_mailbox_free_until(&box->in, regx_mailbox_line(&box->in) + 1);
        return;
    }
    if (frame.kind == REGX_FRAME_ZCOPY) {
        regx_mailbox_return(&box->in, &frame.lent);
    } else if (frame.kind != REGX_FRAME_LAST) {
        read_frame(box, line, &frame);
    }
    regx_mailbox_pop(&box->in, &frame);
}

BOX_TEST(random_lines_are_survived)
{
    uint64_t seed = 11, passed = 0;

    for (uint64_t i = 0; i < 500000; i++) {
        regx_mailbox_line_t *line = next_line(box);
        uint64_t words[8];

        for (size_t w = 0; w < 8; w++) {
            words[w] = chance_next(&seed);
        }
        /* Half of them near to what is right: small lengths and positions. */
        if (words[7] % 2 == 0) {
            words[0] &= UINT64_C(0x077fffffffffffff);
            words[1] = box->in.payload + words[1] % (2 * BOX_RING);
            words[2] %= UINT64_C(1) << 37;
        }
        memcpy((void *)line, words, sizeof(words));
        assert_empty(box); /* by any other number than the lap's */
        words[0] =
            (words[0] & ~(uint64_t)UINT32_MAX) | regx_mailbox_lap(regx_mailbox_line(&box->in));
        memcpy((void *)line, words, sizeof(words));
        const uint64_t before = box->in.payload;
        poll_whatever(box);
        assert_in_range(box->in.payload, before, before + 2 * (uint64_t)BOX_RING);
        assert_int_equal(box->in.payload % 64, 0);
        passed += box->in.payload > before;
    }
    assert_true(passed > 1000);
}

/* ---- a poller that writes anything ---- */

BOX_TEST(any_count_of_consumed_is_survived)
{
    uint64_t seed = 13;
    uint64_t accepted = 0;

    for (uint64_t i = 0; i < 200000; i++) {
        const uint64_t random = chance_next(&seed);

        switch (random % 4) {
        case 0: /* anything */
            box->memory->consumed.lines = chance_next(&seed);
            box->memory->consumed.payload = chance_next(&seed);
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
}

/* ---- lengths and laps ---- */

enum { PART = 32768 }; /* bytes of the ring in use at first */

/* Wherever the rings stand, however much of them is in use, an emptied mailbox takes a frame of any
 * length: nothing starves. */
UNIT_TEST(an_empty_mailbox_takes_any_length)
{
    for (size_t longest = REGX_MAILBOX_INLINE + 1; longest <= REGX_MAILBOX_MAX; longest += 61) {
        box_t *box = box_open();

        box->in.brought_in = PART + box->page - 64; /* as where a ring begins within a page */
        for (uint32_t number = 0; number < 200; number++) {
            const size_t most = number < 100 ? longest : REGX_MAILBOX_MAX;
            const size_t length =
                number % 2 == 0 ? most : unit_scatter((uint32_t)longest, number) % longest;

            assert_int_equal(post(box, number, length), REGX_OK);
            take(box, number, length);
        }
        box_close(box);
    }
}

/* Fewer pages are touched so; but a poster that waits gets the rest. */
BOX_TEST(a_part_of_the_ring_is_used_until_the_poller_is_behind)
{
    enum { LENGTH = 8000, PINGS = 100, TRIES = 1000 };
    regx_frame_t frame;
    uint64_t posted, taken;

    for (taken = 0; taken < PINGS; taken++) {
        assert_int_equal(post(box, taken, LENGTH), REGX_OK);
        assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
        assert_true(frame.offset % BOX_RING + LENGTH <= PART);
        take(box, taken, LENGTH);
    }
    for (unsigned round = 0; round < 2; round++) {
        posted = taken;
        for (unsigned i = 0; i < TRIES; i++) {
            posted += post(box, posted, LENGTH) == REGX_OK;
        }
        /* In the first round the poster may be past where it could have gone on. */
        assert_true(round == 0 || (posted - taken) * LENGTH > BOX_RING / 2);
        while (taken < posted) {
            take(box, taken, LENGTH);
            taken++;
        }
    }
    assert_empty(box);
}

/* For bursts of 64: each page that is touched costs time. */
BOX_TEST(short_frames_that_find_no_room_get_little_more)
{
    enum { LENGTH = 1000, TRIES = 2000, ROUNDS = 10 };
    regx_frame_t frame;
    uint64_t posted = 0, taken = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < TRIES; i++) {
            posted += post(box, posted, LENGTH) == REGX_OK;
        }
        for (; taken < posted; taken++) {
            assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
            assert_true(frame.offset % BOX_RING + LENGTH <= 4 * PART);
            take(box, taken, LENGTH);
        }
    }
}

/* What a processor fetches ahead behind one frame is not the next. A long one would only lose room. */
BOX_TEST(short_frames_of_the_ring_lie_apart)
{
    enum { LONG = 8192 + 14, GAP = 1024 };
    static const size_t lengths[] = {REGX_MAILBOX_SPAN + 1, 1024 + 14, 4096 + 14, LONG};
    regx_frame_t frame;
    uint64_t number = 0;

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (unsigned posts = 0; posts < 40; posts++, number++) {
            const uint64_t end = box->out.payload;

            assert_int_equal(post(box, number, lengths[i]), REGX_OK);
            assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
            assert_int_equal(frame.kind, REGX_FRAME_PAYLOAD);
            assert_true(lengths[i] == LONG || frame.offset >= end + GAP);
            assert_true(lengths[i] != LONG || frame.offset % BOX_RING < 64 ||
                        frame.offset < end + 64);
            take(box, number, lengths[i]);
        }
    }
}

/* Exchanges with a poller from which a line comes in so many ns. Returns whether the ring grew. */
static bool grows_by_laps(uint32_t distance, uint32_t cache, size_t longest)
{
    enum { PINGS = 12000, HEADER = 14 };
    box_t *box = box_open();
    regx_frame_t frame;
    bool beyond = false;

    for (uint64_t number = 0; number < PINGS; number++) {
        const size_t length = longest - unit_scatter(3, (uint32_t)number) % (longest / 3);

        box->out.distance = distance;
        box->out.cache = cache;
        box->out.balance = 1;
        assert_int_equal(regx_mailbox_post(&box->out, (uint8_t)number, content(number), HEADER,
                                           NULL, (void *)(uintptr_t)(content(number) + HEADER),
                                           length - HEADER),
                         REGX_OK);
        assert_int_equal(regx_mailbox_peek(&box->in, &frame), REGX_OK);
        beyond |= frame.offset % BOX_RING >= PART;
        take(box, number, length);
    }
    box_close(box);
    return beyond;
}

UNIT_TEST(the_ring_grows_though_the_poller_keeps_up)
{
    assert_true(grows_by_laps(0, BOX_RING, 8000));
    assert_int_equal(grows_by_laps(0, BOX_RING, 1500), !regx_cpu_is_amd()); /* which lie apart */
}

/* The lines of these come from memory, wherever they lie in the ring. */
UNIT_TEST(the_ring_does_not_grow_by_what_goes_past_caches)
{
    assert_false(grows_by_laps(1000, 0, 8000)); /* far */
    assert_false(grows_by_laps(75, BOX_RING, 8000));
    assert_true(grows_by_laps(75, BOX_RING / 2, 8000)); /* it can leave the cache */
    assert_true(grows_by_laps(30, BOX_RING, 8000));     /* on a core's second thread */
}

/* Of three readings of the clock the first two lie around nothing, and a line comes before the third. */
static int64_t line_takes[2]; /* ns, in turn; 0: the clock is the machine's */

UNIT_WRAP(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    static int64_t now, readings;

    if (line_takes[0] == 0) {
        return __real_clock_gettime(clock, time);
    }
    now += 20 + (++readings % 3 == 0 ? line_takes[readings / 3 % 2] : 0);
    *time = (struct timespec){.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    return 0;
}

/* None of these lies in the ring of payload. Of one that is far every other line may come soon. On
 * processors where it was not tried nothing is measured. */
UNIT_TEST(by_frames_in_lines_it_is_known_how_far_the_poller_is)
{
    static const int64_t takes[][2] = {{20, 20}, {55, 55}, {150, 150}, {140, 55}, {55, 140}};

    for (unsigned i = 0; i < sizeof(takes) / sizeof(takes[0]); i++) {
        box_t *box = box_open();

        memcpy(line_takes, takes[i], sizeof(line_takes));
        for (uint64_t number = 0; number < 16 * REGX_MAILBOX_LINES; number++) {
            assert_int_equal(post(box, number, REGX_MAILBOX_SPAN), REGX_OK);
            take(box, number, REGX_MAILBOX_SPAN);
            if (number >= 8 * REGX_MAILBOX_LINES) {
                assert_int_equal(regx_mailbox_is_far(&box->out), i >= 2 && regx_cpu_is_amd());
            }
        }
        box_close(box);
    }
    line_takes[0] = 0;
}

static bool has_one_line(size_t length)
{
    return length > REGX_MAILBOX_SPAN || regx_mailbox_lines_of(length) == 1;
}

/* Frames whose words, which may stand where the head of a line would be, are numbers of laps, in
 * bursts until there is no room. Of 600 frames half go on in other lines, half go by the ring; of the
 * next 600 all but a few fit a line. All mailboxes but one are so old that the laps' number
 * overflows. */
UNIT_TEST(no_content_is_taken_for_a_head)
{
    enum { FRAMES = 20000, KEPT = 2 * REGX_MAILBOX_LINES, WORDS = REGX_MAILBOX_SPAN / 2 };
    static uint32_t words[KEPT][WORDS];
    static size_t lengths[KEPT];

    for (uint64_t mailbox = 0; mailbox < 12; mailbox++) {
        box_t *box = box_open();
        uint64_t posted = 0, taken = 0, full = 0, seed = mailbox;

        if (mailbox > 0) {
            box->out.line = box->out.consumed_lines = UINT64_C(0xfffffffd) * REGX_MAILBOX_LINES;
            regx_mailbox_free_until(&box->in, box->out.line);
        }
        while (posted < FRAMES) {
            const uint64_t random = chance_next(&seed);
            const bool is_short = posted / 600 % 2 == 1 && random % 200 != 0;
            const size_t i = posted % KEPT;

            if (random % (posted / 5000 % 2 == 0 ? 64 : 1024) == 0 || posted - taken == KEPT) {
                for (uint64_t n = random / 1024 % 256; taken < posted && n > 0; n--, taken++) {
                    if (has_one_line(lengths[taken % KEPT])) {
                        assert_int_equal(regx_mailbox_has_second(&box->in), posted - taken > 1);
                    }
                    take_bytes(box, taken, words[taken % KEPT], lengths[taken % KEPT]);
                }
                continue;
            }
            lengths[i] = random / 1024 % (is_short ? REGX_MAILBOX_INLINE + 1 : sizeof(words[i]));
            for (size_t w = 0; w < WORDS; w++) {
                const uint64_t near = random % 3 == 0 ? chance_next(&seed) : random / 8;

                words[i][w] = regx_mailbox_lap(box->out.line) - 1 + (uint32_t)(near % 5);
            }
            const bool fits = post_bytes(box, posted, words[i], lengths[i]) == REGX_OK;
            posted += fits;
            full += !fits;
            /* What the poller looks at next is empty, unless the ring is full. */
            assert_true(!fits || (uint32_t)regx_mailbox_next_line(&box->out)->head !=
                                     regx_mailbox_lap(box->out.line));
        }
        assert_true(full > FRAMES / 100);
        box_close(box);
    }
}

/* Of so many at most, and never past where the freed lines are published. */
BOX_TEST(short_frames_are_taken_in_rows)
{
    uint64_t seed = 17, posted = 0, taken = 0;

    while (taken < 8 * (uint64_t)REGX_MAILBOX_LINES) {
        const uint64_t random = chance_next(&seed), most = 1 + random % 32;

        for (uint64_t n = random / 32 % 64; n > 0 && posted - taken < 128; n--, posted++) {
            assert_int_equal(regx_mailbox_post(&box->out, (uint8_t)posted, content(posted),
                                               posted % (REGX_MAILBOX_INLINE + 1), NULL, NULL, 0),
                             REGX_OK);
        }
        const regx_mailbox_line_t *line = box->in.next;
        const regx_mailbox_line_t *const end = regx_mailbox_row_end(&box->in, most);
        regx_frame_t frame;
        assert_in_range(end - line, 1, most);
        for (; line < end && regx_mailbox_peek_short(&box->in, line, &frame); line++, taken++) {
            assert_int_equal(frame.tag, (uint8_t)taken);
            assert_int_equal(frame.length, taken % (REGX_MAILBOX_INLINE + 1));
            assert_memory_equal(frame.data, content(taken), frame.length);
            regx_mailbox_pop_short(&box->in, line);
        }
        regx_mailbox_end_row(&box->in);
        assert_true(line == end || taken == posted);
        assert_int_equal(box->memory->consumed.lines, taken - taken % REGX_MAILBOX_QUARTER);
    }
}
