/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Landing pages: what is written into them arrives, by moved pages as far as there are whole ones,
 * and nothing beside it is touched.
 */
#include "landing_stage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

static void every_place_and_length_arrives(void **state)
{
    stage_t *stage = stage_open();
    uint64_t seed = 17, pages = 0;

    memset(stage->buffer, 0x33, ROOM / 2); /* the rest has no pages yet */
    for (unsigned i = 0; i < 500; i++) {
        const size_t skew = i % 3 == 0 ? 0 : chance_next(&seed) % PAGE;
        const size_t most = SIZE - skew;
        size_t length = 1 + chance_next(&seed) % most;
        char *to = stage->buffer + PAGE * (1 + chance_next(&seed) % 2) + skew;

        if (i % 5 == 0) {
            length = most; /* all that a landing takes */
        }
        if ((size_t)(to - stage->buffer) + length > ROOM - 1 || whole_pages(to, length) == 0) {
            continue;
        }
        assert_null(go(stage, to, length));
        pages += whole_pages(to, length);
        assert_int_equal(stage->counters.remap_pages, pages);
    }
    assert_true(pages > 250);
    stage_close(stage);
}

static void the_users_old_pages_are_written_next(void **state)
{
    stage_t *stage = stage_open();
    char *const to = stage->buffer + PAGE - 100; /* an edge page, then whole ones */

    for (uint64_t i = 0; i < 4; i++) {
        const size_t length = 100 + 3 * PAGE + (i % 2) * 7;

        memset(to, (int)(0x40 + i), length);
        regx_landing_t *landing = land(stage, to, length);
        assert_null(deliver(stage, landing));
        for (size_t at = PAGE; at < 4 * PAGE; at++) {
            assert_int_equal(landing->memory[at], 0x40 + i);
        }
        regx_landing_put(&stage->landings, landing);
    }
    stage_close(stage);
}

static unsigned mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned count = 0;

    assert_non_null(maps);
    for (int c; (c = fgetc(maps)) != EOF;) {
        count += c == '\n';
    }
    fclose(maps);
    return count;
}

static void the_number_of_mappings_stays(void **state)
{
    stage_t *stage = stage_open();

    assert_null(go(stage, stage->buffer + PAGE, 4 * PAGE));
    const unsigned before = mappings();
    for (unsigned i = 0; i < 200; i++) {
        assert_null(go(stage, stage->buffer + PAGE * (1 + i % 3) + i, (1 + i % 9) * PAGE + PAGE));
    }
    assert_true(mappings() <= before + 1); /* libc's own */
    stage_close(stage);
}

/* The first time before a page has changed, the second after the last. */
static void look_when_told(stage_t *stage, uintptr_t start, uintptr_t end)
{
    const char *first = (const char *)start;

    assert_int_equal(start, regx_align_up((uintptr_t)stage->to, PAGE));
    assert_int_equal(end, ((uintptr_t)stage->to + stage->length) / PAGE * PAGE);
    if (stage->tellings % 2 == 1) {
        assert_int_equal(first[0], 0x77);
        assert_int_equal(((const char *)end)[-1], 0x77);
    } else {
        assert_true(first[0] != 0x77 || first[1] != 0x77);
    }
}

static void caches_are_told_before_and_after(void **state)
{
    stage_t *stage = stage_open();

    stage->told = look_when_told;
    for (unsigned i = 1; i <= 5; i++) {
        memset(stage->buffer, 0x77, ROOM);
        assert_null(go(stage, stage->buffer + PAGE + 5, 6 * PAGE));
        assert_int_equal(stage->tellings, 2 * i);
    }
    stage_close(stage);
}

static void there_are_so_many_landings_and_no_more(void **state)
{
    stage_t *stage = stage_open();
    regx_landing_t *taken[COUNT];

    assert_null(regx_landings_refusal(&stage->landings, stage->buffer, PAGE));
    for (unsigned i = 0; i < COUNT; i++) {
        taken[i] = regx_landing_get(&stage->landings, stage->buffer, SIZE);
        assert_non_null(taken[i]);
    }
    assert_null(regx_landing_get(&stage->landings, stage->buffer, 1));
    for (unsigned i = 0; i < COUNT; i++) {
        regx_landing_put(&stage->landings, taken[i]);
    }
    assert_null(go(stage, stage->buffer, SIZE));
    stage_close(stage);
}

/* ---- the neighbours in the edge pages ---- */

typedef struct neighbour {
    _Atomic bool stop;
    _Atomic uint64_t rounds;
    uint64_t *before, *after; /* in the first and in the last page of the message */
} neighbour_t;

static void *count_up(void *context)
{
    neighbour_t *neighbour = context;

    while (!atomic_load(&neighbour->stop)) {
        /* Ordinary ones: each is lost if its page is exchanged for a copy that was made before. */
        ++*(volatile uint64_t *)neighbour->before;
        ++*(volatile uint64_t *)neighbour->after;
        atomic_fetch_add(&neighbour->rounds, 1);
    }
    return NULL;
}

static void a_thread_that_counts_in_an_edge_page_loses_nothing(void **state)
{
    stage_t *stage = stage_open();
    neighbour_t neighbour = {.before = (uint64_t *)(void *)(stage->buffer + PAGE),
                             .after = (uint64_t *)(void *)(stage->buffer + 6 * PAGE - 8)};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, count_up, &neighbour), 0);
    for (unsigned i = 0; i < 100 || atomic_load(&neighbour.rounds) < 300; i++) {
        regx_landing_t *landing = land(stage, stage->buffer + PAGE + 64, 5 * PAGE - 128);

        assert_null(regx_landing_deliver(&stage->landings, landing, stage->to, stage->length));
        assert_true(unit_is_filled((const uint8_t *)stage->to, stage->length, stage->stream));
        regx_landing_put(&stage->landings, landing);
    }
    atomic_store(&neighbour.stop, true);
    pthread_join(thread, NULL);
    assert_true(stage->counters.remap_pages >= 100 * 3);
    assert_int_equal(*neighbour.before, neighbour.rounds);
    assert_int_equal(*neighbour.after, neighbour.rounds);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_and_length_arrives),
        cmocka_unit_test(the_users_old_pages_are_written_next),
        cmocka_unit_test(the_number_of_mappings_stays),
        cmocka_unit_test(caches_are_told_before_and_after),
        cmocka_unit_test(there_are_so_many_landings_and_no_more),
        cmocka_unit_test(a_thread_that_counts_in_an_edge_page_loses_nothing),
    };

    if (!pages_can_be_moved()) {
        printf("1..0 # SKIP UFFDIO_MOVE\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
