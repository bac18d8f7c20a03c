/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The claim cell: what two sides claim of a range, and who learns what of the other.
 */
#include "../../unit.h"

#include <pthread.h>

#include "transport/shm/claim.h"

enum { PAGE = REGX_CLAIM_PAGE, USES = 20000, MOST_UNITS = 600 };

static const uint64_t lengths[] = {
    1,       PAGE - 1,      PAGE,    PAGE + 1,  100000,           128 * 1024,
    1 << 20, (1 << 20) + 1, 4333333, 64u << 20, UINT64_C(5) << 30};
static const uint64_t destinations[] = {0, 1, 63, PAGE - 1, PAGE, UINT64_C(0x7f0000001234)};

/* ---- geometry ---- */

static void assert_covered(const regx_claim_range_t *range, bool large)
{
    const uint32_t units = regx_claim_units(range);
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t piece;
    uint64_t covered = 0;
    uint32_t at = 0;

    assert_true(units > 0);
    regx_claim_open(&cell, 7);
    while (regx_claim_take(&cell, 7, units, large, &piece) == REGX_OK) {
        const uint64_t begin = regx_claim_offset(range, piece.begin);
        const uint64_t end = regx_claim_offset(range, piece.end);

        assert_int_equal(piece.begin, at);
        assert_true(begin == covered && end > begin);
        assert_true(begin == 0 || (range->destination + begin) % PAGE == 0);
        assert_true(piece.end - piece.begin <= REGX_CLAIM_MOST + REGX_CLAIM_LEAST / 2);
        covered = end;
        at = piece.end;
    }
    assert_true(covered == range->length);
    assert_int_equal(at, units);
    assert_int_equal(regx_claim_take(&cell, 7, units, large, &piece), REGX_AGAIN);
}

static void pieces_cover_the_range_and_share_no_page(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t k = 0; k < sizeof(destinations) / sizeof(destinations[0]); k++) {
            const regx_claim_range_t range = {destinations[k], lengths[i]};

            assert_covered(&range, false);
            assert_covered(&range, true);
        }
    }
}

static void pieces_become_smaller_towards_the_end(void **state)
{
    const regx_claim_range_t range = {0, 1 << 20};
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t piece;
    uint32_t before = UINT32_MAX, count = 0;

    (void)state;
    regx_claim_open(&cell, 1);
    while (regx_claim_take(&cell, 1, 256, false, &piece) == REGX_OK) {
        assert_true(piece.end - piece.begin <= before);
        before = piece.end - piece.begin;
        count++;
    }
    assert_int_equal(regx_claim_units(&range), 256);
    assert_true(count >= 4 && before <= REGX_CLAIM_LEAST + REGX_CLAIM_LEAST / 2);
}

static void what_is_no_range_has_no_units(void **state)
{
    static const regx_claim_range_t wrong[] = {
        {4096, 0}, {0, UINT64_MAX}, {UINT64_MAX, 1}, {UINT64_MAX - 10, 11}, {0, UINT64_C(1) << 44}};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(regx_claim_units(&wrong[i]), 0);
    }
}

/* ---- the two sides ---- */

static void who_comes_late_claims_nothing(void **state)
{
    regx_claim_cell_t cell = {0};
    regx_claim_piece_t piece, unused;

    (void)state;
    regx_claim_open(&cell, 5);
    assert_int_equal(regx_claim_take(&cell, 5, 100, false, &piece), REGX_OK);
    assert_int_equal(regx_claim_take(&cell, 4, 100, false, &unused), REGX_INVALID);
    assert_int_equal(regx_claim_take(&cell, 6, 100, false, &unused), REGX_INVALID);
    assert_int_equal(regx_claim_look(&cell, 4), REGX_CLAIM_OVER);
    assert_int_equal(regx_claim_look(&cell, 5), piece.end);
    assert_int_equal(regx_claim_close(&cell, 5, 100), piece.end);
    assert_int_equal(regx_claim_take(&cell, 5, 100, false, &unused), REGX_AGAIN);
    regx_claim_open(&cell, 6);
    assert_int_equal(regx_claim_take(&cell, 5, 100, false, &unused), REGX_INVALID);
    /* of a longer range than that of the cell */
    assert_int_equal(regx_claim_close(&cell, 6, 100), 0);
    assert_int_equal(regx_claim_take(&cell, 6, 99, false, &unused), REGX_INVALID);
}

static void a_piece_that_failed_is_named_to_the_receiver(void **state)
{
    const regx_claim_piece_t pieces[] = {{0, 30}, {40, 50}};
    regx_claim_cell_t cell = {0};

    (void)state;
    regx_claim_open(&cell, 5);
    regx_claim_end(&cell, &pieces[0], true);
    assert_true(cell.ended == 30 && cell.failed == 0);
    regx_claim_end(&cell, &pieces[1], false);
    assert_true(cell.ended == 40 && cell.failed == (UINT64_C(40) << 32 | 50));
    regx_claim_open(&cell, 6);
    assert_true(cell.ended == 0 && cell.failed == 0);
}

/* ---- both at once ---- */

static struct {
    regx_claim_cell_t cell;
    _Atomic uint64_t told;      /* number << 32 | units: what a frame says */
    uint32_t marks[MOST_UNITS]; /* by whoever claimed the unit: plain memory, of which the number
                                   of units in `ended` is all that the receiver knows */
} hammer;

static void *assist(void *unused)
{
    uint64_t told = 0;

    (void)unused;
    while ((told = atomic_load(&hammer.told)) != UINT64_MAX) {
        const uint32_t number = (uint32_t)(told >> 32), units = (uint32_t)told;
        regx_claim_piece_t piece;

        if (units == 0 ||
            regx_claim_take(&hammer.cell, number, units, number % 2 == 0, &piece) != REGX_OK) {
            continue;
        }
        for (uint32_t i = piece.begin; i < piece.end; i++) {
            hammer.marks[i] += number;
        }
        regx_claim_end(&hammer.cell, &piece, number % 3 != 0);
    }
    return NULL;
}

/* One use. Returns how many units the other claimed. */
static uint32_t use(uint32_t number, uint32_t units, bool give_up)
{
    regx_claim_piece_t piece;
    uint32_t mine = 0;

    memset(hammer.marks, 0, sizeof(hammer.marks));
    regx_claim_open(&hammer.cell, number);
    atomic_store(&hammer.told, (uint64_t)number << 32 | units);
    while (regx_claim_take(&hammer.cell, number, units, number % 5 == 0, &piece) == REGX_OK) {
        for (uint32_t i = piece.begin; i < piece.end; i++) {
            hammer.marks[i] += number;
        }
        mine += piece.end - piece.begin;
        if (give_up) {
            break;
        }
    }
    const uint32_t claimed = regx_claim_close(&hammer.cell, number, units);

    assert_true(claimed >= mine && claimed <= units && (give_up || claimed == units));
    while (atomic_load_explicit(&hammer.cell.ended, memory_order_acquire) < claimed - mine) {
    }
    for (uint32_t i = 0; i < units; i++) {
        assert_int_equal(hammer.marks[i], i < claimed ? number : 0);
    }
    assert_int_equal(hammer.cell.ended, claimed - mine);
    return claimed - mine;
}

static void each_unit_is_claimed_once(void **state)
{
    uint64_t seed = 1, theirs = 0;
    pthread_t other;
    uint32_t number = 0;

    (void)state;
    assert_int_equal(pthread_create(&other, NULL, assist, NULL), 0);
    /* On one core they hardly ever meet: then it goes on until they have. */
    while (++number < USES || theirs == 0) {
        const uint32_t units = 1 + (uint32_t)(chance_next(&seed) % MOST_UNITS);

        theirs += use(number, units, chance_next(&seed) % 8 == 0);
    }
    atomic_store(&hammer.told, UINT64_MAX);
    pthread_join(other, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_the_range_and_share_no_page),
        cmocka_unit_test(pieces_become_smaller_towards_the_end),
        cmocka_unit_test(what_is_no_range_has_no_units),
        cmocka_unit_test(who_comes_late_claims_nothing),
        cmocka_unit_test(a_piece_that_failed_is_named_to_the_receiver),
        cmocka_unit_test(each_unit_is_claimed_once),
    };

    return cmocka_run_group_tests_name("claim", tests, NULL, NULL);
}
