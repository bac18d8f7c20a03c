/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

pthread_t unit_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    return thread;
}

void *unit_map(void *at, size_t length)
{
    void *memory =
        mmap(at, length, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED_NOREPLACE : 0), -1, 0);

    assert_true(memory != MAP_FAILED && (at == NULL || memory == at));
    return memory;
}

static struct {
    struct CMUnitTest all[64];
    const char *files[64];
    int lines[64];
    size_t count;
} tests;

static bool comes_before(const char *file, int line, size_t other)
{
    const int order = strcmp(file, tests.files[other]);

    return order < 0 || (order == 0 && line < tests.lines[other]);
}

void unit_add(struct CMUnitTest test, const char *file, int line)
{
    size_t at = tests.count++;

    if (at == sizeof(tests.all) / sizeof(tests.all[0])) {
        abort();
    }
    for (; at > 0 && comes_before(file, line, at - 1); at--) {
        tests.all[at] = tests.all[at - 1];
        tests.files[at] = tests.files[at - 1];
        tests.lines[at] = tests.lines[at - 1];
    }
    tests.all[at] = test;
    tests.files[at] = file;
    tests.lines[at] = line;
}

__attribute__((weak)) const unit_group_t unit_group = {0};

__attribute__((weak)) int main(void)
{
    if (unit_group.refused != NULL && unit_group.refused()) {
        return 0;
    }
    return _cmocka_run_group_tests("tests", tests.all, tests.count, unit_group.setup,
                                   unit_group.teardown);
}
