/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The notifier where userfaultfd or a feature of it is refused: by name and reason. Refusals are
 * made by the older kernel, and by a seccomp filter in a child.
 */
#include "../process.h"
#include "old_kernel.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registration/monitor/uffd.h"

static void each_refusal_has_its_reason(void **state)
{
    static const struct {
        int refusal;
        const char *line;
    } cases[] = {
        {EPERM, "userfaultfd: Operation not permitted: refused by a seccomp filter or security "
                "module (as it takes no privilege, vm.unprivileged_userfaultfd does not matter)"},
        {EACCES, "userfaultfd: Permission denied: refused by a seccomp filter or security module"},
        {ENOSYS, "userfaultfd: not in this kernel, or hidden by a seccomp filter"},
        {EINVAL, "userfaultfd: this kernel knows none without privilege (Linux 5.11)"},
        {EMFILE, "userfaultfd: Too many open files"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        old.refusal = cases[i].refusal;
        must_refuse(cases[i].line);
    }
}

static void without_any_needed_feature_it_is_refused(void **state)
{
    static const struct {
        uint64_t feature;
        const char *name;
    } cases[] = {{UFFD_FEATURE_EVENT_UNMAP, "lacks EVENT_UNMAP"},
                 {UFFD_FEATURE_EVENT_REMAP, "lacks EVENT_REMAP"},
                 {UFFD_FEATURE_EVENT_REMOVE, "lacks EVENT_REMOVE"},
                 {UFFD_FEATURE_PAGEFAULT_FLAG_WP, "lacks PAGEFAULT_FLAG_WP"},
                 {1 << 11, "lacks EXACT_ADDRESS (Linux 5.18)"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        old.lacking = cases[i].feature;
        must_refuse(cases[i].name);
    }
    old.lacking = 0;
    old.answers = 1;
    must_refuse("does not answer");
    old.answers = 2;
    must_refuse("its features are refused: Invalid argument");
}

/* ---- in a child ---- */

/* Runs it there; what it answers, "" for NULL. */
static void in_a_child(void (*prepare)(int), int with, char answer[256])
{
    int ends[2];
    int status = -1;
    ssize_t got;

    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(UNIT_PATIENCE);
        prepare(with);
        const char *found = fault();
        const size_t length = found == NULL ? 0 : strlen(found);
        _exit(write(ends[1], found, length) == (ssize_t)length ? 0 : 1);
    }
    close(ends[1]);
    size_t have = 0;
    while ((got = read(ends[0], answer + have, 255 - have)) > 0) {
        have += (size_t)got;
    }
    answer[have] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void filter(int answer)
{
    if (!process_deny(SYS_userfaultfd, answer)) {
        _exit(7);
    }
}

static void a_seccomp_filters_refusal_is_told(void **state)
{
    char answer[256];

    (void)state;
    in_a_child(filter, EPERM, answer);
    assert_non_null(strstr(answer, "userfaultfd: Operation not permitted: refused by a seccomp"));
    in_a_child(filter, ENOSYS, answer);
    assert_non_null(strstr(answer, "userfaultfd: not in this kernel, or hidden by a seccomp"));
}

static void become(int user)
{
    if (setgroups(0, NULL) != 0 || setgid((gid_t)user) != 0 || setuid((uid_t)user) != 0) {
        _exit(7);
    }
}

static void it_works_as_an_ordinary_user(void **state)
{
    FILE *file = fopen("/proc/sys/vm/unprivileged_userfaultfd", "r");
    char answer[256];
    int allowed = 1;

    (void)state;
    if (file == NULL || fscanf(file, "%d", &allowed) != 1 || allowed != 0) {
        print_message("not tried: vm.unprivileged_userfaultfd is not 0\n");
        skip();
    }
    fclose(file);
    if (getuid() != 0) {
        must_work(); /* we are one */
        return;
    }
    in_a_child(become, 65534, answer);
    assert_string_equal(answer, "");
}

int main(void)
{
#define OLD(test) cmocka_unit_test_setup(test, setup)
    const struct CMUnitTest tests[] = {
        OLD(each_refusal_has_its_reason),
        OLD(without_any_needed_feature_it_is_refused),
        OLD(a_seccomp_filters_refusal_is_told),
        OLD(it_works_as_an_ordinary_user),
    };

    return refused() ? 0 : cmocka_run_group_tests(tests, NULL, NULL);
}
