/* SPDX-License-Identifier: BSD-3-Clause */
#include "old_kernel.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "registration/monitor/uffd.h"

old_kernel_t old;
starting_t starting;

static void *unmap_and_run(void *unused)
{
    (void)unused;
    while (!atomic_load(&starting.watched) && !atomic_load(&starting.awaited)) {
        sched_yield();
    }
    munmap(starting.page, PAGE);
    atomic_store(&starting.unmapped, true);
    return starting.run(starting.argument);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    starting.run = run;
    starting.argument = argument;
    return __real_pthread_create(thread, attributes, starting.page != NULL ? unmap_and_run : run,
                                 argument);
}

void __real_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
void __wrap_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds);
void __wrap_regx_thread_wait(_Atomic uint32_t *word, uint32_t value, unsigned milliseconds)
{
    atomic_store(&starting.awaited, true);
    __real_regx_thread_wait(word, value, milliseconds);
}

/* Lets the thread change the page while it is watched, if it has not yet. */
static void note_watched(int fd, const struct uffdio_register *request)
{
    if (starting.page == NULL ||
        (uintptr_t)starting.page - request->range.start >= request->range.len) {
        return;
    }
    atomic_store(&starting.watched, true);
    while (!atomic_load(&starting.unmapped) && regx_uffd_is_idle(fd)) {
        sched_yield();
    }
}

static bool is(unsigned long request, char type, unsigned number)
{
    return _IOC_TYPE(request) == (unsigned)type && _IOC_NR(request) == number;
}

int __real_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument);
int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
    if ((old.no_scan && is(request, 'f', 16)) || (old.no_query && is(request, 'f', 17))) {
        errno = ENOTTY;
        return -1;
    }
    if (request == UFFDIO_UNREGISTER && old.taken != 0) {
        const struct uffdio_range *range = argument;

        old.took = old.took || old.taken - range->start < range->len;
    }
    if (request == UFFDIO_UNREGISTER && old.keeps) {
        return 0;
    }
    if (request == UFFDIO_REGISTER) {
        const int result = __real_ioctl(fd, request, argument);

        note_watched(fd, argument);
        return result;
    }
    if (request == UFFDIO_API) {
        struct uffdio_api *api = argument;

        if ((api->features & old.lacking) != 0 || (old.answers > 0 && --old.answers == 0)) {
            errno = EINVAL;
            return -1;
        }
        const int result = __real_ioctl(fd, request, argument);
        api->features &= ~old.lacking;
        return result;
    }
    return __real_ioctl(fd, request, argument);
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (number == SYS_userfaultfd && old.refusal != 0) {
        errno = old.refusal;
        return -1;
    }
    return __real_syscall(number, a, b, c, d, e, f);
}

int setup(void **state)
{
    (void)state;
    memset(&old, 0, sizeof(old));
    memset(&starting, 0, sizeof(starting));
    alarm(UNIT_PATIENCE); /* a hang is a failure, not the end of all tests */
    return 0;
}

regx_counters_t counters;
char start_error[256];

regx_monitor_t *start(void)
{
    const regx_monitor_config_t config = {.counters = &counters};
    regx_monitor_t *monitor = NULL;

    start_error[0] = '\0';
    const regx_status_t status =
        regx_backend_notifier.start(&config, &monitor, start_error, sizeof(start_error));
    return status == REGX_OK ? monitor : NULL;
}

const char *fault(void)
{
    const size_t length = 8 * PAGE;
    regx_monitor_t *monitor = start();
    uint64_t since[2];

    if (monitor == NULL) {
        return start_error;
    }
    char *base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t at = (uintptr_t)base;
    const char *result = NULL;

    while (atomic_load(&monitor->log->sequence) % 2 == 1) {
        sched_yield();
    }
    regx_inval_log_interest(monitor->log, at, at + length, 1);
    if (base == MAP_FAILED ||
        monitor->subscribe(monitor, at, at + 2 * PAGE, &since[0]) != REGX_OK ||
        monitor->subscribe(monitor, at + 4 * PAGE, at + length, &since[1]) != REGX_OK) {
        result = "does not watch";
    } else if (regx_inval_log_touched(monitor->log, since[0], at, at + 2 * PAGE)) {
        result = "one makes another invalid";
    } else if (!monitor->valid(monitor, at, at + PAGE)) {
        result = "is not quiet";
    } else if (munmap(base + 4 * PAGE, PAGE) != 0) {
        result = "munmap fails";
    }
    while (result == NULL && (!monitor->valid(monitor, at, at + PAGE) ||
                              atomic_load(&monitor->log->sequence) % 2 == 1)) {
        sched_yield();
    }
    if (result == NULL &&
        !regx_inval_log_touched(monitor->log, since[1], at + 4 * PAGE, at + length)) {
        result = "does not see munmap";
    } else if (result == NULL &&
               regx_inval_log_touched(monitor->log, since[0], at, at + 2 * PAGE)) {
        result = "sees what did not change";
    }
    munmap(base, length);
    monitor->stop(monitor);
    return result;
}

void must_work(void)
{
    const char *found = fault();

    if (found != NULL) {
        fail_msg("%s", found);
    }
}

void must_refuse(const char *expected)
{
    assert_null(start());
    if (strstr(start_error, expected) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", start_error, expected);
    }
    assert_null(strchr(start_error, '\n'));
}

bool refused(void)
{
    regx_monitor_t *monitor = start();

    if (monitor == NULL && strstr(start_error, "userfaultfd") != NULL) {
        printf("1..0 # SKIP %s\n", start_error);
        return true;
    }
    if (monitor != NULL) {
        monitor->stop(monitor);
    }
    return false;
}
