/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Two processes, for the tests of a wire: this one and a child. They also have a socket of their
 * own, by which they tell each other what they may not learn over the wire under test. Waiting has
 * no limit here; the watchdog is outside.
 */
#pragma once

#include "../unit.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern bool in_child; /* this process is the child */

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

/* Forks. Returns the child's number, 0 in the child; `end` is this process's end of the socket. */
pid_t pair_fork(int *end);
/* The child's part ends here. The parent's ends when the child has ended well, or was killed by
 * the parent. */
void pair_join(pid_t child, int end, bool killed);

/* By the socket: writes, and waits until so many bytes came. */
void pair_tell(int end, const void *data, size_t length);
void pair_hear(int end, void *data, size_t length);
/* Both come here before either goes on; neither makes progress meanwhile. */
void pair_meet(int end);
