/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hazard 22: children that are made in mid-transfer and stay alive.
 *
 *     child ROUNDS SIZE HOW...
 *
 * HOW, one after the other, so many rounds each: none, fork, vfork, spawn, clone
 * (the bare system call, of which libc's pthread_atfork knows nothing). In each round both ranks
 * send and receive at once; when both transfers are under way each makes a child. One that
 * shares the parent's image writes all around the buffers, in their first and last pages too; it
 * calls no MPI. The child lives until its pipe is closed: after the parent has got its message,
 * unmapped the buffers, mapped new ones at their addresses and sent those. The child of the last
 * round lives until after MPI_Finalize.
 *
 * Hazard 27: after MPI_Finalize the buffers are unmapped by another thread, a child and this thread.
 * Nothing of regx may be left: with a thread of it that hangs, with a userfaultfd unread it would too.
 * Ends with 0, or with 4.
 */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "mapping.h"
#include "settle.h"

enum { TAG = 3, SEED = 67, MARGIN = 1000 };

extern char **environ;

struct child {
    pid_t pid;   /* 0: none to wait for */
    int pipe[2]; /* the child reads until its end */
    int null;    /* where vfork's child writes it */
};

static int rank;
static size_t size, mapped;
static const char *how;
static int under_way;           /* rounds in which the transfers were, when the child was made */
static unsigned char *out, *in; /* MARGIN bytes before and behind the message */

static void map_buffers(void)
{
    out = out != NULL ? mapping_make(out, mapped, false) : mapping_make_below_room(mapped);
    in = in != NULL ? mapping_make(in, mapped, false) : mapping_make_below_room(mapped);
    memset(out, 0x5a, mapped);
    memset(in, 0x5a, mapped);
}

static void drop_buffers(void)
{
    mapping_drop(out, mapped, false);
    mapping_drop(in, mapped, false);
}

static void check_margins(const unsigned char *memory)
{
    for (size_t n = 0; n < mapped; n++) {
        if (n == MARGIN) {
            n += size;
        }
        check_that(memory[n] == 0x5a, "byte %zu around a buffer is not the parent's own", n);
    }
}

/* In a copy of the parent: nothing here but memory and system calls. */
static void live(struct child *child)
{
    char byte;
    memset(out, 1, mapped);
    memset(in, 2, MARGIN);
    memset(in + MARGIN + size, 3, mapped - MARGIN - size);
    syscall(SYS_close, child->pipe[1]);
    while (syscall(SYS_read, child->pipe[0], &byte, 1) > 0) {
    }
    syscall(SYS_exit_group, 0);
}

static void spawn(struct child *child, char **words)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, child->pipe[0], 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    check_that(posix_spawn(&child->pid, "/bin/cat", &actions, NULL, words, environ) == 0,
               "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
}

static void make_child(struct child *child)
{
    char *words[] = {"cat", NULL};
    *child = (struct child){.pid = 0};
    child->null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    check_that(pipe2(child->pipe, O_CLOEXEC) == 0 && child->null >= 0, "pipe: %s", strerror(errno));
    if (strcmp(how, "fork") == 0) {
        child->pid = fork();
    } else if (strcmp(how, "clone") == 0) {
        child->pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    } else if (strcmp(how, "vfork") == 0) {
        child->pid = vfork();
        if (child->pid == 0) {
            dup2(child->pipe[0], 0);
            dup2(child->null, 1);
            execv("/bin/cat", words);
            _exit(127);
        }
    } else if (strcmp(how, "spawn") == 0) {
        spawn(child, words);
    } else if (strcmp(how, "none") != 0) {
        check_fail("\"%s\" is no way to make a child", how);
    }
    if (child->pid == 0 && (strcmp(how, "fork") == 0 || strcmp(how, "clone") == 0)) {
        live(child);
    }
    check_that(child->pid >= 0, "%s: %s", how, strerror(errno));
    close(child->pipe[0]);
    close(child->null);
}

/* false: it had not lived until now, when its pipe still has a reader. */
static bool end_child(struct child *child)
{
    const bool none = strcmp(how, "none") == 0;
    int status = 0;
    bool alive = none || write(child->pipe[1], "", 1) == 1;
    close(child->pipe[1]);
    if (child->pid > 0) {
        alive &= waitpid(child->pid, &status, 0) == child->pid && status == 0;
    }
    return alive;
}

/* Sends and receives at once; with a child, made when both are under way. */
static void exchange(uint64_t key, uint64_t other, struct child *child)
{
    MPI_Request requests[2];
    int done = 0;
    stamp_fill(out + MARGIN, size, key, 0);
    settle();
    MPI_Irecv(in + MARGIN, (int)size, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out + MARGIN, (int)size, MPI_BYTE, 1 - rank, TAG, MPI_COMM_WORLD, &requests[1]);
    if (child != NULL) {
        while (!done && in[MARGIN] == 0x5a && in[MARGIN + 1] == 0x5a) {
            MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
        }
        under_way += !done;
        make_child(child);
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check_stamp(in + MARGIN, size, other, 0, "with a child");
    check_margins(in);
    check_margins(out);
}

static void *unmap(void *unused)
{
    munmap(out, mapped);
    return unused;
}

static bool change(void)
{
    pthread_t thread;
    int status = 0;
    pthread_create(&thread, NULL, unmap, NULL);
    pthread_join(thread, NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        _exit(munmap(in, mapped));
    }
    waitpid(pid, &status, 0);
    madvise(in, mapped, MADV_DONTNEED);
    void *moved = mremap(in, mapped, 2 * mapped, MREMAP_MAYMOVE);
    return status == 0 && moved != MAP_FAILED && syscall(SYS_munmap, moved, 2 * mapped) == 0;
}

int main(int argc, char **argv)
{
    struct child child;
    rank = check_begin(&argc, &argv, 4);
    signal(SIGPIPE, SIG_IGN);
    const int ways = argc - 3;
    const uint64_t rounds = strtoul(argv[1], NULL, 0) * (uint64_t)ways;
    size = strtoul(argv[2], NULL, 0);
    mapped = (size + 2 * MARGIN + 4095) & ~(size_t)4095;
    map_buffers();
    for (uint64_t round = 0; round < rounds; round++) {
        how = argv[3 + round % (uint64_t)ways];
        exchange(stamp_key(SEED, round, rank, 0), stamp_key(SEED, round, 1 - rank, 0), &child);
        drop_buffers();
        map_buffers();
        exchange(stamp_key(SEED, round, rank, 1), stamp_key(SEED, round, 1 - rank, 1), NULL);
        check_that(round >= rounds - 1 || end_child(&child),
                   "a child did not live, or not end well");
    }
    MPI_Allreduce(MPI_IN_PLACE, &under_way, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_that(under_way != 0, "every transfer was too fast");
    check_done(MPI_COMM_WORLD);
    MPI_Finalize();
    const bool changed = change();
    settle_ended("regx-");
    return end_child(&child) && changed ? 0 : 4;
}
