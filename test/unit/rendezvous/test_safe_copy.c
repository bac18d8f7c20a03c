/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Careful copies: right where there is memory, and no crash where there is none.
 */
#include "../unit.h"

#include <stdbool.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "rendezvous/safe_copy.h"

enum { PAGE = 4096, PAGES = 9, LENGTH = PAGES * PAGE };

static uint8_t *map(void)
{
    uint8_t *memory =
        mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    for (size_t i = 0; i < LENGTH; i++) {
        memory[i] = unit_stamp(1, i);
    }
    return memory;
}

/* Each page is there or not as a bit of `holes` says. */
static void unmap(uint8_t *memory, unsigned holes)
{
    for (unsigned page = 0; page < PAGES; page++) {
        if (holes >> page & 1) {
            assert_int_equal(munmap(memory + page * PAGE, PAGE), 0);
        }
    }
}

static bool is_hole(unsigned holes, size_t at)
{
    return holes >> at / PAGE & 1;
}

static bool any_hole(unsigned holes, size_t from, size_t length)
{
    for (size_t at = from; at < from + length; at++) {
        if (is_hole(holes, at)) {
            return true;
        }
    }
    return false;
}

static void every_pattern_of_holes_is_skipped(void **state)
{
    static const size_t ends[][2] = {{0, LENGTH}, {1, LENGTH - 1}, {PAGE - 1, LENGTH - PAGE + 1}};

    (void)state;
    for (unsigned holes = 0; holes < 1u << PAGES; holes += holes < 40 ? 1 : 13) {
        for (size_t e = 0; e < 3; e++) {
            static uint8_t other[LENGTH];
            const size_t from = ends[e][0], length = ends[e][1] - from;
            uint8_t *memory = map();

            unmap(memory, holes);
            memset(other, 0x77, LENGTH);
            assert_int_equal(regx_safe_read(other, memory + from, length),
                             !any_hole(holes, from, length));
            for (size_t i = 0; i < length; i++) {
                assert_int_equal(other[i], is_hole(holes, from + i) ? 0 : unit_stamp(1, from + i));
                other[i] = unit_stamp(2, i);
            }
            assert_int_equal(regx_safe_write(memory + from, other, length),
                             !any_hole(holes, from, length));
            for (size_t i = 0; i < LENGTH; i++) {
                const bool written = i >= from && i < from + length;

                if (!is_hole(holes, i)) {
                    assert_int_equal(memory[i],
                                     written ? unit_stamp(2, i - from) : unit_stamp(1, i));
                }
            }
            munmap(memory, LENGTH);
        }
    }
}

/* What cannot be written is left out like what is not there. */
static void read_only_pages_are_read_and_not_written(void **state)
{
    uint8_t *memory = map();
    uint8_t other[LENGTH];

    (void)state;
    memset(other, 0x55, LENGTH);
    assert_int_equal(mprotect(memory + 2 * PAGE, PAGE, PROT_READ), 0);
    assert_false(regx_safe_write(memory, other, LENGTH));
    for (size_t i = 0; i < LENGTH; i++) {
        assert_int_equal(memory[i], i / PAGE == 2 ? unit_stamp(1, i) : 0x55);
    }
    munmap(memory, LENGTH);
}

/* What the processor reaches is copied, whatever it is: here pages that are the kernel's. */
static void any_memory_is_copied(void **state)
{
    const uint8_t *vdso = (const uint8_t *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
    uint8_t copy[PAGE];

    (void)state;
    if (vdso == NULL) {
        print_message("not tried: the kernel gives no vDSO\n");
        skip();
    }
    assert_true(regx_safe_read(copy, vdso, PAGE));
    assert_memory_equal(copy, vdso, PAGE);
}

/* Then it is an ordinary copy, which is better than none. */
static void copies_work_without_descriptors(void **state)
{
    struct rlimit limit, none;
    uint8_t *memory = map();
    uint8_t other[LENGTH];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool read = regx_safe_read(other, memory, LENGTH);
    memset(memory, 0, LENGTH);
    const bool written = regx_safe_write(memory, other, LENGTH);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(read && written);
    for (size_t i = 0; i < LENGTH; i++) {
        assert_int_equal(memory[i], unit_stamp(1, i));
    }
    munmap(memory, LENGTH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_of_holes_is_skipped),
        cmocka_unit_test(read_only_pages_are_read_and_not_written),
        cmocka_unit_test(any_memory_is_copied),
        cmocka_unit_test(copies_work_without_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
