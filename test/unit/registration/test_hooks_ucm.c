/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Loading UCX: the environment is as it was, and so is the process; and it stays.
 */
#define _GNU_SOURCE
#include "../process.h"
#include "../unit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "registration/monitor/monitor.h"

typedef struct look {
    unsigned char code[16]; /* how libc's function begins: what patches it writes a jump there */
    char caught[128];       /* signals, a line of /proc/self/status */
    unsigned threads;
} look_t;

/* Around the call, which is made once and before cmocka sets handlers of its own. */
static look_t before, after;
static char first[] = "A=1", second[] = "UCX_LOG_FILE=stderr";
static char *own[] = {first, second, NULL};
static char **environment_after;

static void look(look_t *look)
{
    FILE *file = fopen("/proc/self/status", "r");

    while (file != NULL && fgets(look->caught, sizeof(look->caught), file) != NULL &&
           strncmp(look->caught, "SigCgt:", 7) != 0) {
    }
    if (file != NULL) {
        fclose(file);
    }
    memcpy(look->code, dlsym(RTLD_DEFAULT, "munmap"), sizeof(look->code));
    look->threads = process_threads();
}

enum { KEPT, GONE, NO_UCX };

static int status_after_owner;

/* Somebody else loads UCX before, and gives it up after. */
static int load_after_another(void)
{
    void *other = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);

    if (other == NULL) {
        return NO_UCX;
    }
    regx_hooks_load_ucx();
    dlclose(other);
    return dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD) != NULL ? KEPT : GONE;
}

/* In a child, since this process is to load it first itself. */
static void try_owner_that_goes(void)
{
    const pid_t child = fork();

    if (child == 0) {
        setenv("UCX_MEM_EVENTS", "n", 1);
        _exit(load_after_another());
    }
    if (child < 0 || waitpid(child, &status_after_owner, 0) != child) {
        abort();
    }
}

static void load(void)
{
    char **const real = environ;

    try_owner_that_goes();
    look(&before);
    environ = own;
    regx_hooks_load_ucx();
    environment_after = environ;
    environ = real;
    look(&after);
}

/* Other threads may be reading it: neither it nor what it holds is replaced for good, or freed. */
static void the_environment_stays_where_it_is(void **state)
{
    (void)state;
    assert_ptr_equal(environment_after, own);
    assert_ptr_equal(own[0], first);
    assert_ptr_equal(own[1], second);
    assert_null(own[2]);
}

static void the_process_stays_as_it_was(void **state)
{
    void *loaded = dlopen("libucm.so.0", RTLD_LAZY | RTLD_NOLOAD);

    (void)state;
    if (loaded == NULL) {
        print_message("not tried: there is no UCX\n");
        skip();
    }
    dlclose(loaded);
    assert_memory_equal(before.code, after.code, sizeof(before.code));
    assert_int_equal(strncmp(before.caught, "SigCgt:", 7), 0);
    assert_string_equal(before.caught, after.caught);
    assert_int_equal(before.threads, after.threads);
}

static void it_stays_when_its_owner_goes(void **state)
{
    (void)state;
    assert_true(WIFEXITED(status_after_owner));
    if (WEXITSTATUS(status_after_owner) == NO_UCX) {
        print_message("not tried: there is no UCX\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status_after_owner), KEPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_stays_when_its_owner_goes),
        cmocka_unit_test(the_process_stays_as_it_was),
        cmocka_unit_test(the_environment_stays_where_it_is),
    };

    load();
    return cmocka_run_group_tests_name("ucx", tests, NULL, NULL);
}
