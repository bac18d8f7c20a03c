/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What was found: in the library, which adds to it, and in the command, which reads it at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check/check.h"

void regx_check_say(const char *format, ...)
{
    static const char begin[] = "regx-check: ";
    char line[sizeof(begin) + 4 * REGX_CHECK_TEXT];
    const int error = errno;
    const size_t most = sizeof(line) - sizeof(begin) - 1;
    va_list arguments;

    memcpy(line, begin, sizeof(begin));
    va_start(arguments, format);
    const int written = vsnprintf(line + sizeof(begin) - 1, most, format, arguments);
    va_end(arguments);
    size_t length = sizeof(begin) - 1 + ((size_t)written < most ? (size_t)written : most - 1);
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, length) < 0) {
        errno = error; /* nobody hears it */
    }
    errno = error;
}

regx_check_sum_t *regx_check_sum_map(const char *path, bool *shared)
{
    const int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *memory = MAP_FAILED;

    if (fd >= 0) {
        memory = mmap(NULL, sizeof(regx_check_sum_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    *shared = memory != MAP_FAILED;
    if (!*shared) {
        memory = mmap(NULL, sizeof(regx_check_sum_t), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    }
    return memory != MAP_FAILED ? memory : NULL;
}

const char *regx_check_verdict_name(regx_check_verdict_t verdict)
{
    static const char *const names[REGX_CHECK_VERDICTS] = {
        "stale and different", "stale, same bytes", "stale, bytes not compared",
        "stale, remote access possible"};

    return names[verdict];
}

uint64_t regx_check_sum_used(const regx_check_sum_t *sum)
{
    return sum->found[REGX_CHECK_DIFFERENT] + sum->found[REGX_CHECK_SAME] +
           sum->found[REGX_CHECK_UNCOMPARED];
}

void regx_check_fault_print(const regx_check_fault_t *fault, uint64_t times)
{
    char often[32] = "", who[48];

    if (times != 0) {
        snprintf(often, sizeof(often), "%" PRIu64 " times: ", times);
    }

    if (fault->rank >= 0) {
        snprintf(who, sizeof(who), "rank %d", fault->rank);
    } else {
        snprintf(who, sizeof(who), "process %d", fault->process);
    }
    regx_check_say("%s%s: %s: %" PRIu64 " bytes at 0x%" PRIx64
                   "; registered %s; made stale by %s; used by %s",
                   often, who, regx_check_verdict_name(fault->verdict), fault->length, fault->start,
                   fault->registered, fault->changed, fault->used);
}

/* What could not be known, and why. */
static void print_limits(const regx_check_sum_t *sum)
{
    if (sum->processes == 0) {
        regx_check_say("nothing was followed: no process loaded libregx-check.so (it is static or "
                       "set-uid, or resets LD_PRELOAD)");
    } else if (sum->devices == 0) {
        regx_check_say(
            "nothing was followed: no RDMA device was opened by calls of libibverbs that "
            "came by here (none is used, or by dlsym, RTLD_DEEPBIND, or a process that "
            "reset LD_PRELOAD)");
    } else if (sum->registrations > 0 && sum->postings == 0) {
        regx_check_say("no posting was followed: the program posts past libibverbs (as by mlx5dv), "
                       "or not at all");
    }
    if (sum->unwatched > 0) {
        regx_check_say("of %" PRIu64 " registrations changes are not reported (shared memory, a "
                       "file's, or watched by the program): bytes were compared at each use",
                       sum->unwatched);
    }
    if (sum->unwitnessed > 0) {
        regx_check_say("of %" PRIu64 " registrations bytes could not be compared; of %" PRIu64
                       " nothing was known",
                       sum->unwitnessed, sum->blind);
    }
}

void regx_check_sum_print(const regx_check_sum_t *sum)
{
    print_limits(sum);
    if (sum->devices == 0) {
        return;
    }
    regx_check_say("%" PRIu64 " registrations, %" PRIu64 " postings; stale ones used: %" PRIu64
                   " different, %" PRIu64 " same bytes, %" PRIu64 " not compared; %" PRIu64
                   " open to peers",
                   sum->registrations, sum->postings, sum->found[REGX_CHECK_DIFFERENT],
                   sum->found[REGX_CHECK_SAME], sum->found[REGX_CHECK_UNCOMPARED],
                   sum->found[REGX_CHECK_REMOTE]);
    for (int i = 0; i < REGX_CHECK_FAULTS; i++) {
        const regx_check_fault_t *fault = &sum->faults[i];

        if (fault->whole != 0) {
            regx_check_fault_print(fault, fault->times);
        }
    }
    if (sum->untold > 0) {
        regx_check_say("%" PRIu64 " uses more, beyond --limit", sum->untold);
    }
    if (sum->suppressed > 0) {
        regx_check_say("%" PRIu64 " uses suppressed", sum->suppressed);
    }
}
