/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rendezvous/safe_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"

enum { PIECE = 4096 }; /* a page, or a part of one: it is there as a whole or not at all */

/* How many bytes at `buffer`, at most `left`, lie in its piece. */
static size_t rest_of_piece(const char *buffer, size_t left)
{
    const size_t rest = PIECE - (uintptr_t)buffer % PIECE;

    return rest < left ? rest : left;
}

/* Or the next piece would be what is left of this one. */
static void drain(const int pipe[2], bool some)
{
    char rest[PIECE];

    while (some && read(pipe[0], rest, sizeof(rest)) < 0 && errno == EINTR) {
    }
}

/* Moves a piece without a pipe. */
static bool move_without(char *to, const char *from, const char *buffer, size_t length)
{
    const struct iovec here = {to, length};
    const struct iovec there = {(void *)(uintptr_t)from, length};

    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)length) {
        return true;
    }
    if (msync((char *)buffer - (uintptr_t)buffer % regx_page_size(), 1, MS_ASYNC) != 0) {
        return false;
    }
    memcpy(to, from, length);
    return true;
}

/* Moves a piece. The pipe is empty before and after. false: there is no memory at one end. */
static bool move(const int pipe[2], char *to, const char *from, const char *buffer, size_t length)
{
    ssize_t n;

    do {
        n = write(pipe[1], from, length);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EFAULT) { /* there is no pipe, or no memory of the kernel's for it */
        return move_without(to, from, buffer, length);
    }
    if (n != (ssize_t)length) {
        drain(pipe, n > 0);
        return false;
    }
    do {
        n = read(pipe[0], to, length);
    } while (n < 0 && errno == EINTR);
    if (n == (ssize_t)length) {
        return true;
    }
    drain(pipe, true);
    return false;
}

/* `buffer` is that one of both which may have holes. */
static bool copy(char *to, const char *from, const char *buffer, size_t length)
{
    int pipe[2] = {-1, -1};
    const bool piped = pipe2(pipe, O_CLOEXEC | O_NONBLOCK) == 0;
    bool whole = true;

    for (size_t done = 0, piece; done < length; done += piece) {
        piece = rest_of_piece(buffer + done, length - done);
        whole &= move(pipe, to + done, from + done, buffer + done, piece);
    }
    if (piped) {
        close(pipe[0]);
        close(pipe[1]);
    }
    return whole;
}

bool regx_safe_read(void *to, const void *buffer, size_t length)
{
    memset(to, 0, length);
    return copy(to, buffer, buffer, length);
}

bool regx_safe_write(void *buffer, const void *from, size_t length)
{
    return copy(buffer, from, buffer, length);
}
