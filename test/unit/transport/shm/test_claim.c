/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The claim cell: what two sides claim of a range, and who learns what of the other.
 */
#include "../../unit.h"

#include <pthread.h>

#include "transport/shm/claim.h"

enum { PAGE = REGX_CLAIM_PAGE, PIECE = REGX_CLAIM_PIECE, PIECES = 4096, USES = 400 };

static void pieces_cover_the_range_in_pages(void **state)
{
    static const uint64_t lengths[] = {
        1,         PAGE - 1, PAGE,      PAGE + 1,          PIECE - 1,     PIECE,
        PIECE + 1, 4333333,  64u << 20, UINT64_C(5) << 30, REGX_CLAIM_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        regx_claim_cell_t cell = {0};
        regx_claim_piece_t piece;
        uint64_t covered = 0, uncovered = lengths[i];
        unsigned count = 0;

        regx_claim_open(&cell, 6);
        while (count++ < 20000 && regx_claim_take(&cell, 6, lengths[i], &piece) == REGX_OK) {
            assert_true(piece.begin == covered && piece.end > piece.begin);
            assert_true(piece.begin % PAGE == 0 && piece.end - piece.begin <= REGX_CLAIM_PIECE_MAX);
            covered = piece.end;
        }
        assert_true(covered == lengths[i] || count > 20000);
        assert_true(count > 20000 || regx_claim_look(&cell, 6) == regx_claim_units(lengths[i]));
        /* an odd number: from the end */
        count = 0;
        regx_claim_open(&cell, 7);
        while (count++ < 20000 && regx_claim_take(&cell, 7, lengths[i], &piece) == REGX_OK) {
            assert_true(piece.end == uncovered && piece.end > piece.begin);
            assert_true(piece.begin % PAGE == 0 && piece.end - piece.begin <= REGX_CLAIM_PIECE_MAX);
            uncovered = piece.begin;
        }
        assert_true(uncovered == 0 || count > 20000);
    }
}

static void who_comes_late_claims_nothing(void **state)
{
    enum { LENGTH = 3 * PIECE };
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t piece;

    (void)state;
    regx_claim_open(&cell, 5);
    assert_int_equal(regx_claim_take(&cell, 5, LENGTH, &piece), REGX_OK);
    assert_int_equal(regx_claim_take(&cell, 4, LENGTH, &piece), REGX_INVALID);
    assert_int_equal(regx_claim_take(&cell, 6, LENGTH, &piece), REGX_INVALID);
    assert_int_equal(regx_claim_look(&cell, 4), REGX_CLAIM_OVER);
    assert_int_equal(regx_claim_look(&cell, 5), PIECE / PAGE);
    assert_int_equal(regx_claim_close(&cell, 5, LENGTH), PIECE / PAGE);
    assert_int_equal(regx_claim_take(&cell, 5, LENGTH, &piece), REGX_AGAIN);
    regx_claim_open(&cell, 6);
    assert_int_equal(regx_claim_take(&cell, 5, LENGTH, &piece), REGX_INVALID);
    assert_int_equal(regx_claim_close(&cell, 6, LENGTH), 0);
    /* who takes the range for a shorter one */
    assert_int_equal(regx_claim_take(&cell, 6, LENGTH - PAGE, &piece), REGX_INVALID);
}

static void a_piece_that_failed_is_named_to_the_receiver(void **state)
{
    enum { LENGTH = 2 * PIECE - 5 };
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t pieces[2], failed;

    (void)state;
    regx_claim_open(&cell, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(regx_claim_take(&cell, 4, LENGTH, &pieces[i]), REGX_OK);
    }
    regx_claim_end(&cell, &pieces[0], true);
    assert_int_equal(cell.ended, PIECE / PAGE);
    assert_int_equal(regx_claim_failed(&cell, LENGTH, &failed), REGX_AGAIN);
    regx_claim_end(&cell, &pieces[1], false);
    assert_int_equal(cell.ended, 2 * PIECE / PAGE);
    assert_int_equal(regx_claim_failed(&cell, LENGTH, &failed), REGX_OK);
    assert_true(failed.begin == PIECE && failed.end == LENGTH);
    regx_claim_open(&cell, 6);
    assert_int_equal(cell.ended, 0);
    assert_int_equal(regx_claim_failed(&cell, LENGTH, &failed), REGX_AGAIN);
}

static void only_what_is_untouched_is_withdrawn(void **state)
{
    enum { LENGTH = 3 * PIECE };
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t piece;

    (void)state;
    regx_claim_open(&cell, 5);
    assert_false(regx_claim_withdraw(&cell, 4, LENGTH));
    assert_true(regx_claim_withdraw(&cell, 5, LENGTH));
    assert_int_equal(regx_claim_take(&cell, 5, LENGTH, &piece), REGX_AGAIN);
    regx_claim_open(&cell, 6);
    assert_int_equal(regx_claim_take(&cell, 6, LENGTH, &piece), REGX_OK);
    assert_false(regx_claim_withdraw(&cell, 6, LENGTH));
    assert_int_equal(regx_claim_look(&cell, 6), PIECE / PAGE);
}

static void a_piece_that_cannot_be_is_not_believed(void **state)
{
    static const uint32_t wrong[][2] = {
        {3, 3}, {4, 3}, {0, 201}, {0, REGX_CLAIM_PIECE_MAX / PAGE + 1}, {UINT32_MAX, 1}};
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t piece;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cell.failed = (uint64_t)wrong[i][0] << 32 | wrong[i][1];
        assert_int_equal(regx_claim_failed(&cell, 200 * PAGE, &piece), REGX_INVALID);
    }
}

/* ---- both at once ---- */

/* Plain memory is marked for each piece, so that a thread sanitizer sees what is not ordered. */
static struct {
    regx_claim_cell_t cell;
    _Atomic uint64_t told; /* number << 32 | pieces: what a frame says */
    uint32_t marks[PIECES];
} hammer;

static void mark(const regx_claim_piece_t *piece, uint32_t number)
{
    hammer.marks[piece->begin / PIECE] += number;
}

static void *assist(void *unused)
{
    uint64_t told = 0;

    (void)unused;
    while ((told = atomic_load(&hammer.told)) != UINT64_MAX) {
        const uint32_t number = (uint32_t)(told >> 32);
        const uint64_t length = (told & UINT32_MAX) * PIECE;
        regx_claim_piece_t piece;

        while (regx_claim_take(&hammer.cell, number, length, &piece) == REGX_OK) {
            mark(&piece, number);
            regx_claim_end(&hammer.cell, &piece, number % 3 != 0);
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

    memset(hammer.marks, 0, sizeof(hammer.marks));
    regx_claim_open(&hammer.cell, number);
    atomic_store(&hammer.told, (uint64_t)number << 32 | pieces);
    while (mine < give_up && regx_claim_take(&hammer.cell, number, length, &piece) == REGX_OK) {
        mark(&piece, number);
        mine++;
    }
    const uint32_t claimed = regx_claim_close(&hammer.cell, number, length) / (PIECE / PAGE);

    assert_true(claimed >= mine && claimed <= pieces);
    while (atomic_load_explicit(&hammer.cell.ended, memory_order_acquire) <
           (claimed - mine) * (PIECE / PAGE)) {
    }
    for (uint32_t i = 0; i < pieces; i++) {
        const uint32_t at = number % 2 != 0 ? pieces - 1 - i : i;

        if (hammer.marks[at] != (i < claimed ? number : 0)) {
            fail_msg("use %u, piece %u of %u: %u", number, at, pieces, hammer.marks[at]);
        }
    }
    assert_int_equal(hammer.cell.ended, (claimed - mine) * (PIECE / PAGE));
    return claimed - mine;
}

static void each_piece_is_claimed_once(void **state)
{
    uint64_t seed = 1, theirs = 0, mine = 0;
    pthread_t other;
    uint32_t number = 0;

    (void)state;
    assert_int_equal(pthread_create(&other, NULL, assist, NULL), 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_the_range_in_pages),
        cmocka_unit_test(who_comes_late_claims_nothing),
        cmocka_unit_test(a_piece_that_failed_is_named_to_the_receiver),
        cmocka_unit_test(only_what_is_untouched_is_withdrawn),
        cmocka_unit_test(a_piece_that_cannot_be_is_not_believed),
        cmocka_unit_test(each_piece_is_claimed_once),
    };

    return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
