/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two processes, for the tests of a wire: this one and a child. They also have a socket of their
 * own, by which they tell each other what they may not learn over the wire under test. Waiting has
 * no limit here; the watchdog is outside.
 */
#ifndef REGX_TEST_PAIR_H
#define REGX_TEST_PAIR_H

#include "../unit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARENT = 1000001, CHILD = 2000002 }; /* ids */

static bool in_child;

/* cmocka's assertions end a test by a jump, which must not happen in the child. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so in the %s: %s\n", __FILE__, __LINE__,                   \
                    in_child ? "child" : "parent", #condition);                                    \
            if (in_child) {                                                                        \
                _exit(1);                                                                          \
            }                                                                                      \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* Answers who the child is, 0 in the child; `end`: this process's of the socket. */
static inline pid_t pair_fork(int *end)
{
    int sockets[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    in_child = child == 0;
    if (in_child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    *end = sockets[in_child];
    close(sockets[!in_child]);
    return child;
}

/* The child's part ends here; the parent's, when the child has ended well, or was killed by it. */
static inline void pair_join(pid_t child, int end, bool killed)
{
    int status;

    if (in_child) {
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                       : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(end);
}

static inline void pair_tell(int end, const void *data, size_t length)
{
    REQUIRE(write(end, data, length) == (ssize_t)length);
}

static inline void pair_hear(int end, void *data, size_t length)
{
    REQUIRE(recv(end, data, length, MSG_WAITALL) == (ssize_t)length);
}

/* Both come here before either goes on; nobody makes progress meanwhile. */
static inline void pair_meet(int end)
{
    char byte = 0;

    pair_tell(end, &byte, 1);
    pair_hear(end, &byte, 1);
}

#endif
