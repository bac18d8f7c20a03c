/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/segment.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

static ssize_t read_cookie(const regx_vm_peer_t *peer, regx_vm_cookie_t *seen)
{
    const struct iovec local = {seen, sizeof(*seen)};
    const struct iovec remote = {(void *)(uintptr_t)peer->cookie_address, sizeof(*seen)};

    return process_vm_readv(peer->pid, &local, 1, &remote, 1, 0);
}

regx_status_t regx_vm_check(regx_vm_peer_t *peer, char *reason, size_t reason_size)
{
    regx_vm_cookie_t seen = {{0, 0}};
    const ssize_t n = read_cookie(peer, &seen);

    peer->state = REGX_VM_DENIED;
    if (n < 0) {
        snprintf(reason, reason_size, "process_vm: %s", strerror(errno));
    } else if (n != (ssize_t)sizeof(seen) || !regx_vm_same(&seen, &peer->cookie)) {
        snprintf(reason, reason_size, "process_vm: another process name space");
    } else {
        peer->state = REGX_VM_ALLOWED;
        atomic_store_explicit(&peer->looked, regx_now_ns(), memory_order_relaxed);
    }
    return peer->state == REGX_VM_ALLOWED ? REGX_OK : REGX_DENIED;
}

bool regx_vm_gone(const regx_vm_peer_t *peer)
{
    regx_vm_cookie_t seen = {{0, 0}};

    if (read_cookie(peer, &seen) >= 0) {
        return !regx_vm_same(&seen, &peer->cookie);
    }
    /* Else refused: perhaps its number is now that of another user's process. */
    return errno == ESRCH || errno == EFAULT || kill(peer->pid, 0) != 0;
}

/* Or its number may be another process's. */
static bool is_still_there(regx_vm_peer_t *peer)
{
    const int64_t now = regx_now_ns();

    if (now - atomic_load_explicit(&peer->looked, memory_order_relaxed) < REGX_VM_LOOK_NS) {
        return true;
    }
    if (regx_vm_gone(peer)) {
        return false;
    }
    atomic_store_explicit(&peer->looked, now, memory_order_relaxed);
    return true;
}

regx_status_t regx_vm_copy(regx_vm_peer_t *peer, regx_copy_direction_t direction, void *local,
                           uint64_t remote, size_t length, size_t *copied)
{
    *copied = 0;
    if (!is_still_there(peer)) {
        return REGX_FAILED;
    }
    const struct iovec here = {local, length};
    const struct iovec there = {(void *)(uintptr_t)remote, length};
    const ssize_t n = direction == REGX_COPY_FROM_PEER
                          ? process_vm_readv(peer->pid, &here, 1, &there, 1, 0)
                          : process_vm_writev(peer->pid, &here, 1, &there, 1, 0);

    if (n > 0) {
        *copied = (size_t)n;
        return REGX_OK;
    }
    return n < 0 && (errno == EPERM || errno == ENOSYS) ? REGX_DENIED : REGX_FAILED;
}
