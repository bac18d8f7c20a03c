/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Fragments: where their memory begins and ends.
 */
#include "../unit.h"

#include <stdlib.h>

#include "base/copy.h"
#include "btl/module.h"

enum { SLOT = 65536, SLOTS = 4, FRAME = 16448, SMALL = 512 };

/* ---- what fragment.c uses of Open MPI ---- */

opal_class_t mca_btl_base_descriptor_t_class;
int opal_class_init_epoch = 1;

void opal_class_initialize(opal_class_t *class)
{
    static opal_construct_t none;

    class->cls_construct_array = &none;
    class->cls_destruct_array = &none;
    class->cls_initialized = opal_class_init_epoch;
}

/* ---- a module ---- */

static regx_counters_t counters;
static regx_transport_t transport = {.max_frame = FRAME};
static _Alignas(4096) char memory[SLOTS * SLOT];

typedef struct side {
    regx_module_t module;
    regx_endpoint_t endpoint;
} side_t;

static side_t *side_open(void)
{
    side_t *side = calloc(1, sizeof(*side));

    assert_non_null(side);
    side->module.transport = &transport;
    regx_lock_init(&side->module.lock, false);
    assert_int_equal(
        regx_pool_init(&side->module.pool, memory, sizeof(memory), SLOT, false, &counters),
        REGX_OK);
    return side;
}

static void side_close(side_t *side)
{
    assert_int_equal(regx_pool_unused(&side->module.pool), SLOTS);
    regx_fragments_free(&side->module);
    regx_pool_fini(&side->module.pool);
    regx_lock_fini(&side->module.lock);
    free(side);
}

/* Takes one, uses all of its memory (under a sanitizer none of another's) and gives it back.
 * Returns the length of its segment. */
static size_t use(side_t *side, size_t size, size_t skew, bool in_slot)
{
    regx_fragment_t *fragment = regx_fragment_take(&side->module, &side->endpoint, size, skew);

    assert_non_null(fragment);
    char *const begin = fragment->segment.seg_addr.pval;
    const size_t length = fragment->segment.seg_len;
    assert_int_equal(fragment->slot != REGX_SLOT_NONE, in_slot);
    if (in_slot) {
        const char *slot = regx_pool_slot(&side->module.pool, fragment->slot);
        const bool fits = size + skew <= SLOT;

        assert_ptr_equal(begin, slot + (fits ? skew : 0));
        assert_true(begin + length <= slot + SLOT);
    } else {
        assert_int_equal((uintptr_t)begin % REGX_COPY_LINE, skew);
    }
    memset(begin, 0x5a, length);
    regx_fragment_return(&side->module, fragment);
    return length;
}

static void data_begin_where_they_are_asked_to(void **state)
{
    side_t *side = side_open();

    (void)state;
    for (size_t skew = 0; skew < REGX_COPY_LINE; skew++) {
        assert_int_equal(use(side, 1, skew, false), 1);
        assert_int_equal(use(side, SMALL, skew, false), SMALL);
        assert_int_equal(use(side, SMALL + 1, skew, false), SMALL + 1);
        assert_int_equal(use(side, 2048, skew, false), 2048);
        assert_int_equal(use(side, 2049, skew, true), 2049);
        assert_int_equal(use(side, SLOT - 64, skew, true), SLOT - 64);
        assert_int_equal(use(side, SLOT - 1, skew, true), SLOT - 1);
        assert_int_equal(use(side, SLOT, skew, true), SLOT);
    }
    side_close(side);
}

static void without_a_slot_it_is_as_long_as_a_frame(void **state)
{
    side_t *side = side_open();
    const uint32_t taken[] = {regx_pool_get(&side->module.pool), regx_pool_get(&side->module.pool)};

    (void)state;
    for (size_t skew = 0; skew < REGX_COPY_LINE; skew++) {
        assert_int_equal(use(side, FRAME - 1, skew, false), FRAME - 1);
        assert_int_equal(use(side, FRAME, skew, false), FRAME);
        assert_int_equal(use(side, FRAME + 1, skew, false), FRAME);
    }
    regx_pool_put(&side->module.pool, taken[1]);
    regx_pool_put(&side->module.pool, taken[0]);
    side_close(side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_begin_where_they_are_asked_to),
        cmocka_unit_test(without_a_slot_it_is_as_long_as_a_frame),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
