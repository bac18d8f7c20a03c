/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Records that were returned: so many are kept, the newest is taken first, and no more than these
 * stay. What the records take from the heap, and give back, is counted.
 */
#include "../unit.h"

#include <stdlib.h>

#include "btl/module.h"
#include "btl/rdma_record.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { KEPT = 256, TAKEN = KEPT + 1 };

/* ---- the heap ---- */

static unsigned mallocs, frees; /* of a record's size; of records of the test */
static regx_rdma_record_t *records[TAKEN];

void *__real_malloc(size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void __wrap_free(void *memory);

void *__wrap_malloc(size_t size)
{
    mallocs += size == sizeof(regx_rdma_record_t);
    return __real_malloc(size);
}

void __wrap_free(void *memory)
{
    for (unsigned i = 0; i < TAKEN; i++) {
        frees += memory == records[i];
    }
    __real_free(memory);
}

/* ---- records ---- */

static regx_module_t module;

/* Takes one more than are kept, and returns all. */
static void take_and_return(void)
{
    module = (regx_module_t){.unused_records = NULL};
    mallocs = frees = 0;
    regx_lock_init(&module.lock, false);
    for (unsigned i = 0; i < TAKEN; i++) {
        records[i] = regx_rdma_record_take(&module);
        assert_non_null(records[i]);
        memset(records[i], 0xee, sizeof(*records[i]));
    }
    assert_int_equal(mallocs, TAKEN);
    for (unsigned i = 0; i < TAKEN; i++) {
        regx_rdma_record_return(&module, records[i]);
    }
}

static void free_all(void)
{
    regx_rdma_records_free(&module);
    regx_lock_fini(&module.lock);
    memset(records, 0, sizeof(records));
}

static void so_many_are_kept_and_none_stays(void **state)
{
    (void)state;
    take_and_return();
    assert_int_equal(frees, TAKEN - KEPT);
    free_all();
    assert_int_equal(frees, TAKEN);
    assert_null(module.unused_records);
    assert_int_equal(module.unused_record_count, 0);
}

static void the_newest_is_taken_first(void **state)
{
    (void)state;
    take_and_return();
    for (unsigned i = KEPT; i > 0; i--) {
        assert_ptr_equal(regx_rdma_record_take(&module), records[i - 1]);
        memset(records[i - 1], 0xee, sizeof(*records[i - 1]));
    }
    assert_int_equal(mallocs, TAKEN);
    regx_rdma_record_t *fresh = regx_rdma_record_take(&module);
    assert_int_equal(mallocs, TAKEN + 1);
    regx_rdma_record_return(&module, fresh);
    for (unsigned i = 0; i < KEPT; i++) { /* there is room for all but one again */
        regx_rdma_record_return(&module, records[i]);
    }
    assert_int_equal(module.unused_record_count, KEPT);
    free_all();
}

#ifdef __SANITIZE_ADDRESS__
/* Of any byte of a record that is kept. */
static void the_sanitizer_finds_a_late_use(void **state)
{
    (void)state;
    take_and_return();
    for (unsigned i = 0; i < KEPT; i++) {
        for (size_t at = 0; at < sizeof(*records[i]); at++) {
            assert_true(__asan_address_is_poisoned((const char *)records[i] + at));
        }
    }
    free_all();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_are_kept_and_none_stays),
        cmocka_unit_test(the_newest_is_taken_first),
#ifdef __SANITIZE_ADDRESS__
        cmocka_unit_test(the_sanitizer_finds_a_late_use),
#endif
    };

    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
