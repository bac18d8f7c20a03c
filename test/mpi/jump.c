/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that leaves MPI by siglongjmp, as a time-out does in old programs, and goes on with MPI.
 *
 *     jump JUMPS SIZE
 *
 * Each of two ranks looks for a message that nobody sends, until a timer's signal finds it inside the
 * BTL's progress, not in a callback, and jumps out of there. Meanwhile a long message from each is under
 * way, of which its receiver knows. (MPI may lose what it handles at that moment.) After each jump, from
 * deeper in the stack, these are received; then rank 0 sends SIZE bytes to rank 1, and it to rank 0.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "check.h"

enum { SEED = 98, NEVER_SENT = CHECK_TAG + 1, EVERY_US = 300, LONG = 1 << 20, DEPTH = 64 };

static sigjmp_buf before;

static bool is_in(void *const *frame, const char *library)
{
    Dl_info where;

    return dladdr(*frame, &where) != 0 && where.dli_fname != NULL &&
           strstr(where.dli_fname, library) != NULL;
}

/* What was interrupted is in the BTL, and Open MPI's progress has called that. (If a callback has, Open
 * MPI does not go on.) */
static __attribute__((noinline)) bool is_in_progress(void)
{
    void *frames[DEPTH];
    const int count = backtrace(frames, DEPTH);
    int at = 3; /* behind this one, the handler, and what the kernel returns to */

    while (at < count && is_in(&frames[at], "mca_btl_regx")) {
        at++;
    }
    return at > 3 && at < count && is_in(&frames[at], "libopen-pal");
}

static void set_timer(int microseconds)
{
    const struct itimerval timer = {.it_interval = {.tv_usec = microseconds},
                                    .it_value = {.tv_usec = microseconds}};

    setitimer(ITIMER_REAL, &timer, NULL);
}

static void leave(int signal)
{
    if (is_in_progress()) {
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

typedef struct after {
    MPI_Request under_way;
    int rank;
    unsigned char *memory, *in;
    size_t size;
    uint64_t jump;
} after_t;

static void go_on(after_t *after)
{
    const int peer = 1 - after->rank;

    MPI_Barrier(MPI_COMM_WORLD); /* who waits to jump has no messages to handle */
    MPI_Recv(after->in, LONG, MPI_BYTE, peer, CHECK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check_stamp(after->in, LONG, stamp_key(SEED, after->jump, 2, peer), 0, "under way");
    MPI_Wait(&after->under_way, MPI_STATUS_IGNORE);
    check_message(after->memory, after->size, 0, 1, stamp_key(SEED, after->jump, 0, 0), "after");
    check_message(after->memory, after->size, 1, 0, stamp_key(SEED, after->jump, 1, 0), "back");
}

static void go_on_below(after_t *after, int frames)
{
    volatile unsigned char frame[4096];

    frame[0] = (unsigned char)frames;
    if (frames > 0) {
        go_on_below(after, frames - 1);
    } else {
        go_on(after);
    }
    frame[0]++;
}

int main(int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = leave};
    const int rank = check_begin(&argc, &argv, 3);
    const uint64_t jumps = strtoul(argv[1], NULL, 0);
    const size_t size = strtoul(argv[2], NULL, 0);
    unsigned char *memory = check_memory(size), *out = check_memory(LONG), *in = check_memory(LONG);
    after_t after = {.rank = rank, .memory = memory, .in = in, .size = size};
    void *frame;

    backtrace(&frame, 1); /* loads what unwinds, before a signal needs it */
    sigaction(SIGALRM, &action, NULL);
    for (uint64_t jump = 0; jump < jumps; jump++) {
        stamp_fill(out, LONG, stamp_key(SEED, jump, 2, rank), 0);
        MPI_Isend(out, LONG, MPI_BYTE, 1 - rank, CHECK_TAG, MPI_COMM_WORLD, &after.under_way);
        MPI_Barrier(MPI_COMM_WORLD);
        wait_and_leave();
        after.jump = jump;
        go_on_below(&after, 4);
    }
    free(in);
    free(out);
    free(memory);
    return check_end();
}
