/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Copying to and from another process's memory on the same machine: process_vm_writev(2) and
 * process_vm_readv(2).
 *
 * The kernel decides per peer whether it is allowed (same user, Yama's ptrace_scope, seccomp), so
 * it is asked, once, by reading a random cookie that the peer published. That also proves that
 * the process number means the same process in both name spaces. Shared memory is named by process
 * numbers too (segment.h), so what is mapped is checked by the same cookie.
 *
 * A peer that has ended may leave its number to another process. So before a copy the cookie is
 * read again if that was not done for a second: sooner the kernel gives no number again.
 */
#ifndef REGX_TRANSPORT_VM_H
#define REGX_TRANSPORT_VM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct regx_vm_cookie {
    uint64_t words[2];
} regx_vm_cookie_t;

static inline bool regx_vm_same(const regx_vm_cookie_t *a, const regx_vm_cookie_t *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}

typedef struct regx_vm_peer {
    int32_t pid;
    uint64_t cookie_address; /* in the peer */
    regx_vm_cookie_t cookie;
    enum { REGX_VM_UNKNOWN, REGX_VM_ALLOWED, REGX_VM_DENIED } state;
    _Atomic int64_t looked; /* ALLOWED: when its cookie was read, in ns */
} regx_vm_peer_t;

/* Asks the kernel on the first call, remembers the answer. REGX_DENIED: `reason` names the error,
 * as a phrase for the report. */
regx_status_t regx_vm_check(regx_vm_peer_t *peer, char *reason, size_t reason_size);

typedef enum regx_vm_direction { REGX_VM_WRITE, REGX_VM_READ } regx_vm_direction_t;

/* Between two looks at the cookie of a peer that is copied from or to. */
#define REGX_VM_LOOK_NS INT64_C(1000000000)

/* Copies at most `length` bytes to or from `remote`, fewer if the kernel stops early; how many is
 * in `copied`. REGX_FAILED: a range is not there, or the peer is gone. REGX_DENIED: not allowed any
 * more. */
regx_status_t regx_vm_copy(regx_vm_peer_t *peer, regx_vm_direction_t direction, void *local,
                           uint64_t remote, size_t length, size_t *copied);

/* Whether the process has ended, reaped or not. A system call or two. Where the kernel refuses to
 * look into any process, one that is not reaped counts as alive. */
bool regx_vm_gone(const regx_vm_peer_t *peer);

#endif
