/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The self-test of what the kernel itself reports. A filter that eats events, or a kernel that sends
 * none, is refused, not trusted. Two changes show it, made by raw system calls on pages of our own:
 * one page is unmapped by another thread, and one is moved onto another. Each must be refused to a
 * look-up at once, and come into the log; then look-ups must be able to hit again.
 */
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/thread.h"
#include "registration/monitor/monitor.h"

#define SETTLE_SECONDS 10

enum { TRIAL_PAGES = 4, UNMAPPED = 0, MOVED = 1, ONTO = 3 };

static const char *judge(regx_monitor_t *monitor, uint64_t since, uintptr_t page, size_t size)
{
    const time_t end = time(NULL) + SETTLE_SECONDS;
    bool known = !monitor->valid(monitor);

    known |= atomic_load(&monitor->log->sequence) % 2 == 1;
    known |= regx_inval_log_touched(monitor->log, since, page, page + size, true);
    while (known && !(regx_inval_log_touched(monitor->log, since, page, page + size, true) &&
                      monitor->valid(monitor))) {
        if (time(NULL) > end) {
            return "was noticed, but is not in the log, or nothing hits after it";
        }
        sched_yield();
    }
    return known ? NULL : "was not seen";
}

static void *unmap_page(void *page)
{
    return syscall(SYS_munmap, page, regx_page_size()) == 0 ? page : NULL;
}

regx_status_t regx_monitor_test(regx_monitor_t *monitor, regx_error_t error)
{
    const size_t size = regx_page_size(), length = TRIAL_PAGES * size;
    char *scratch = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uintptr_t start = (uintptr_t)scratch, unmapped = start + UNMAPPED * size,
                    moved = start + MOVED * size, onto = start + ONTO * size;
    const char *change = "munmap by another thread", *fault;
    pthread_t thread;
    void *done = NULL;
    uint64_t since;

    if (scratch == MAP_FAILED) {
        return regx_refuse(error, REGX_NO_MEMORY, "self-test: no memory for scratch pages");
    }
    memset(scratch, 1, length); /* there is something to lose */
    regx_inval_log_interest(monitor->log, start, start + length, 1);
    if (monitor->subscribe(monitor, start, start + length, &since) != REGX_OK) {
        fault = "could not be tried: the scratch pages cannot be watched";
        goto end;
    }
    if (pthread_create(&thread, NULL, unmap_page, (void *)unmapped) != 0 ||
        pthread_join(thread, &done) != 0 || done == NULL) {
        fault = "could not be made";
        goto end;
    }
    fault = judge(monitor, since, unmapped, size);
    if (fault != NULL) {
        goto end;
    }
    change = "mremap";
    if (syscall(SYS_mremap, moved, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, onto) == -1) {
        fault = "could not be made";
        goto end;
    }
    fault = judge(monitor, since, moved, size);
    if (fault == NULL) {
        fault = judge(monitor, since, onto, size);
    }
end:
    regx_monitor_unsubscribe(monitor, start, start + length);
    regx_inval_log_interest(monitor->log, start, start + length, -1);
    /* The others are not there any more, and may be another thread's by now. */
    munmap(scratch + 2 * size, 2 * size);
    if (fault != NULL) {
        return regx_refuse(error, REGX_INVALID, "self-test: %s %s", change, fault);
    }
    return REGX_OK;
}
