/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rendezvous/safe_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

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

/* Moves a piece. The pipe is empty before and after. false: there is no memory at one end. */
static bool move(const int pipe[2], char *to, const char *from, size_t length)
{
    ssize_t n;

    do {
        n = write(pipe[1], from, length);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EFAULT) { /* the kernel's own memory, not ours */
        memcpy(to, from, length);
        return true;
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
    bool whole = true;
    int pipe[2];

    if (pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        memcpy(to, from, length);
        return true;
    }
    for (size_t done = 0, piece; done < length; done += piece) {
        piece = rest_of_piece(buffer + done, length - done);
        whole &= move(pipe, to + done, from + done, piece);
    }
    close(pipe[0]);
    close(pipe[1]);
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
