/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The backends by name, and what is chosen where not all of them work. How each one does its work
 * is in its own test.
 */
#include "../process.h"
#include "hooked.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registration/registration.h"

static regx_counters_t counters;

static regx_transport_t transport;

static const regx_monitor_config_t config = {
    .hooks = &hooked_source, .transport = &transport, .counters = &counters};

static regx_backend_choice_t choice;
static char error[512];

static regx_status_t choose(const char *name, bool free_of_charge)
{
    memset(&choice, 0xee, sizeof(choice));
    error[0] = '\0';
    return regx_backend_choose(name, free_of_charge, &config, &choice, error, sizeof(error));
}

static void stop(void)
{
    if (choice.monitor != NULL) {
        choice.monitor->stop(choice.monitor);
    }
}

/* A backend that is named is started, also where registering costs nothing. */
static void what_is_asked_for_is_started(void **state)
{
    assert_int_equal(choose("hooks", true), REGX_OK);
    assert_string_equal(choice.backend->name, "hooks");
    assert_string_equal(choice.monitor->name, "hooks");
    assert_string_equal(choice.reason, "asked for");
    assert_int_equal(hooked.installed, 1);
    stop();
    assert_int_equal(hooked.removed, 1);
}

static void auto_is_the_notifier_or_none_with_the_reason(void **state)
{
    assert_int_equal(choose("auto", false), REGX_OK);
    if (choice.monitor != NULL) {
        assert_string_equal(choice.backend->name, "notifier");
        assert_string_equal(choice.monitor->name, "notifier");
        assert_string_equal(choice.reason, "passed its self-test");
    } else {
        assert_string_equal(choice.backend->name, "none");
        assert_memory_equal(choice.reason, "notifier: ", 10);
    }
    assert_int_equal(hooked.installed, 0); /* never hooks */
    stop();
}

static void what_does_not_work_is_told_with_what_does(void **state)
{
    hooked.refuse = true;
    assert_int_equal(choose("hooks", false), REGX_DENIED);
    assert_memory_equal(error, "cannot be used: the fake source refuses", 39);
    assert_string_equal(error + 39, "; usable here: none, auto");
    assert_int_equal(hooked.installed, hooked.removed);
}

/* Hazard 12: auto goes on without, and says why. (What a backend that is named says then is tested
 * with jobs.) */
static void a_refused_userfaultfd_is_no_end(void **state)
{
    const pid_t child = fork();
    int status;

    if (child == 0) {
        const bool fell_back = process_deny(SYS_userfaultfd, EPERM) &&
                               choose("auto", false) == REGX_OK && choice.monitor == NULL &&
                               strcmp(choice.backend->name, "none") == 0 &&
                               strncmp(choice.reason, "notifier: userfaultfd", 21) == 0;

        _exit(fell_back ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_asked_for_is_started, hooked_reset),
        cmocka_unit_test_setup(auto_is_the_notifier_or_none_with_the_reason, hooked_reset),
        cmocka_unit_test_setup(what_does_not_work_is_told_with_what_does, hooked_reset),
        cmocka_unit_test_setup(a_refused_userfaultfd_is_no_end, hooked_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
