/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Fragments: where their memory begins and ends.
 */
#include "../unit.h"

#include "base/copy.h"
#include "btl/module.h"

enum { SLOT = 65536, SLOTS = 4, FRAME = 32848, SMALL = 512 };

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

static regx_module_t module;
static regx_endpoint_t endpoint;

static int open_module(void **state)
{
    memset(&module, 0, sizeof(module));
    module.transport = &transport;
    regx_lock_init(&module.lock, false);
    return regx_pool_init(&module.pool, memory, sizeof(memory), SLOT, false, &counters) != REGX_OK;
}

static int close_module(void **state)
{
    assert_int_equal(regx_pool_unused(&module.pool), SLOTS);
    regx_fragments_free(&module);
    regx_pool_fini(&module.pool);
    regx_lock_fini(&module.lock);
    return 0;
}

/* Takes one, uses all of its memory (under a sanitizer none of another's) and gives it back.
 * Returns the length of its segment. */
static size_t use(size_t size, size_t skew, bool in_slot)
{
    regx_fragment_t *fragment = regx_fragment_take(&module, &endpoint, size, skew);

    assert_non_null(fragment);
    char *const begin = fragment->segment.seg_addr.pval;
    const size_t length = fragment->segment.seg_len;
    assert_int_equal(fragment->slot != REGX_SLOT_NONE, in_slot);
    if (in_slot) {
        const char *slot = regx_pool_slot(&module.pool, fragment->slot);
        const bool fits = size + skew <= SLOT;

        assert_ptr_equal(begin, slot + (fits ? skew : 0));
        assert_true(begin + length <= slot + SLOT);
    } else {
        assert_int_equal((uintptr_t)begin % REGX_COPY_LINE, skew);
    }
    memset(begin, 0x5a, length);
    regx_fragment_return(&module, fragment);
    return length;
}

#define TEST(name) UNIT_TEST_BETWEEN(name, open_module, close_module)

TEST(data_begin_where_they_are_asked_to)
{
    for (size_t skew = 0; skew < REGX_COPY_LINE; skew++) {
        assert_int_equal(use(1, skew, false), 1);
        assert_int_equal(use(SMALL, skew, false), SMALL);
        assert_int_equal(use(SMALL + 1, skew, false), SMALL + 1);
        assert_int_equal(use(2048, skew, false), 2048);
        assert_int_equal(use(2049, skew, true), 2049);
        assert_int_equal(use(SLOT - 1, skew, true), SLOT - 1);
        assert_int_equal(use(SLOT, skew, true), SLOT);
    }
}

TEST(without_a_slot_it_is_as_long_as_a_frame)
{
    const uint32_t taken[] = {regx_pool_get(&module.pool), regx_pool_get(&module.pool)};

    for (size_t skew = 0; skew < REGX_COPY_LINE; skew++) {
        assert_int_equal(use(FRAME - 1, skew, false), FRAME - 1);
        assert_int_equal(use(FRAME, skew, false), FRAME);
        assert_int_equal(use(FRAME + 1, skew, false), FRAME);
    }
    regx_pool_put(&module.pool, taken[1]);
    regx_pool_put(&module.pool, taken[0]);
}
