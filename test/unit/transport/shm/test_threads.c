/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What two processes write at once, by two threads: the mailbox, of which one posts and one polls,
 * and the claim cell.
 */
#include "box.h"

#include "transport/shm/shm_internal.h"

/* Some hundred laps. Each hand-over may take time slices of other programs. The thread sanitizer is
 * content with a few laps, and looks at each byte for long. */
#ifdef __SANITIZE_THREAD__
enum { STREAM = 2500, STREAM_SEED = 7 };
#else
enum { STREAM = 50000, STREAM_SEED = 7 };
#endif

typedef struct stream {
    box_t *box;
    _Atomic bool failed;
} stream_t;

/* Where the head of a line would be, the content has the next lap's number. */
static void make_bytes(uint8_t *bytes, uint64_t number, size_t length, uint64_t line)
{
    const uint32_t lap = regx_mailbox_lap(line) + 1;

    memcpy(bytes, content(number), length);
    for (size_t at = REGX_MAILBOX_INLINE; at + sizeof(lap) <= regx_min(length, REGX_MAILBOX_SPAN);
         at += 64) {
        memcpy(bytes + at, &lap, sizeof(lap));
    }
}

static void *produce(void *argument)
{
    stream_t *stream = argument;
    uint64_t seed = STREAM_SEED;
    uint8_t bytes[REGX_MAILBOX_MAX];

    for (uint64_t number = 0; number < STREAM; number++) {
        const size_t length = some_length(&seed);

        make_bytes(bytes, number, length, stream->box->out.line);
        while (post_bytes(stream->box, number, bytes, length) == REGX_AGAIN) {
            if (atomic_load(&stream->failed)) {
                return NULL;
            }
            sched_yield();
        }
    }
    return NULL;
}

UNIT_TEST(many_frames_between_threads)
{
    stream_t stream = {.box = box_open()};
    regx_mailbox_in_t *in = &stream.box->in;
    uint8_t bytes[REGX_MAILBOX_MAX];
    uint64_t seed = STREAM_SEED;
    uint64_t number = 0;

    const pthread_t producer = unit_thread(produce, &stream);
    while (number < STREAM && !atomic_load(&stream.failed)) {
        regx_frame_t frame = {.kind = REGX_FRAME_INLINE};
        const bool is_short = number % 3 != 0 && regx_mailbox_peek_short(in, in->next, &frame);
        const regx_status_t status = is_short ? REGX_OK : regx_mailbox_peek(in, &frame);

        if (status == REGX_AGAIN) {
            sched_yield();
            continue;
        }
        const size_t length = some_length(&seed);
        make_bytes(bytes, number, length, regx_mailbox_line(in));
        if (status != REGX_OK || !is_frame(&frame, number, bytes, length)) {
            atomic_store(&stream.failed, true);
        } else if (is_short) {
            regx_mailbox_pop_short(in, in->next);
            regx_mailbox_end_row(in);
            number++;
        } else {
            regx_mailbox_pop(in, &frame);
            number++;
        }
    }
    pthread_join(producer, NULL);
    assert_int_equal(number, STREAM);
    assert_true(regx_mailbox_line(&stream.box->in) > 8 * REGX_MAILBOX_LINES);
    assert_true(stream.box->in.payload > 8 * (uint64_t)BOX_RING);
    assert_empty(stream.box);
    box_close(stream.box);
}

/* ---- the claim cell: what two sides claim of a range, and who learns what of the other ---- */

enum { PAGE = REGX_CLAIM_PAGE, PIECE = REGX_CLAIM_PIECE, PIECES = 4096, USES = 400 };

/* Plain memory is marked for each piece, so that a thread sanitizer sees what is not ordered. */
static struct {
    regx_claim_cell_t cell;
    _Atomic uint64_t told;   /* number << 32 | pieces: what a frame says */
    _Atomic uint32_t theirs; /* pieces of this use */
    uint32_t marks[PIECES];
} hammer;

static void mark(const regx_claim_piece_t *piece, uint32_t number)
{
    hammer.marks[piece->begin / PIECE] += number;
}

static void *assist(void *unused)
{
    uint64_t told = 0;

    while ((told = atomic_load(&hammer.told)) != UINT64_MAX) {
        const uint32_t number = (uint32_t)(told >> 32);
        const uint64_t length = (told & UINT32_MAX) * PIECE;
        regx_claim_piece_t piece;

        while (regx_claim_take(&hammer.cell, number, length, REGX_CLAIM_BY_PEER, &piece) ==
               REGX_OK) {
            mark(&piece, number);
            atomic_fetch_add_explicit(&hammer.theirs, 1, memory_order_relaxed);
            regx_claim_end(&hammer.cell, REGX_CLAIM_BY_PEER, number % 3 != 0);
        }
    }
    return NULL;
}

/* One use. Returns how many pieces the other claimed. */
static uint32_t use(uint32_t number, uint32_t pieces, uint32_t give_up)
{
    const uint64_t length = (uint64_t)pieces * PIECE;
    regx_claim_piece_t piece;
    uint32_t mine = 0;
    uint64_t seen;

    memset(hammer.marks, 0, sizeof(hammer.marks));
    hammer.theirs = 0;
    regx_claim_open(&hammer.cell, number);
    atomic_store(&hammer.told, (uint64_t)number << 32 | pieces);
    while (regx_claim_take(&hammer.cell, number, length, REGX_CLAIM_BY_RECEIVER, &piece) ==
           REGX_OK) {
        mark(&piece, number);
        mine++;
        regx_claim_end(&hammer.cell, REGX_CLAIM_BY_RECEIVER, mine < give_up);
    }
    while (((seen = regx_claim_look(&hammer.cell)) & REGX_CLAIM_BY_PEER) != 0) {
    }
    for (uint32_t i = 0; i < pieces; i++) {
        if (hammer.marks[i] != number) {
            fail_msg("use %u, piece %u of %u: %u", number, i, pieces, hammer.marks[i]);
        }
    }
    const bool failed = mine >= give_up || (hammer.theirs > 0 && number % 3 == 0);
    assert_int_equal(hammer.theirs + mine, pieces);
    assert_int_equal(seen, (uint64_t)number << 32 | (failed ? REGX_CLAIM_FAILED : 0) |
                               pieces * (PIECE / PAGE));
    return pieces - mine;
}

UNIT_TEST(each_piece_is_claimed_once)
{
    uint64_t seed = 1, theirs = 0, mine = 0;
    uint32_t number = 0;

    const pthread_t other = unit_thread(assist, NULL);
    /* On one core they hardly ever meet: then it goes on until they have. */
    while (++number < USES || theirs == 0 || mine == 0) {
        const uint32_t pieces = 1 + (uint32_t)(chance_next(&seed) % PIECES);
        const uint32_t took = use(number, pieces, number % 8 == 0 ? pieces / 3 : UINT32_MAX);

        theirs += took;
        mine += pieces - took;
    }
    atomic_store(&hammer.told, UINT64_MAX);
    pthread_join(other, NULL);
}
