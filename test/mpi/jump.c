/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that leaves MPI by siglongjmp, as a time-out does in old programs, and goes on with MPI.
 *
 *     jump JUMPS SIZE
 *
 * Each rank looks for a message that nobody sends, until a timer's signal finds it inside the BTL, and
 * jumps out of there. After each jump rank 0 sends SIZE bytes to rank 1, and it to rank 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>
#include <ucontext.h>

#include "check.h"

enum { SEED = 98, NEVER_SENT = CHECK_TAG + 1, EVERY_US = 300 };

static sigjmp_buf before;

static bool is_in_regx(const ucontext_t *context)
{
#if defined(__x86_64__)
    const uintptr_t at = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    const uintptr_t at = context->uc_mcontext.pc;
#endif
    Dl_info where;

    return dladdr((const void *)at, &where) != 0 && where.dli_fname != NULL &&
           strstr(where.dli_fname, "mca_btl_regx") != NULL;
}

static void set_timer(int microseconds)
{
    const struct itimerval timer = {.it_interval = {.tv_usec = microseconds},
                                    .it_value = {.tv_usec = microseconds}};

    setitimer(ITIMER_REAL, &timer, NULL);
}

static void leave(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    if (is_in_regx(context)) {
        set_timer(0);
        siglongjmp(before, 1);
    }
}

static void wait_and_leave(void)
{
    if (sigsetjmp(before, 1) == 0) {
        set_timer(EVERY_US);
        for (int found = 0; found == 0;) {
            MPI_Iprobe(MPI_ANY_SOURCE, NEVER_SENT, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        }
        check_fail("a message that nobody has sent");
    }
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_sigaction = leave, .sa_flags = SA_SIGINFO};

    check_begin(&argc, &argv, 3);
    const uint64_t jumps = strtoul(argv[1], NULL, 0);
    const size_t size = strtoul(argv[2], NULL, 0);
    unsigned char *memory = check_memory(size);
    sigaction(SIGALRM, &action, NULL);
    for (uint64_t jump = 0; jump < jumps; jump++) {
        wait_and_leave();
        check_message(memory, size, 0, 1, stamp_key(SEED, jump, 0, 0), "after a jump");
        check_message(memory, size, 1, 0, stamp_key(SEED, jump, 1, 0), "back after a jump");
    }
    free(memory);
    return check_end();
}
