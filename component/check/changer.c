/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who changes memory. The kernel holds a thread that changes watched memory until the notifier's
 * reader has read of it. Just before, the reader looks which threads wait in such a call, and sends
 * them a signal. Its handler runs in that thread when the call returns, and takes the stack.
 *
 * The signal is a real-time one that the program does not handle. A thread that blocks it gets it
 * later, when it is somewhere else, and then takes nothing.
 */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "registration/monitor/uffd.h"

enum { TICKETS = 64, NUMBER = 0, FIRST, SECOND, THIRD, FIFTH = 5, PC = 8, WORDS };

/* A call that was seen. Written by the reader, then by the handler. */
typedef struct ticket {
    _Atomic uint32_t state; /* 0: none; 1: seen; 2: with its stack */
    int thread;
    const char *call;
    uint64_t words[WORDS]; /* number, six arguments, stack pointer and address, as /proc has them */
    regx_check_stack_t stack;
} ticket_t;

static ticket_t tickets[TICKETS];
static _Atomic uint32_t issued;
static int signal_number; /* 0: none is free */

static const char *name_of(uint64_t number)
{
    static const struct {
        uint64_t number;
        const char *name;
    } calls[] = {{SYS_munmap, "munmap"}, {SYS_mremap, "mremap"},
                 {SYS_mmap, "mmap"},     {SYS_madvise, "madvise"},
                 {SYS_brk, "brk"},       {SYS_shmdt, "shmdt"},
                 {SYS_shmat, "shmat"},   {SYS_process_madvise, "process_madvise"}};

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (calls[i].number == number) {
            return calls[i].name;
        }
    }
    return NULL;
}

static void take(int number, siginfo_t *info, void *context)
{
    ticket_t *ticket = &tickets[(unsigned)info->si_value.sival_int % TICKETS];
    const int error = errno;

    (void)number, (void)context;
    if (info->si_code == SI_QUEUE && atomic_load(&ticket->state) == 1 &&
        ticket->thread == (int)regx_raw(SYS_gettid, 0, 0, 0, 0, 0)) {
        regx_check_stack_take(&ticket->stack, (const void *)(uintptr_t)ticket->words[PC]);
        atomic_store(&ticket->state, 2);
    }
    errno = error;
}

void regx_check_changer_start(void)
{
    const struct sigaction action = {.sa_sigaction = take,
                                     .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    struct sigaction old;

    for (int number = SIGRTMAX - 1; number > SIGRTMIN && signal_number == 0; number--) {
        if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL &&
            sigaction(number, &action, NULL) == 0) {
            signal_number = number;
        }
    }
}

static void issue(int thread, const uint64_t words[WORDS])
{
    const uint32_t number = atomic_load(&issued);
    ticket_t *ticket = &tickets[number % TICKETS];
    siginfo_t info = {.si_code = SI_QUEUE};
    struct sigaction now;

    atomic_store(&ticket->state, 0);
    ticket->thread = thread;
    ticket->call = name_of(words[NUMBER]);
    memcpy(ticket->words, words, sizeof(ticket->words));
    atomic_store(&ticket->state, 1);
    atomic_store(&issued, number + 1);
    info.si_value.sival_int = (int)(number % TICKETS);
    if (signal_number != 0 && sigaction(signal_number, NULL, &now) == 0 &&
        now.sa_sigaction == take) { /* the program has not taken it since */
        regx_raw(SYS_rt_tgsigqueueinfo, getpid(), thread, signal_number, (long)&info, 0);
    }
}

/* Of a thread that runs, or waits in no call, that has fewer words. */
static void look_at(int tasks, const char *name)
{
    char path[NAME_MAX + 16], text[256];
    uint64_t words[WORDS];
    int count = 0;

    strcpy(stpcpy(path, name), "/syscall");
    const long fd = regx_raw(SYS_openat, tasks, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
    if (fd < 0) {
        return;
    }
    const long length = regx_raw(SYS_read, fd, (long)text, sizeof(text) - 1, 0, 0);
    regx_raw(SYS_close, fd, 0, 0, 0, 0);
    text[length > 0 ? length : 0] = '\0';
    for (char *at = text, *end; count < WORDS; count++, at = end) {
        words[count] = strtoull(at, &end, 0);
        if (end == at) {
            return;
        }
    }
    if (name_of(words[NUMBER]) != NULL) {
        issue(atoi(name), words);
    }
}

static void look_around(void)
{
    static _Alignas(8) char entries[8192]; /* the reader is one thread */
    const long tasks = regx_raw(SYS_openat, AT_FDCWD, (long)REGX_PROC "..",
                                O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    long length;

    if (tasks < 0) {
        return;
    }
    while ((length = regx_raw(SYS_getdents64, tasks, (long)entries, sizeof(entries), 0, 0)) > 0) {
        const struct dirent64 *entry;

        for (long at = 0; at < length; at += entry->d_reclen) {
            entry = (const struct dirent64 *)(const void *)(entries + at);
            if (entry->d_name[0] != '.') {
                look_at((int)tasks, entry->d_name);
            }
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

/* Whether the call may have made the change. Of some, what they take away is not among their words. */
static bool may_have_made(const ticket_t *ticket, const regx_check_change_t *change)
{
    const uint64_t *words = ticket->words;

    switch ((long)words[NUMBER]) {
    case SYS_mremap:
        if (words[FIFTH] < change->end && change->start < words[FIFTH] + words[THIRD]) {
            return true;
        }
        break;
    case SYS_munmap:
    case SYS_mmap:
    case SYS_madvise:
        break;
    default:
        return true;
    }
    return words[FIRST] < change->end && change->start < words[FIRST] + words[SECOND];
}

void regx_check_changer_find(regx_check_change_t *change)
{
    const uint32_t last = atomic_load(&issued);

    for (uint32_t i = 1; i <= regx_min(last, TICKETS); i++) {
        const ticket_t *ticket = &tickets[(last - i) % TICKETS];
        const uint32_t state = atomic_load(&ticket->state);

        if (state != 0 && may_have_made(ticket, change)) {
            change->call = ticket->call;
            if (state == 2) {
                change->stack = ticket->stack;
            }
            return;
        }
    }
}
