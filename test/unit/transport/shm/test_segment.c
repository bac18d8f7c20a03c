/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: what a neighbour says of one, which need not be true, and what is there.
 */
#include "../../unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"
#include "transport/shm/mapped.h"
#include "transport/shm/segment.h"
#include "transport/uct/log.h"

enum { PAGES = 16 };

typedef struct stage {
    regx_segment_domain_t domain;
    regx_segment_t segment;
    regx_segment_name_t name;
    size_t page, length;
} stage_t;

static const char *const domains[] = {"posix", "sysv"};

static void open_stage(stage_t *stage, const char *domain)
{
    const regx_transport_config_t config = {.tls = domain};

    regx_uct_log_to_stderr();
    stage->page = regx_page_size();
    stage->length = PAGES * stage->page;
    assert_int_equal(
        regx_segment_domain_open(&stage->domain, &config, stage->length, &stage->segment), REGX_OK);
    assert_int_equal(regx_segment_pack(&stage->domain, &stage->segment, &stage->name), REGX_OK);
    assert_true(stage->name.length >= stage->length);
}

static void close_stage(stage_t *stage)
{
    regx_segment_free(&stage->segment);
    regx_segment_domain_close(&stage->domain);
}

static void refused(const regx_segment_name_t *name)
{
    regx_mapping_t mapping;

    assert_int_equal(regx_segment_map(name, &mapping), REGX_INVALID);
}

/* As a neighbour would. */
static void what_was_packed_is_mapped(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        regx_mapping_t mapping;
        stage_t stage;

        open_stage(&stage, domains[i]);
        unit_fill((uint8_t *)regx_segment_base(&stage.segment), stage.length, 1, 0);
        assert_int_equal(regx_segment_map(&stage.name, &mapping), REGX_OK);
        assert_ptr_not_equal(mapping.base, regx_segment_base(&stage.segment));
        assert_int_equal(mapping.length, stage.name.length);
        assert_true(unit_is_filled((const uint8_t *)mapping.base, stage.length, 1));
        mapping.base[stage.length - 1] ^= 1;
        assert_false(unit_is_filled((uint8_t *)regx_segment_base(&stage.segment), stage.length, 1));
        regx_segment_unmap(&mapping);
        close_stage(&stage);
    }
}

/* Another segment that is mapped as a whole is not refused: the neighbour could name that one. */
static void a_wrong_base_is_refused(void **state)
{
    static _Alignas(65536) char own[4 << 20]; /* private: nobody else's */

    (void)state;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        regx_mapping_t mapping;
        stage_t stage;

        open_stage(&stage, domains[i]);
        const regx_segment_name_t right = stage.name;
        const uint64_t wrong[] = {
            right.base + stage.page,   right.base - stage.page,       right.base + 1, 0, UINT64_MAX,
            UINT64_MAX - right.length, right.base ^ UINT64_C(1) << 63};

        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            stage.name.base = wrong[k];
            refused(&stage.name);
        }
        /* What of this process's own is there if the neighbour guesses where it maps. */
        assert_int_equal(regx_segment_map(&right, &mapping), REGX_OK);
        stage.name.base = right.base + (uint64_t)(own - mapping.base);
        regx_segment_unmap(&mapping);
        refused(&stage.name);
        close_stage(&stage);
    }
}

/* One that begins at the last page of all and ends, beyond zero, in this process's own memory. */
static void a_range_that_wraps_is_refused(void **state)
{
    static char own[1];
    stage_t stage;
    regx_mapping_t mapping;

    (void)state;
    open_stage(&stage, "posix");
    assert_int_equal(regx_segment_map(&stage.name, &mapping), REGX_OK);
    assert_true(regx_mapped_shared(mapping.base, stage.name.length));
    const uintptr_t last = UINTPTR_MAX - stage.page + 1;
    assert_false(regx_mapped_shared((void *)last, (uintptr_t)own + 1 - last));
    regx_segment_unmap(&mapping);
    close_stage(&stage);
}

static void a_wrong_length_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        stage_t stage;

        open_stage(&stage, domains[i]);
        const regx_segment_name_t right = stage.name;
        const uint64_t wrong[] = {0,
                                  right.length + 1,
                                  right.length + stage.page,
                                  right.length + (1u << 20),
                                  UINT64_C(1) << 40,
                                  UINT64_MAX - right.base,
                                  UINT64_MAX - 4095,
                                  UINT64_MAX};

        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            stage.name.length = wrong[k];
            refused(&stage.name);
        }
        close_stage(&stage);
    }
}

/* Less than there is: it uses no more. */
static void a_part_of_it_is_mapped(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
        regx_mapping_t mapping;
        stage_t stage;

        open_stage(&stage, domains[i]);
        stage.name.length -= stage.page;
        assert_int_equal(regx_segment_map(&stage.name, &mapping), REGX_OK);
        assert_int_equal(mapping.length, stage.name.length);
        regx_segment_unmap(&mapping);
        close_stage(&stage);
    }
}

/* The descriptor of the segment's file, which UCX keeps open, or -1. */
static int find_file(size_t length)
{
    for (int file = 3; file < 1024; file++) {
        char path[64], target[256];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
        const ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            if (strstr(target, "/dev/shm/") != NULL && lseek(file, 0, SEEK_END) == (off_t)length) {
                return file;
            }
        }
    }
    return -1;
}

/* Whoever touched it would be ended by SIGBUS. */
static void a_file_that_is_shorter_is_refused(void **state)
{
    char byte;
    const struct iovec here = {&byte, 1};
    stage_t stage;

    (void)state;
    if (process_vm_readv(getpid(), &here, 1, &here, 1, 0) != 1) {
        print_message("not tried: process_vm is refused\n");
        skip();
    }
    open_stage(&stage, "posix");
    const int file = find_file(stage.name.length);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, (off_t)(stage.name.length - stage.page)), 0);
    refused(&stage.name);
    close_stage(&stage);
}

static void a_malformed_name_is_refused(void **state)
{
    stage_t stage;

    (void)state;
    open_stage(&stage, "posix");
    const regx_segment_name_t right = stage.name;
    stage.name.size = sizeof(stage.name.key);
    refused(&stage.name);
    stage.name = right;
    stage.name.key[sizeof(stage.name.key) - 1] = 1;
    refused(&stage.name);
    stage.name = right;
    memset(stage.name.domain, 'x', sizeof(stage.name.domain));
    refused(&stage.name);
    close_stage(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_packed_is_mapped),
        cmocka_unit_test(a_wrong_base_is_refused),
        cmocka_unit_test(a_wrong_length_is_refused),
        cmocka_unit_test(a_range_that_wraps_is_refused),
        cmocka_unit_test(a_part_of_it_is_mapped),
        cmocka_unit_test(a_file_that_is_shorter_is_refused),
        cmocka_unit_test(a_malformed_name_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
