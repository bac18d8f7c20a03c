/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: what a neighbour says of one, which need not be true, and what is there. And whose memory
 * it is that the kernel copies.
 */
#define _GNU_SOURCE
#include "../../process.h"
#include "../pair.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "transport/shm/segment.h"

enum { PAGES = 16 };

typedef struct stage {
    regx_segment_kind_t kind;
    regx_segment_t segment;
    size_t page, length;
} stage_t;

static const regx_segment_kind_t kinds[] = {REGX_SEGMENT_POSIX, REGX_SEGMENT_SYSV};

static void open_stage(stage_t *stage, regx_segment_kind_t kind)
{
    stage->kind = kind;
    stage->page = regx_page_size();
    stage->length = PAGES * stage->page;
    assert_int_equal(regx_segment_alloc(stage->kind, stage->length, &stage->segment), REGX_OK);
    assert_int_equal(stage->segment.name.length, stage->length);
}

static void close_stage(stage_t *stage)
{
    regx_segment_free(&stage->segment);
}

static void refused(const regx_segment_name_t *name, regx_status_t expected)
{
    regx_shm_mapping_t mapping;

    assert_int_equal(regx_segment_map(name, &mapping), expected);
}

/* Its memory is there before it is touched, or the process that touched it last would be ended by
 * SIGBUS. */
static void all_of_a_file_is_set_aside(void **state)
{
    struct stat status;
    stage_t stage;

    open_stage(&stage, REGX_SEGMENT_POSIX);
    assert_int_equal(fstat(stage.segment.name.file.descriptor, &status), 0);
    assert_int_equal(status.st_size, stage.length);
    assert_int_equal(status.st_blocks * 512, stage.length);
    assert_int_equal(status.st_nlink, 0); /* nor has it a name that could be left behind */
    close_stage(&stage);
}

static void a_wrong_length_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        stage_t stage;

        open_stage(&stage, kinds[i]);
        regx_segment_name_t name = stage.segment.name;
        const uint64_t wrong[] = {0,
                                  stage.length + 1,
                                  stage.length + stage.page,
                                  stage.length + (1u << 20),
                                  UINT64_C(1) << 40,
                                  (uint64_t)PTRDIFF_MAX + 1,
                                  UINT64_MAX - 4095,
                                  UINT64_MAX};

        for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
            name.length = wrong[k];
            refused(&name, REGX_INVALID);
        }
        close_stage(&stage);
    }
}

/* A process that touched it would be ended by SIGBUS. */
static void a_file_that_is_shorter_is_refused(void **state)
{
    stage_t stage;

    open_stage(&stage, REGX_SEGMENT_POSIX);
    assert_int_equal(
        ftruncate(stage.segment.name.file.descriptor, (off_t)(stage.length - stage.page)), 0);
    refused(&stage.segment.name, REGX_INVALID);
    close_stage(&stage);
}

static void a_malformed_name_is_refused(void **state)
{
    stage_t stage;

    open_stage(&stage, REGX_SEGMENT_POSIX);
    const regx_segment_name_t right = stage.segment.name;
    regx_segment_name_t name = right;
    name.kind = 0;
    refused(&name, REGX_INVALID);
    name.kind = REGX_SEGMENT_SYSV + 1;
    refused(&name, REGX_INVALID);
    name = right;
    name.pid = 0;
    refused(&name, REGX_INVALID);
    name = right;
    name.file.descriptor = -1;
    refused(&name, REGX_INVALID);
    name = right;
    name.id = -1;
    refused(&name, REGX_INVALID);
    close_stage(&stage);
}

/* What it names is no file that could be mapped: a pipe, a device. */
static void what_is_no_file_is_refused(void **state)
{
    const int null = open("/dev/null", O_RDWR);
    int ends[2];
    stage_t stage;

    open_stage(&stage, REGX_SEGMENT_POSIX);
    regx_segment_name_t name = stage.segment.name;
    assert_int_equal(pipe(ends), 0);
    assert_true(regx_shm_file_name(ends[0], &name.file));
    refused(&name, REGX_INVALID);
    assert_true(null >= 0 && regx_shm_file_name(null, &name.file));
    refused(&name, REGX_INVALID);
    close(null);
    close(ends[0]);
    close(ends[1]);
    close_stage(&stage);
}

/* As where the program has closed a descriptor that it did not know, and the next file got its
 * number: here another segment, so that nothing but the file itself tells. */
static void another_file_of_that_number_is_refused(void **state)
{
    regx_segment_t another;
    stage_t stage;

    open_stage(&stage, REGX_SEGMENT_POSIX);
    const int descriptor = stage.segment.name.file.descriptor;
    assert_int_equal(regx_segment_alloc(stage.kind, stage.length, &another), REGX_OK);
    assert_int_equal(dup2(another.name.file.descriptor, descriptor), descriptor);
    refused(&stage.segment.name, REGX_DENIED);
    close_stage(&stage);
    assert_int_not_equal(fcntl(descriptor, F_GETFD), -1); /* nor is that one closed */
    close(descriptor);
    regx_segment_free(&another);
}

/* A process into which others may not look has no file that they could open. */
static void one_that_is_not_dumpable_takes_no_file(void **state)
{
    regx_counters_t counters = {0};
    const regx_transport_config_t config = {.counters = &counters};
    regx_segment_t segment, another;
    stage_t stage;

    open_stage(&stage, REGX_SEGMENT_POSIX);
    assert_int_equal(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), 0);
    const regx_status_t opened = regx_segment_open(&config, 1u << 16, &segment);
    const regx_status_t later = regx_segment_alloc(stage.kind, stage.length, &another);
    assert_int_equal(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), 0);
    assert_int_equal(opened, REGX_OK);
    assert_int_equal(segment.name.kind, REGX_SEGMENT_SYSV);
    assert_string_equal(counters.fallbacks[0].reason, "posix: this process is not dumpable");
    assert_int_equal(later, REGX_DENIED); /* also if it was before */
    regx_segment_free(&segment);
    close_stage(&stage);
}

static void what_is_gone_cannot_be_mapped(void **state)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        stage_t stage;

        open_stage(&stage, kinds[i]);
        const regx_segment_name_t name = stage.segment.name;
        close_stage(&stage);
        refused(&name, REGX_UNREACHABLE);
    }
}

/* More than the process may write to a file: System V is asked, and no signal ends the process. */
static void the_limit_of_a_files_size_is_heeded(void **state)
{
    regx_counters_t counters = {0};
    const regx_transport_config_t config = {.counters = &counters};
    struct rlimit before;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    regx_segment_t segment;
    const regx_status_t status = regx_segment_open(&config, 1u << 20, &segment);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, REGX_OK);
    assert_int_equal(segment.name.kind, REGX_SEGMENT_SYSV);
    assert_non_null(strstr(counters.fallbacks[0].reason, "posix: no shared memory"));
    regx_segment_free(&segment);
}

static unsigned interruptions; /* to come */

int __real_fallocate(int file, int mode, off_t offset, off_t length);
int __wrap_fallocate(int file, int mode, off_t offset, off_t length);
int __wrap_fallocate(int file, int mode, off_t offset, off_t length)
{
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return __real_fallocate(file, mode, offset, length);
}

/* As up to Linux 6.1 the signals of a profiler do. */
static void a_signal_does_not_end_it(void **state)
{
    stage_t stage;

    interruptions = 5;
    open_stage(&stage, REGX_SEGMENT_POSIX);
    assert_int_equal(interruptions, 0);
    close_stage(&stage);
}

/* ---- the kernel's copies between two processes do not reach a third ---- */

enum { LENGTH = 100000 };

/* At the same addresses in both. */
static regx_vm_cookie_t cookie = {{0x1234, 0x5678}};
static uint8_t memory[LENGTH];

/* The child shows another cookie from the first meeting on, as a process would that got the number
 * of one that has ended. It ends well if nothing was written to it after that. */
static void be_another(int end)
{
    pair_meet(end);
    cookie.words[1]++;
    unit_fill(memory, LENGTH, 2, 0);
    pair_meet(end);
    pair_meet(end);
    REQUIRE(unit_is_filled(memory, LENGTH, 2));
}

static void copy(regx_vm_peer_t *peer, regx_copy_direction_t way, void *local,
                 regx_status_t expected)
{
    size_t copied;

    assert_int_equal(regx_vm_copy(peer, way, local, (uintptr_t)memory, LENGTH, &copied), expected);
    assert_int_equal(copied, expected == REGX_OK ? LENGTH : 0);
}

static void a_process_with_the_number_of_one_that_ended_is_not_written(void **state)
{
    static uint8_t local[LENGTH];
    char reason[80];
    int end;
    const pid_t child = pair_fork(&end);
    regx_vm_peer_t peer = {.pid = child, .cookie_address = (uintptr_t)&cookie, .cookie = cookie};

    if (in_child) {
        be_another(end);
        pair_join(child, end, false);
    }
    assert_int_equal(regx_vm_check(&peer, reason, sizeof(reason)), REGX_OK);
    copy(&peer, REGX_COPY_TO_PEER, local, REGX_OK);
    copy(&peer, REGX_COPY_FROM_PEER, local, REGX_OK);
    pair_meet(end);
    pair_meet(end);
    peer.looked -= REGX_VM_LOOK_NS; /* time goes by */
    copy(&peer, REGX_COPY_TO_PEER, local, REGX_FAILED);
    copy(&peer, REGX_COPY_FROM_PEER, local, REGX_FAILED);
    pair_meet(end);
    pair_join(child, end, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_a_file_is_set_aside),
        cmocka_unit_test(a_wrong_length_is_refused),
        cmocka_unit_test(a_file_that_is_shorter_is_refused),
        cmocka_unit_test(a_malformed_name_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(another_file_of_that_number_is_refused),
        cmocka_unit_test(one_that_is_not_dumpable_takes_no_file),
        cmocka_unit_test(what_is_gone_cannot_be_mapped),
        cmocka_unit_test(the_limit_of_a_files_size_is_heeded),
        cmocka_unit_test(a_signal_does_not_end_it),
        cmocka_unit_test(a_process_with_the_number_of_one_that_ended_is_not_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
