/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Another process of the node: whether it lives, and what the kernel copies between it and this one.
 *
 * That it lives is seen by a second segment of System V, which that process alone attaches, without its
 * children: the segment is there as long as the process.
 *
 * The kernel's copies are process_vm_writev(2) and process_vm_readv(2). The kernel decides per peer
 * whether it is allowed (same user, dumpable, Yama's ptrace_scope, seccomp), so it is asked by
 * reading a random cookie that the peer published. That also proves that the process number means
 * the same process to both. It may be refused later, at any copy: a process drops privileges, or its
 * first thread ends. A peer that has ended may leave its number to another process. So before a copy
 * the cookie is read again if that was not done for a second: as a rule the kernel does not give a
 * number again sooner.
 */
#ifndef REGX_TRANSPORT_SHM_VM_H
#define REGX_TRANSPORT_SHM_VM_H

#include "base/file.h"
#include "transport/transport.h"

/* ---- whether a process lives; any thread ---- */

/* By what others know it, if they are in the same IPC namespace; if it has no segment, in the same PID
 * namespace. Sent as it is. */
typedef struct regx_life {
    int64_t made; /* when its segment was made: a number may be used again */
    int32_t id;   /* of that segment; -1: there is none, and its process number is all there is */
    int32_t pid;
} regx_life_t;

/* Begins this process's. `held` is for the end. */
regx_life_t regx_life_begin(void **held);
void regx_life_end(void *held);
/* Whether the process has ended MPI, reaped or not, or become another program. A few system calls.
 * own: this process's, by which it is seen whether it has moved to another IPC namespace: then
 * only the process's number tells. Where it may not be asked, or has no number here (0), it lives. */
bool regx_life_is_over(const regx_life_t *life, const regx_life_t *own);

/* ---- the kernel's copies ---- */

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
    regx_life_t life, own; /* the peer's, and this process's */
    regx_file_t file;      /* of a peer whose memory is a file with a name, once that is mapped */
    /* Its namespaces, as both processes say: a number of another PID namespace means nothing. */
    enum { REGX_VM_SAME_SPACE, REGX_VM_OTHER_USERS, REGX_VM_OTHER_PROCESSES } space;
    _Atomic(enum {REGX_VM_UNKNOWN, REGX_VM_ALLOWED, REGX_VM_DENIED}) state;
    _Atomic int error;      /* DENIED: what the kernel answered; 0: that it is another process */
    _Atomic int64_t looked; /* ALLOWED: when its cookie was read, in ns */
} regx_vm_peer_t;

/* Asks the kernel, and notes the answer in the peer. Called while that is UNKNOWN. REGX_OK or
 * REGX_DENIED. */
regx_status_t regx_vm_check(regx_vm_peer_t *peer);

/* Between two looks at the cookie of a peer that is copied from or to. */
#define REGX_VM_LOOK_NS INT64_C(1000000000)

/* Copies at most `length` bytes to or from `remote`, fewer if the kernel stops early; how many is
 * in `copied`. REGX_FAILED: a range is not there, or the peer is gone. REGX_DENIED: not allowed any
 * more, and the peer's state says so from now on. */
regx_status_t regx_vm_copy(regx_vm_peer_t *peer, regx_copy_direction_t direction, void *local,
                           uint64_t remote, size_t length, size_t *copied);

/* As regx_life_is_over; without a segment its number may also be another process's by now. */
bool regx_vm_gone(const regx_vm_peer_t *peer);

#endif
