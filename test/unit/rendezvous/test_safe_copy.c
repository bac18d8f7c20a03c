/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Careful copies: right where there is memory, and no crash where there is none.
 */
#include "../unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "rendezvous/engine.h"

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

static void check_pattern_of_holes(unsigned holes, size_t from, size_t length)
{
    static uint8_t other[LENGTH];
    uint8_t *memory = map();

    unmap(memory, holes);
    memset(other, 0x77, LENGTH);
    assert_int_equal(regx_buffer_read(other, memory + from, length),
                     !any_hole(holes, from, length));
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(other[i], is_hole(holes, from + i) ? 0 : unit_stamp(1, from + i));
        other[i] = unit_stamp(2, i);
    }
    assert_int_equal(regx_buffer_write(memory + from, other, length),
                     !any_hole(holes, from, length));
    for (size_t i = 0; i < LENGTH; i++) {
        const bool written = i >= from && i < from + length;

        if (!is_hole(holes, i)) {
            assert_int_equal(memory[i], written ? unit_stamp(2, i - from) : unit_stamp(1, i));
        }
    }
    munmap(memory, LENGTH);
}

static void every_pattern_of_holes_is_skipped(void **state)
{
    for (unsigned holes = 0; holes < 1u << PAGES; holes += holes < 40 ? 1 : 13) {
        check_pattern_of_holes(holes, 0, LENGTH);
        check_pattern_of_holes(holes, 1, LENGTH - 2);
        check_pattern_of_holes(holes, PAGE - 1, LENGTH - 2 * PAGE + 2);
    }
}

/* What cannot be written is left out like what is not there. */
static void read_only_pages_are_read_and_not_written(void **state)
{
    uint8_t *memory = map();
    uint8_t other[LENGTH];

    memset(other, 0x55, LENGTH);
    assert_int_equal(mprotect(memory + 2 * PAGE, PAGE, PROT_READ), 0);
    assert_false(regx_buffer_write(memory, other, LENGTH));
    for (size_t i = 0; i < LENGTH; i++) {
        assert_int_equal(memory[i], i / PAGE == 2 ? unit_stamp(1, i) : 0x55);
    }
    munmap(memory, LENGTH);
}

/* Where the kernel's page is that the vDSO reads the time from: memory that no other system call
 * takes than those that copy as the processor does. */
static const void *find_kernels_page(void)
{
    static unsigned long found;
    char line[256];
    FILE *maps = found == 0 ? fopen("/proc/self/maps", "r") : NULL;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        if (strstr(line, "[vvar]") != NULL) {
            found = strtoul(line, NULL, 16);
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return (const void *)found;
}

/* What the processor reaches is copied, whatever it is. */
static void any_memory_is_copied(void **state)
{
    const void *page = find_kernels_page();
    uint8_t copy[PAGE];

    if (page == NULL) {
        print_message("not tried: the kernel gives no vDSO\n");
        skip();
    }
    assert_true(regx_buffer_read(copy, page, PAGE));
}

static void holes_are_skipped_without_descriptors(void **state)
{
    struct rlimit limit, none;

    (void)find_kernels_page();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    every_pattern_of_holes_is_skipped(state);
    any_memory_is_copied(state);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_of_holes_is_skipped),
        cmocka_unit_test(read_only_pages_are_read_and_not_written),
        cmocka_unit_test(any_memory_is_copied),
        cmocka_unit_test(holes_are_skipped_without_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
