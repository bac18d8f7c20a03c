/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a program notices if a library moves the pages of a buffer into shared memory, at the same
 * address, so that the node's other processes can map them. osu-configs/moved.md says what follows.
 *
 *     moved
 *
 * Prints a row for each thing that the program does, and in it a cell for each way of mover.h:
 * "as before", or what is different. Cells are separated by tabs. Each cell has a process of its
 * own. Ends with 77 where the kernel or the device cannot do this.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "change.h"
#include "mover.h"
#include "oracle.h"

enum { PAGES = 16, PATIENCE = 300, UNAVAILABLE = 77, OLD = 0x11, NEW = 0x22 };

static const char before[] = "as before";
static const char *const ways[WAYS] = {"private", "shared", "given back", "snapshot"};

static mover_t mover;
static size_t page;

static char *page_at(size_t number)
{
    return mover.at + number * page;
}

static bool holds(const char *bytes, size_t length, char value)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static void fill(void)
{
    mover.at = mmap(NULL, mover.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mover.at == MAP_FAILED) {
        perror("moved: mmap");
        exit(2);
    }
    memset(mover.at, OLD, mover.length);
}

/* The buffer, full of OLD, moved by the way of this cell. */
static void start(void)
{
    fill();
    mover_start(&mover);
}

/* ---- content that the program gives up ---- */

static const char *dontneed(void)
{
    start();
    if (change_madvise(BY_SYSCALL, page_at(4), 4 * page, MADV_DONTNEED) != 0) {
        return strerror(errno);
    }
    return !holds(page_at(4), 4 * page, 0)               ? "old bytes"
           : !holds(mover.at, 4 * page, OLD)             ? "others lost"
           : !holds(page_at(8), (PAGES - 8) * page, OLD) ? "others lost"
                                                         : before;
}

static void write_beside(mover_t *written)
{
    (void)written;
    memset(page_at(1), NEW, page);
}

/* Another thread writes to a page that is not given up. */
static const char *dontneed_beside_a_writer(void)
{
    mover.meanwhile = write_beside;
    start();
    if (change_madvise(BY_SYSCALL, page_at(4), 4 * page, MADV_DONTNEED) != 0) {
        return strerror(errno);
    }
    if (!mover.called) {
        write_beside(&mover);
    }
    return holds(page_at(1), page, NEW) ? before : "what was written is lost";
}

static const char *guard(void)
{
    start();
    if (change_madvise(BY_SYSCALL, page_at(4), page, MADV_GUARD_INSTALL) != 0 ||
        change_madvise(BY_SYSCALL, page_at(4), page, MADV_GUARD_REMOVE) != 0) {
        return strerror(errno);
    }
    return holds(page_at(4), page, 0) ? before : "old bytes";
}

static const char *give_up_lazily(void)
{
    start();
    return change_madvise(BY_SYSCALL, page_at(4), page, MADV_FREE) == 0 ? before : strerror(errno);
}

/* ---- the mapping ---- */

static const char *lengthen(void)
{
    start();
    char *at =
        change_mremap(BY_SYSCALL, mover.at, mover.length, 2 * mover.length, MREMAP_MAYMOVE, NULL);

    if (at == MAP_FAILED) {
        return strerror(errno);
    }
    return !holds(at, mover.length, OLD)                ? "other bytes"
           : !holds(at + mover.length, mover.length, 0) ? "new part not zero"
                                                        : before;
}

/* ---- fork ---- */

static int to_child[2];

static void tell_child(void)
{
    if (write(to_child[1], "", 1) != 1) {
        _exit(2);
    }
}

static void wait_for_parent(void)
{
    char byte;

    close(to_child[1]); /* so that it ends if the parent does */
    if (read(to_child[0], &byte, 1) != 1) {
        _exit(2);
    }
}

/* What became of the child, which exits with 0 if it saw what it should. */
static const char *outcome(pid_t child)
{
    int status;

    if (child < 0 || waitpid(child, &status, 0) != child) {
        return strerror(errno);
    }
    return WIFSIGNALED(status)        ? "the child dies"
           : WEXITSTATUS(status) != 0 ? "the child sees other bytes"
                                      : before;
}

/* The parent writes after it. */
static const char *fork_by(by_t by)
{
    start();
    const pid_t child = change_fork(by);
    if (child == 0) {
        wait_for_parent();
        _exit(holds(mover.at, mover.length, OLD) ? 0 : 1);
    }
    memset(mover.at, NEW, mover.length);
    tell_child();
    return outcome(child);
}

static const char *fork_by_libc(void)
{
    return fork_by(BY_LIBC);
}

static const char *fork_by_syscall(void)
{
    return fork_by(BY_SYSCALL);
}

static const char *child_writes(void)
{
    start();
    const pid_t child = fork();
    if (child == 0) {
        memset(mover.at, NEW, mover.length);
        _exit(0);
    }
    const char *what = outcome(child);
    return what == before && !holds(mover.at, mover.length, OLD) ? "the parent sees other bytes"
                                                                 : what;
}

static void write_in_handler(void)
{
    memset(mover.at, NEW, mover.length);
}

/* A handler of the program's (pthread_atfork) brings the buffer up to date, or waits for a thread
 * that does. Of handlers that were installed earlier it runs later. */
static const char *handler_writes(void)
{
    pthread_atfork(write_in_handler, NULL, NULL);
    start();
    const pid_t child = fork();
    if (child == 0) {
        _exit(holds(mover.at, mover.length, NEW) ? 0 : 1);
    }
    return outcome(child);
}

static void read_in_handler(void)
{
    if (!holds(mover.at, mover.length, OLD)) {
        _exit(1);
    }
}

/* One in the child reads it: earlier than those that were installed later. */
static const char *handler_reads(void)
{
    pthread_atfork(NULL, NULL, read_in_handler);
    start();
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    return outcome(child);
}

static int from_pipe[2];
static ssize_t got;
static int got_error;

static void read_beside(mover_t *written)
{
    (void)written;
    got = read(from_pipe[0], page_at(1), 1);
    got_error = errno;
}

/* Another thread reads from a file into it meanwhile. */
static const char *fork_beside_a_read(void)
{
    if (pipe(from_pipe) != 0 || write(from_pipe[1], "", 1) != 1) {
        return strerror(errno);
    }
    mover.meanwhile = read_beside;
    start();
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    if (!mover.called) {
        read_beside(&mover);
    }
    const char *what = outcome(child);
    return got != 1 ? strerror(got_error) : page_at(1)[0] != '\0' ? "what was read is lost" : what;
}

/* ---- pages that somebody else has pinned ---- */

static oracle_t *oracle;
static regx_mr_t mr;

static void pin(void)
{
    regx_transport_t *transport = oracle_transport(oracle);

    if (transport->ops->reg(transport, mover.at, mover.length, REGX_ACCESS_LOCAL, &mr) != REGX_OK) {
        fprintf(stderr, "moved: not registered\n");
        exit(2);
    }
}

/* The program writes, and the device sends. */
static const char *send_new(void)
{
    char *sent = malloc(mover.length);

    memset(mover.at, NEW, mover.length);
    oracle_send(oracle, &mr, mover.at, mover.length, sent);
    const bool right = holds(sent, mover.length, NEW);
    free(sent);
    return right ? before : "the device sends old bytes";
}

static const char *pinned_before(void)
{
    fill();
    pin();
    mover_start(&mover);
    return send_new();
}

static const char *pinned_then_fork(void)
{
    start();
    pin();
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    const char *what = outcome(child);
    return what == before ? send_new() : what;
}

/* ---- the table ---- */

static const struct row {
    const char *name;
    const char *(*run)(void);
} rows[] = {
    {"MADV_DONTNEED", dontneed},
    {"MADV_DONTNEED beside a writer", dontneed_beside_a_writer},
    {"MADV_GUARD_INSTALL, _REMOVE", guard},
    {"MADV_FREE", give_up_lazily},
    {"mremap to more", lengthen},
    {"fork, the parent writes", fork_by_libc},
    {"fork, the child writes", child_writes},
    {"clone, the parent writes", fork_by_syscall},
    {"fork, a handler writes", handler_writes},
    {"fork, a handler of the child's reads", handler_reads},
    {"fork beside a read from a file", fork_beside_a_read},
    {"pinned, then moved", pinned_before},
    {"moved, then pinned, then fork", pinned_then_fork},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]), WORDS = 100 };

/* In a process of its own. */
static void run_cell(const struct row *row, way_t way, int answer)
{
    char why[WORDS];

    alarm(PATIENCE); /* should it hang */
    mover.way = way;
    oracle = oracle_open(1, why, sizeof(why));
    if (oracle == NULL || pipe(to_child) != 0) {
        exit(2);
    }
    const char *what = row->run();
    if (write(answer, what, strlen(what)) < 0) {
        exit(2);
    }
    _exit(0);
}

static bool print_cell(const struct row *row, way_t way)
{
    char words[WORDS] = "";
    int answer[2], status;

    if (pipe(answer) != 0) {
        return false;
    }
    const pid_t child = fork();
    if (child == 0) {
        close(answer[0]);
        run_cell(row, way, answer[1]);
    }
    close(answer[1]);
    const bool said = read(answer[0], words, sizeof(words) - 1) > 0;
    close(answer[0]);
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return false;
    }
    printf("\t%s", said ? words : WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed");
    return said || WIFSIGNALED(status);
}

int main(void)
{
    char why[WORDS];
    bool well = true;
    oracle_t *device = oracle_open(1, why, sizeof(why));

    if (device == NULL || !mover_is_possible()) {
        puts(device == NULL ? why : "userfaultfd does not do this here");
        return UNAVAILABLE;
    }
    oracle_close(device);
    page = regx_page_size();
    mover.length = PAGES * page;
    printf("change");
    for (way_t way = 0; way < WAYS; way++) {
        printf("\t%s", ways[way]);
    }
    for (size_t i = 0; i < ROWS; i++) {
        printf("\n%s", rows[i].name);
        fflush(stdout);
        for (way_t way = 0; way < WAYS; way++) {
            well = print_cell(&rows[i], way) && well;
            fflush(stdout);
        }
    }
    putchar('\n');
    return well ? 0 : 1;
}
