/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Landing pages: memory whose pages cannot be moved is refused before, or its bytes are copied;
 * they are right in any case.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "landing_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_refused(stage_t *stage, char *memory, size_t bytes, const char *reason)
{
    assert_non_null(memory);
    assert_string_equal(regx_landings_refusal(&stage->landings, memory, bytes), reason);
    munmap(memory, bytes);
}

static void other_memory_than_private_anonymous_is_refused(void **state)
{
    stage_t *stage = stage_open();
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_true(file >= 0);
    assert_string_equal(regx_landings_refusal(&stage->landings, stage->buffer + 1, 2 * PAGE - 2),
                        "remap: no whole page in it");
    assert_int_equal(stage->landings.state, REGX_LANDINGS_CLOSED);
    assert_refused(stage, map(SIZE, MAP_SHARED | MAP_ANONYMOUS, -1), SIZE, "remap: shared memory");
    assert_refused(stage, map(SIZE, MAP_PRIVATE, file), SIZE, "remap: a mapping of a file");
    char *memory = map(SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    assert_int_equal(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
    assert_refused(stage, memory, SIZE, "remap: more than one mapping");
    assert_string_equal(regx_landings_refusal(&stage->landings, memory, SIZE), "remap: not mapped");
    close(file);
    stage_close(stage);
}

static void huge_pages_are_refused(void **state)
{
    stage_t *stage = stage_open();
    char *memory = map(2u << 20, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);

    if (memory == NULL) {
        stage_close(stage);
        print_message("not tried: no huge pages are set aside\n");
        skip();
    }
    assert_refused(stage, memory, 2u << 20, "remap: memory of huge pages (hugetlb)");
    stage_close(stage);
}

/* It goes well before, is copied while that is so, and goes well after. */
static void assert_copied(stage_t *stage, const char *reason)
{
    const uint64_t pages = stage->counters.remap_pages;
    const char *given = go(stage, stage->buffer + PAGE + 9, 7 * PAGE);

    assert_non_null(given);
    assert_string_equal(given, reason);
    assert_int_equal(stage->counters.remap_pages, pages);
}

static void assert_moved(stage_t *stage)
{
    const uint64_t pages = stage->counters.remap_pages;

    assert_null(go(stage, stage->buffer + PAGE + 9, 7 * PAGE));
    assert_int_equal(stage->counters.remap_pages - pages, 6);
}

static void locked_memory_is_copied(void **state)
{
    stage_t *stage = stage_open();

    assert_moved(stage);
    /* Not by libc, which the sanitizers make do nothing. */
    assert_int_equal(syscall(SYS_mlock, stage->buffer + PAGE, 8 * PAGE), 0);
    assert_copied(stage, "remap: memory that is locked or protected otherwise");
    assert_int_equal(syscall(SYS_munlock, stage->buffer + PAGE, 8 * PAGE), 0);
    assert_moved(stage);
    stage_close(stage);
}

static void memory_of_another_userfaultfd_is_copied(void **state)
{
    stage_t *stage = stage_open();
    regx_uffd_t other;
    char error[256];

    assert_moved(stage);
    assert_int_equal(regx_uffd_open(&other, error, sizeof(error)), REGX_OK);
    assert_int_equal(regx_uffd_register(other.file.fd, (uintptr_t)stage->buffer,
                                        (uintptr_t)stage->buffer + ROOM),
                     0);
    assert_copied(stage, "remap: pages pinned, shared with a child, or watched");
    assert_int_equal(regx_uffd_unregister(other.file.fd, (uintptr_t)stage->buffer,
                                          (uintptr_t)stage->buffer + ROOM),
                     0);
    regx_uffd_close(&other);
    assert_moved(stage);
    stage_close(stage);
}

/* A child that lives until that pipe is closed; then it says whether its memory is as it was. */
static pid_t open_child(stage_t *stage, int go_on[2])
{
    char byte = 0;

    assert_moved(stage);
    memset(stage->buffer, 0x5c, ROOM);
    assert_int_equal(pipe(go_on), 0);
    const pid_t child = fork();
    if (child == 0) {
        bool same = true;

        close(go_on[1]);
        same &= read(go_on[0], &byte, 1) == 0; /* until the parent has closed it */
        for (size_t i = 0; i < ROOM; i++) {
            same &= stage->buffer[i] == 0x5c;
        }
        _exit(same ? 0 : 1);
    }
    assert_true(child > 0);
    close(go_on[0]);
    return child;
}

static void close_child(stage_t *stage, pid_t child, int go_on)
{
    int status;

    close(go_on);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_moved(stage); /* they were copied by the write, and are this process's own again */
}

static void memory_shared_with_a_child_is_copied(void **state)
{
    stage_t *stage = stage_open();
    int go_on[2];
    const pid_t child = open_child(stage, go_on);

    assert_copied(stage, "remap: pages pinned, shared with a child, or watched");
    close_child(stage, child, go_on[1]);
    stage_close(stage);
}

static void part_of_it_may_be_shared_with_a_child(void **state)
{
    stage_t *stage = stage_open();
    int go_on[2];
    const pid_t child = open_child(stage, go_on);

    memset(stage->buffer, 1, 4 * PAGE); /* these are its own again: two whole ones of the message */
    const uint64_t pages = stage->counters.remap_pages;
    assert_string_equal(go(stage, stage->buffer + PAGE + 9, 7 * PAGE),
                        "remap: pages pinned, shared with a child, or watched");
    assert_int_equal(stage->counters.remap_pages - pages, 2);
    close_child(stage, child, go_on[1]);
    stage_close(stage);
}

static void without_its_descriptor_all_is_copied(void **state)
{
    stage_t *stage = stage_open();

    assert_moved(stage);
    close(stage->landings.uffd.fd);
    const int other = open("/dev/null", O_RDWR | O_CLOEXEC); /* the same number */
    assert_int_equal(other, stage->landings.uffd.fd);
    assert_copied(stage, "remap: its userfaultfd was closed by the program");
    stage_close(stage);
    assert_int_equal(fcntl(other, F_GETFD), FD_CLOEXEC); /* not ours to close */
    close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_memory_than_private_anonymous_is_refused),
        cmocka_unit_test(huge_pages_are_refused),
        cmocka_unit_test(locked_memory_is_copied),
        cmocka_unit_test(memory_of_another_userfaultfd_is_copied),
        cmocka_unit_test(memory_shared_with_a_child_is_copied),
        cmocka_unit_test(part_of_it_may_be_shared_with_a_child),
        cmocka_unit_test(without_its_descriptor_all_is_copied),
    };

    if (!pages_can_be_moved()) {
        printf("1..0 # SKIP UFFDIO_MOVE\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
