/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions by address, against a plain list of them.
 */
#include "../unit.h"

#include "registration/regions.h"

enum { MOST = 3000, SPAN = 20000, OPERATIONS = 60000 };

typedef struct model {
    regx_index_t index;
    regx_index_entry_t entries[MOST]; /* by number; end 0: not there */
    unsigned count, removed;
} model_t;

static model_t model;

static bool overlaps(const regx_index_entry_t *entry, uintptr_t start, uintptr_t end)
{
    return entry->end != 0 && entry->start < end && start < entry->end;
}

static void removed(void *context, const uint32_t *numbers, uint32_t count)
{
    assert_ptr_equal(context, &model);
    for (uint32_t i = 0; i < count; i++) {
        assert_in_range(numbers[i], 1, MOST - 1);
        assert_true(model.entries[numbers[i]].end != 0); /* there, and not told twice */
        model.entries[numbers[i]].end = 0;
        model.removed++;
        model.count--;
    }
}

static void insert(uint32_t number, uintptr_t start, uintptr_t end, unsigned access)
{
    if (model.entries[number].end == 0) {
        model.entries[number] =
            (regx_index_entry_t){.start = start, .end = end, .number = number, .access = access};
        assert_true(regx_index_insert(&model.index, &model.entries[number]));
        model.count++;
    }
}

static void cut(uintptr_t start, uintptr_t end, size_t most)
{
    unsigned expected = 0;
    size_t left = most;

    for (unsigned i = 0; i < MOST; i++) {
        expected += overlaps(&model.entries[i], start, end);
    }
    model.removed = 0;
    assert_int_equal(regx_index_cut(&model.index, start, end, &left, removed, &model),
                     expected < most);
    assert_int_equal(model.removed, expected < most ? expected : most);
    assert_true(left <= most - model.removed && left + model.removed + MOST / 16 >= most);
}

static void look(uintptr_t start, uintptr_t end, unsigned access)
{
    const uint32_t cover = regx_index_cover(&model.index, start, end, access);
    const uint32_t exact = regx_index_exact(&model.index, start, end);
    bool covered = false, is_exact = false;

    for (unsigned i = 0; i < MOST; i++) {
        const regx_index_entry_t *entry = &model.entries[i];
        const bool covers = entry->end != 0 && entry->start <= start && entry->end >= end &&
                            (access & ~entry->access) == 0;

        covered = covered || covers;
        is_exact = is_exact || (entry->end == end && entry->start == start);
        assert_true(cover != i || i == 0 || covers);
        assert_true(exact != i || i == 0 || (entry->end == end && entry->start == start));
    }
    assert_int_equal(cover != 0, covered);
    assert_int_equal(exact != 0, is_exact);
}

static void check_blocks(void)
{
    unsigned count = 0;
    uintptr_t last = 0;

    for (size_t i = 0; i < model.index.count; i++) {
        const regx_index_block_t *block = &model.index.blocks[i];
        uintptr_t end = 0;

        assert_in_range(block->count, 1, 64);
        assert_int_equal(block->start, block->entries[0].start);
        for (unsigned j = 0; j < block->count; j++) {
            assert_true(block->entries[j].start >= last);
            last = block->entries[j].start;
            end = block->entries[j].end > end ? block->entries[j].end : end;
        }
        assert_int_equal(block->end, end);
        count += block->count;
    }
    assert_int_equal(count, model.count);
    assert_int_equal(model.index.regions, model.count);
}

/* From a place that was taken before, each once. */
static void go_round(regx_index_cursor_t *place)
{
    static bool seen[MOST];

    memset(seen, 0, sizeof(seen));
    for (unsigned i = 0; i < model.count; i++) {
        const uint32_t number = regx_index_next(&model.index, place);

        assert_in_range(number, 1, MOST - 1);
        assert_true(model.entries[number].end != 0);
        assert_false(seen[number]);
        seen[number] = true;
    }
    if (model.count == 0) {
        assert_int_equal(regx_index_next(&model.index, place), 0);
    }
}

static void random_operations_agree_with_a_list(void **state)
{
    uint64_t random = 20260101;
    regx_index_cursor_t place = {0};

    (void)state;
    memset(&model, 0, sizeof(model));
    regx_index_init(&model.index);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        const uintptr_t start = 1 + chance_next(&random) % SPAN;
        const uintptr_t length = 1 + chance_next(&random) % (i % 7 == 0 ? 500 : 20);
        const uint32_t number = 1 + (uint32_t)(chance_next(&random) % (MOST - 1));
        const unsigned access = (unsigned)(chance_next(&random) % 8);
        const unsigned what = (unsigned)(chance_next(&random) % 1000);

        if (what < 500) {
            /* Often at the start of another. */
            insert(number, what % 3 == 0 ? model.entries[1 + number / 2].start + 1 : start,
                   start + SPAN / 2 + length, access);
        } else if (what < 700 && model.entries[number].end != 0) {
            regx_index_remove(&model.index, model.entries[number].start, number);
            model.entries[number].end = 0;
            model.count--;
        } else if (what < 990) {
            insert(number, start, start + length, access);
            look(start, start + length, access);
            look(start + 1, start + 1 + length / 2, access & 3);
        } else if (what < 999) {
            cut(start, start + length, 1 + what % 10);
        } else {
            cut(start, start + SPAN / 4, i % 3 == 0 ? MOST : i % 300);
        }
        if (i % 64 == 0) {
            check_blocks();
            go_round(&place);
            regx_index_next(&model.index, &place); /* not always from the same one */
        }
    }
    cut(0, UINTPTR_MAX, MOST);
    assert_int_equal(model.count, 0);
    assert_int_equal(model.index.count, 0);
    go_round(&place);
    regx_index_fini(&model.index);
}

/* The blocks do not thin out when most of what they held has gone one by one. */
static void blocks_stay_full_when_entries_go(void **state)
{
    (void)state;
    memset(&model, 0, sizeof(model));
    regx_index_init(&model.index);
    for (uint32_t i = 1; i < MOST; i++) {
        insert(i, i * 10, i * 10 + 10, 1);
    }
    assert_in_range(model.index.count, MOST / 64, MOST / 30);
    for (uint32_t i = 1; i < MOST; i++) {
        if (i % 100 != 0) {
            regx_index_remove(&model.index, i * 10, i);
            model.entries[i].end = 0;
            model.count--;
        }
    }
    check_blocks();
    assert_in_range(model.index.count, 1, 2);
    for (uint32_t i = 1; i < MOST; i++) {
        assert_int_equal(regx_index_cover(&model.index, i * 10, i * 10 + 10, 1),
                         i % 100 == 0 ? i : 0);
    }
    regx_index_fini(&model.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_agree_with_a_list),
        cmocka_unit_test(blocks_stay_full_when_entries_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
