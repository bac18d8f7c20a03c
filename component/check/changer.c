/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Who changes memory. The kernel holds a thread that changes watched memory until the notifier's
 * reader has read of it. Just before, the reader looks which threads wait in such a call, and sends
 * them a signal. Its handler runs in that thread when the call returns, and takes the stack.
 *
 * The signal is a real-time one that the program does not handle. A thread that blocks it is sent none.
 */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "registration/monitor/uffd.h"

/* The words of /proc/PID/task/TID/syscall: number, six arguments, stack pointer and address. */
enum { NUMBER, FIRST, SECOND, THIRD, FOURTH, FIFTH, PC = 8, WORDS };

/* What changes memory. Of some, what they take away is not among their words. */
static const struct kind {
    uint64_t number;
    const char *name;
    bool tells_range; /* the first two words do */
} kinds[] = {{SYS_munmap, "munmap", true}, {SYS_mremap, "mremap", true},
             {SYS_mmap, "mmap", true},     {SYS_madvise, "madvise", true},
             {SYS_brk, "brk", false},      {SYS_shmdt, "shmdt", false},
             {SYS_shmat, "shmat", false},  {SYS_process_madvise, "process_madvise", false}};

enum { NONE, SEEN, TAKING, TAKEN, STATES }; /* TAKEN: with its stack */

/* A call that was seen. Written by the reader, then by the handler. The reader goes round: so a handler
 * that comes late finds a later number, and while one writes the ticket is left out. */
typedef struct ticket {
    _Atomic uint32_t state; /* STATES times its number, and one of these */
    const struct kind *kind;
    uint64_t words[WORDS];
    regx_check_call_t call;
} ticket_t;

enum { TICKETS = 64 };
static ticket_t tickets[TICKETS];
static _Atomic uint32_t issued;
static int signal_number; /* 0: none is free */

static void take(int number, siginfo_t *info, void *context)
{
    uint32_t seen = (uint32_t)info->si_value.sival_int * STATES + SEEN;
    ticket_t *ticket = &tickets[seen / STATES % TICKETS];
    const int error = errno;

    (void)number, (void)context;
    if (info->si_code == SI_QUEUE &&
        atomic_compare_exchange_strong(&ticket->state, &seen, seen - SEEN + TAKING)) {
        regx_check_call_take(&ticket->call, ticket->kind->name,
                             (const void *)(uintptr_t)ticket->words[PC]);
        atomic_store(&ticket->state, seen - SEEN + TAKEN);
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

/* What the kernel says of a thread. The reader is one thread. */
static char *read_of(const char *thread, const char *what)
{
    static char text[1 << 20]; /* a process may be in 65,536 groups, which status has, too */
    char path[NAME_MAX + 64];

    snprintf(path, sizeof(path), REGX_PROC "../%s/%s", thread, what);
    const long fd = regx_raw(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);
    const long length = regx_raw(SYS_read, fd, (long)text, sizeof(text) - 1, 0, 0);
    text[length > 0 ? length : 0] = '\0';
    regx_raw(SYS_close, fd, 0, 0, 0, 0);
    return text;
}

/* If a thread is in a call that takes memory away it gets a ticket, and the signal. */
static void look_at(const char *thread)
{
    static const char before[] = "\nSigBlk:\t";
    enum { DONTNEED_LOCKED = 24 }; /* since Linux 5.18 */
    const struct kind *kind = NULL;
    struct sigaction now;
    uint64_t words[WORDS];

    /* Of a thread that runs, or waits in no call, that has fewer words. */
    if (sscanf(read_of(thread, "syscall"), "%lu %lx %lx %lx %lx %lx %lx %lx %lx", &words[0],
               &words[1], &words[2], &words[3], &words[4], &words[5], &words[6], &words[7],
               &words[8]) != WORDS) {
        return;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        kind = kinds[i].number == words[NUMBER] ? &kinds[i] : kind;
    }
    /* Others may be long in the kernel, too (MADV_POPULATE_WRITE), and are innocent. */
    if (kind == NULL ||
        (kind->number == SYS_madvise && words[THIRD] != MADV_DONTNEED &&
         words[THIRD] != MADV_REMOVE && words[THIRD] != MADV_FREE &&
         words[THIRD] != DONTNEED_LOCKED) ||
        (kind->number == SYS_mmap && (words[FOURTH] & MAP_FIXED) == 0)) {
        return;
    }
    const uint32_t number = atomic_fetch_add(&issued, 1);
    ticket_t *ticket = &tickets[number % TICKETS];
    uint32_t was = atomic_load(&ticket->state);
    if (was % STATES == TAKING ||
        !atomic_compare_exchange_strong(&ticket->state, &was, number * STATES + NONE)) {
        return;
    }
    ticket->kind = kind;
    memcpy(ticket->words, words, sizeof(ticket->words));
    atomic_store(&ticket->state, number * STATES + SEEN);
    if (signal_number == 0 || sigaction(signal_number, NULL, &now) != 0 ||
        now.sa_sigaction != take) {
        return; /* or the program has taken it since */
    }
    /* To one that blocks the signal it would wait, and each later one behind it, until this user may send none to
     * anybody. */
    const char *blocked = strstr(read_of(thread, "status"), before);
    if (blocked != NULL &&
        (strtoull(blocked + strlen(before), NULL, 16) >> (signal_number - 1) & 1) == 0) {
        siginfo_t info = {.si_code = SI_QUEUE, .si_value.sival_int = (int)number};

        regx_raw(SYS_rt_tgsigqueueinfo, getpid(), atoi(thread), signal_number, (long)&info, 0);
    }
}

int __real_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);
int __wrap_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES]);

/* The linker puts it in the place of the notifier's: it looks around before that reads. */
int __wrap_regx_uffd_read(const regx_uffd_t *uffd, regx_change_t changes[REGX_UFFD_CHANGES])
{
    static _Alignas(8) char entries[8192]; /* the reader is one thread */
    const long tasks = regx_raw(SYS_openat, AT_FDCWD, (long)REGX_PROC "..",
                                O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    long length;

    while ((length = regx_raw(SYS_getdents64, tasks, (long)entries, sizeof(entries), 0, 0)) > 0) {
        const struct dirent64 *entry;

        for (long at = 0; at < length; at += entry->d_reclen) {
            entry = (const struct dirent64 *)(const void *)(entries + at);
            if (*entry->d_name != '.') {
                look_at(entry->d_name);
            }
        }
    }
    regx_raw(SYS_close, tasks, 0, 0, 0, 0);
    return __real_regx_uffd_read(uffd, changes);
}

static bool covers(uint64_t address, uint64_t length, const regx_check_change_t *change)
{
    return address <= change->start &&
           change->end <= regx_align_up(address + length, regx_page_size());
}

uint32_t regx_check_changer_now(void)
{
    return atomic_load(&issued);
}

/* The first that tells a range with that memory: it is stale from then on. Else the last that tells none. */
bool regx_check_changer_find(regx_check_change_t *change, uint32_t since, bool shared)
{
    const uint32_t last = atomic_load(&issued);
    bool found = false, sure = false;

    for (uint32_t number = last - regx_min(last - since, TICKETS); number != last && !sure;
         number++) {
        ticket_t *ticket = &tickets[number % TICKETS];
        const uint32_t state = atomic_load(&ticket->state) - number * STATES;

        if (state == NONE || state >= STATES) {
            continue; /* it is written, or another's */
        }
        const ticket_t seen = *ticket; /* unless another takes its place meanwhile */
        const uint64_t *words = seen.words;

        if (atomic_fetch_add(&ticket->state, 0) - number * STATES >= STATES ||
            (shared && words[NUMBER] == SYS_madvise && words[THIRD] != MADV_REMOVE)) {
            continue;
        }
        sure = seen.kind->tells_range &&
               (covers(words[FIRST], words[SECOND], change) ||
                (words[NUMBER] == SYS_mremap && covers(words[FIFTH], words[THIRD], change)));
        if (sure || !seen.kind->tells_range) {
            found = true;
            change->call = (regx_check_call_t){.what = seen.kind->name};
            if (state == TAKEN) {
                change->call = seen.call;
            }
        }
    }
    return found;
}
