/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A handle finds its object and, once that is gone, nothing.
 */
#include "../unit.h"

#include "base/handle_table.h"

enum { OBJECTS = 5000 };

static char objects[OBJECTS];

UNIT_TEST(a_handle_finds_its_object_alone)
{
    regx_handle_table_t table;
    regx_handle_t *handles = calloc(OBJECTS, sizeof(*handles));

    assert_non_null(handles);
    regx_handle_table_init(&table);
    assert_null(
        regx_handle_table_find(&table, (regx_handle_t){0, 1})); /* an empty one knows none */
    for (size_t i = 0; i < OBJECTS; i++) {
        assert_true(regx_handle_table_add(&table, &objects[i], &handles[i]));
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        const regx_handle_t handle = handles[i];

        assert_ptr_equal(regx_handle_table_find(&table, handle), &objects[i]);
        assert_null(
            regx_handle_table_find(&table, (regx_handle_t){handle.id, handle.generation + 1}));
        assert_null(
            regx_handle_table_find(&table, (regx_handle_t){handle.id, handle.generation - 1}));
    }
    for (uint32_t id = OBJECTS; id < 4 * OBJECTS; id++) {
        for (uint32_t generation = 0; generation < 3; generation++) {
            assert_null(regx_handle_table_find(&table, (regx_handle_t){id, generation}));
        }
    }
    regx_handle_table_fini(&table);
    free(handles);
}

UNIT_TEST(old_handles_find_nothing)
{
    enum { ROUNDS = 20000, LIVE = 100 };
    regx_handle_table_t table;
    regx_handle_t *handles = calloc(ROUNDS, sizeof(*handles)); /* all that ever were */
    size_t live[LIVE];                                         /* their rounds */
    uint64_t seed = 3;

    assert_non_null(handles);
    regx_handle_table_init(&table);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t place = round;

        if (round >= LIVE) {
            const size_t old = chance_next(&seed) % round;

            place = chance_next(&seed) % LIVE;
            regx_handle_table_remove(&table, handles[live[place]]);
            assert_null(regx_handle_table_find(&table, handles[live[place]]));
            /* Any old handle finds its own object, if that is still there, and no other. */
            void *found = regx_handle_table_find(&table, handles[old]);
            assert_true(found == NULL || found == &objects[old % OBJECTS]);
        }
        assert_true(regx_handle_table_add(&table, &objects[round % OBJECTS], &handles[round]));
        live[place] = round;
    }
    for (size_t i = 0; i < LIVE; i++) {
        assert_ptr_equal(regx_handle_table_find(&table, handles[live[i]]),
                         &objects[live[i] % OBJECTS]);
    }
    size_t alive = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        alive += regx_handle_table_find(&table, handles[round]) != NULL;
    }
    assert_int_equal(alive, LIVE);
    /* Numbers are used again: the table has not grown with the rounds. */
    assert_in_range(table.count, LIVE, 2 * LIVE);
    regx_handle_table_fini(&table);
    free(handles);
}
