/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who changes memory. The kernel holds a thread that changes watched memory until the notifier's
 * reader has read of it. Just before, the reader looks which threads are in such a call, and sends
 * them a signal. Its handler runs in that thread when the call returns, and takes the stack.
 *
 * The signal is a real-time one that the program does not handle. A thread that blocks it gets it
 * later, when it is somewhere else, and then takes nothing.
 */
#include <execinfo.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "base/thread.h"
#include "check/check.h"
#include "registration/monitor/uffd.h"

enum { TICKETS = 64 };

/* A call that was seen. Written by the reader, then by the handler. */
typedef struct ticket {
    _Atomic uint32_t state; /* 0: none; 1: seen; 2: with its stack */
    int thread;
    const char *call;
    uintptr_t pc; /* to which it returns */
    regx_change_t changes[2];
    regx_check_stack_t stack;
} ticket_t;

static ticket_t tickets[TICKETS];
static _Atomic uint32_t issued;
static int signal_number; /* 0: none is free */

static const char *name_of(long call)
{
    switch (call) {
    case SYS_munmap:
        return "munmap";
    case SYS_mremap:
        return "mremap";
    case SYS_mmap:
        return "mmap";
    case SYS_madvise:
        return "madvise";
    case SYS_brk:
        return "brk";
    case SYS_shmdt:
        return "shmdt";
    case SYS_shmat:
        return "shmat";
    case SYS_process_madvise:
        return "process_madvise";
    default:
        return NULL;
    }
}

static uintptr_t pc_of(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)context->uc_mcontext.pc;
#else
    return 0;
#endif
}

static void take(int number, siginfo_t *info, void *context)
{
    ticket_t *ticket = &tickets[(unsigned)info->si_value.sival_int % TICKETS];
    const int error = errno;

    (void)number;
    if (info->si_code == SI_QUEUE && atomic_load(&ticket->state) == 1 &&
        ticket->thread == (int)regx_raw(SYS_gettid, 0, 0, 0, 0, 0) &&
        ticket->pc == pc_of(context)) {
        regx_check_stack_take(&ticket->stack, (const void *)ticket->pc);
        atomic_store(&ticket->state, 2);
    }
    errno = error;
}

void regx_check_changer_start(void)
{
    for (int number = SIGRTMAX - 1; number > SIGRTMIN; number--) {
        struct sigaction action = {.sa_sigaction = take,
                                   .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK},
                         old;

        sigaction(number, NULL, &old);
        if (old.sa_handler == SIG_DFL && sigaction(number, &action, NULL) == 0) {
            signal_number = number;
            return;
        }
    }
}

static bool signal_is_ours(void)
{
    struct sigaction now;

    return signal_number != 0 && sigaction(signal_number, NULL, &now) == 0 &&
           (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == take;
}

/* What the call takes away. */
static void ranges_of(const uint64_t *words, regx_change_t changes[2])
{
    const uint64_t *arguments = words + 1;

    changes[0] = (regx_change_t){.start = arguments[0], .end = arguments[0] + arguments[1]};
    changes[1] = (regx_change_t){0};
    switch ((long)words[0]) {
    case SYS_mremap:
        changes[1] = (regx_change_t){.start = arguments[4], .end = arguments[4] + arguments[2]};
        break;
    case SYS_brk:
    case SYS_shmdt:
    case SYS_shmat:
    case SYS_process_madvise:
        changes[0] = (regx_change_t){.start = 0, .end = UINTPTR_MAX};
        break;
    default:
        break;
    }
}

/* words: number, six arguments, stack pointer and address, as /proc has them. */
static void issue(int thread, const uint64_t words[9])
{
    const uint32_t number = atomic_fetch_add(&issued, 1);
    ticket_t *ticket = &tickets[number % TICKETS];
    siginfo_t info = {.si_code = SI_QUEUE};

    atomic_store(&ticket->state, 0);
    ticket->thread = thread;
    ticket->call = name_of((long)words[0]);
    ticket->pc = words[8];
    ticket->stack.count = 0;
    ranges_of(words, ticket->changes);
    atomic_store(&ticket->state, 1);
    info.si_value.sival_int = (int)(number % TICKETS);
    if (signal_is_ours()) {
        regx_raw(SYS_rt_tgsigqueueinfo, getpid(), thread, signal_number, (long)&info, 0);
    }
}

/* Of a thread that runs, or waits in no call, that has fewer words. */
static void look_at(int tasks, const char *name)
{
    char path[64], text[256];
    uint64_t words[9];
    int count = 0;

    if (strlen(name) > 20) {
        return;
    }
    strcpy(stpcpy(path, name), "/syscall");
    const long fd = regx_raw(SYS_openat, tasks, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
    if (fd < 0) {
        return;
    }
    const long length = regx_raw(SYS_read, fd, (long)text, sizeof(text) - 1, 0, 0);
    regx_raw(SYS_close, fd, 0, 0, 0, 0);
    text[length > 0 ? length : 0] = '\0';
    for (char *at = text, *end; count < 9; count++, at = end) {
        words[count] = strtoull(at, &end, 0);
        if (end == at) {
            break;
        }
    }
    if (count == 9 && name_of((long)words[0]) != NULL) {
        issue(atoi(name), words);
    }
}

static void look_around(void)
{
    static char entries[8192]; /* the reader is one thread */
    const long tasks = regx_raw(SYS_openat, AT_FDCWD, (long)REGX_PROC "..",
                                O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    long length;

    if (tasks < 0) {
        return;
    }
    while ((length = regx_raw(SYS_getdents64, tasks, (long)entries, sizeof(entries), 0, 0)) > 0) {
        for (long at = 0; at < length;) {
            unsigned short size;

            memcpy(&size, entries + at + 16, sizeof(size));
            if (entries[at + 19] != '.') {
                look_at((int)tasks, entries + at + 19);
            }
            at += size;
        }
    }
    regx_raw(SYS_close, tasks, 0, 0, 0, 0);
}

int __real_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);
int __wrap_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);

/* The linker puts it in the place of the notifier's. */
int __wrap_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES])
{
    look_around();
    return __real_regx_uffd_read(uffd, changes);
}

void regx_check_changer_find(regx_check_change_t *change)
{
    const uint32_t last = atomic_load(&issued);

    for (uint32_t i = 1; i <= TICKETS && i <= last; i++) {
        const ticket_t *ticket = &tickets[(last - i) % TICKETS];

        for (int j = 0; j < 2; j++) {
            if (atomic_load(&ticket->state) != 0 && ticket->changes[j].start < change->end &&
                change->start < ticket->changes[j].end) {
                change->call = ticket->call;
                change->stack.count = 0;
                if (atomic_load(&ticket->state) == 2) {
                    change->stack = ticket->stack;
                }
                return;
            }
        }
    }
}
