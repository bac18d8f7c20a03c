/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

bool in_child;

pid_t pair_fork(int *end)
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

void pair_join(pid_t child, int end, bool killed)
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

void pair_tell(int end, const void *data, size_t length)
{
    REQUIRE(write(end, data, length) == (ssize_t)length);
}

void pair_hear(int end, void *data, size_t length)
{
    REQUIRE(recv(end, data, length, MSG_WAITALL) == (ssize_t)length);
}

void pair_meet(int end)
{
    char byte = 0;

    pair_tell(end, &byte, 1);
    pair_hear(end, &byte, 1);
}
