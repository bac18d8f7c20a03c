/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/vm.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "transport/shm/shm_internal.h"

/* ---- whether a process lives ---- */

regx_life_t regx_life_begin(void **held)
{
    const int id = regx_segment_make_sysv(regx_page_size(), S_IRUSR);
    regx_life_t life = {.id = -1, .pid = getpid()};
    struct shmid_ds status;

    *held = NULL;
    if (id < 0) {
        return life;
    }
    *held = regx_segment_attach(id, SHM_RDONLY);
    /* A segment that children would keep says nothing of this process. */
    if (*held != NULL && madvise(*held, regx_page_size(), MADV_DONTFORK) == 0 &&
        shmctl(id, IPC_STAT, &status) == 0) {
        life.id = id;
        life.made = status.shm_ctime;
    }
    shmctl(id, IPC_RMID, NULL);
    return life;
}

void regx_life_end(void *held)
{
    if (held != NULL) {
        shmdt(held);
    }
}

typedef enum sight { THERE, GONE, NOT_TOLD } sight_t;

static sight_t find_segment(const regx_life_t *life)
{
    struct shmid_ds status;

    if (shmctl(life->id, IPC_STAT, &status) == 0) {
        return status.shm_ctime == life->made ? THERE : GONE;
    }
    if (errno == EACCES) { /* this process has dropped its privileges */
        return THERE;
    }
    return errno == EINVAL || errno == EIDRM ? GONE : NOT_TOLD;
}

bool regx_life_is_over(const regx_life_t *life, const regx_life_t *own)
{
    const sight_t seen = life->id < 0 ? NOT_TOLD : find_segment(life);

    if (seen == THERE) {
        return false;
    }
    if (seen == GONE && own->id >= 0 && find_segment(own) == THERE) {
        return true;
    }
    if (life->pid <= 0) {
        return false;
    }
    /* One that is not reaped has ended, too. A process whose first thread has ended has not. */
    struct pollfd file = {.fd = (int)syscall(SYS_pidfd_open, life->pid, 0), .events = POLLIN};
    if (file.fd < 0) { /* too old a kernel, or no descriptor left */
        return kill(life->pid, 0) != 0 && errno == ESRCH;
    }
    const bool ended = poll(&file, 1, 0) == 1;
    close(file.fd);
    return ended;
}

/* ---- the kernel's copies ---- */

/* thread: one of the peer's, as a rule its first. */
static ssize_t read_cookie(const regx_vm_peer_t *peer, pid_t thread, regx_vm_cookie_t *seen)
{
    const struct iovec local = {seen, sizeof(*seen)};
    const struct iovec remote = {(void *)(uintptr_t)peer->cookie_address, sizeof(*seen)};

    return process_vm_readv(thread, &local, 1, &remote, 1, 0);
}

static regx_status_t deny(regx_vm_peer_t *peer, int error)
{
    atomic_store_explicit(&peer->error, error, memory_order_relaxed);
    atomic_store_explicit(&peer->state, REGX_VM_DENIED, memory_order_release);
    return REGX_DENIED;
}

regx_status_t regx_vm_check(regx_vm_peer_t *peer)
{
    regx_vm_cookie_t seen = {{0, 0}};

    if (peer->space == REGX_VM_OTHER_PROCESSES) {
        return deny(peer, 0);
    }
    const ssize_t n = read_cookie(peer, peer->pid, &seen);
    if (n < 0) {
        return deny(peer, errno);
    }
    if (n != (ssize_t)sizeof(seen) || !regx_vm_same(&seen, &peer->cookie)) {
        return deny(peer, 0);
    }
    atomic_store_explicit(&peer->looked, regx_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&peer->state, REGX_VM_ALLOWED, memory_order_relaxed);
    return REGX_OK;
}

bool regx_vm_gone(const regx_vm_peer_t *peer)
{
    regx_vm_cookie_t seen = {{0, 0}};
    const struct dirent *entry;
    bool has_memory = false;
    char path[32];

    if (regx_file_is_ours(&peer->file)) {
        return regx_shm_file_is_left(&peer->file);
    }
    if (regx_life_is_over(&peer->life, &peer->own)) {
        return true;
    }
    if (peer->life.id >= 0 || peer->space == REGX_VM_OTHER_PROCESSES) {
        return false;
    }
    if (read_cookie(peer, peer->pid, &seen) >= 0) {
        return !regx_vm_same(&seen, &peer->cookie);
    }
    if (errno != ESRCH) {
        return false;
    }
    /* When threads end the kernel takes their memory and closes their files some time before it says that
     * the process has ended. Where it does not tell, there is memory. */
    snprintf(path, sizeof(path), "/proc/%d/task", peer->pid);
    DIR *threads = opendir(path);
    if (threads == NULL) {
        return false;
    }
    while (!has_memory && (entry = readdir(threads)) != NULL) {
        const int thread = atoi(entry->d_name);

        has_memory = thread > 0 && (read_cookie(peer, thread, &seen) >= 0 || errno != ESRCH);
    }
    closedir(threads);
    return !has_memory;
}

/* EFAULT: the memory is not there. Any other error is about the two processes: if the peer has ended,
 * the copy has failed, else it is refused. */
static regx_status_t refused(regx_vm_peer_t *peer, int error)
{
    return error == EFAULT || regx_vm_gone(peer) ? REGX_FAILED : deny(peer, error);
}

regx_status_t regx_vm_copy(regx_vm_peer_t *peer, regx_copy_direction_t direction, void *local,
                           uint64_t remote, size_t length, size_t *copied)
{
    const int64_t now = regx_now_ns();
    regx_vm_cookie_t seen = {{0, 0}};

    *copied = 0;
    if (now - atomic_load_explicit(&peer->looked, memory_order_relaxed) >= REGX_VM_LOOK_NS) {
        if (read_cookie(peer, peer->pid, &seen) < 0) {
            return refused(peer, errno);
        }
        if (!regx_vm_same(&seen, &peer->cookie)) {
            return REGX_FAILED; /* another process has its number: what was asked for is gone */
        }
        atomic_store_explicit(&peer->looked, now, memory_order_relaxed);
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
    return n < 0 ? refused(peer, errno) : REGX_FAILED;
}

/* ---- a piece ----
 * What is copied at once between this process and a neighbour. The kernel does it by one system call.
 * If the neighbour's bytes lie in its own MPI_Alloc_mem memory, that is mapped here and this process
 * copies, which is counted (pieces_owned). Such a copy ends this process by a signal if its own buffer
 * is unmapped; the kernel's only fails. So if the address of this process's buffer was given by a
 * neighbour (a shared copy), the kernel copies. */

/* Why the kernel does not copy, as a phrase for the report. */
static void tally_refusal(const regx_shm_t *shm, const regx_vm_peer_t *peer)
{
    const int error = atomic_load_explicit(&peer->error, memory_order_relaxed);
    const char *why = "another PID namespace";
    char reason[REGX_REASON_LENGTH];

    if (error == EPERM && peer->space == REGX_VM_OTHER_USERS) {
        why = "another user namespace";
    } else if (error == EPERM) {
        why = "not permitted (rights, dumpable, Yama, seccomp)";
    } else if (error == ESRCH) {
        why = "the peer's first thread has ended";
    } else if (error != 0) {
        why = strerror(error);
    }
    snprintf(reason, sizeof(reason), "process_vm: %s", why);
    regx_transport_fall_back(&shm->config, REGX_TRACE_PATH, reason);
}

bool regx_shm_may_copy(const regx_shm_t *shm, regx_shm_neighbour_t *neighbour)
{
    if (neighbour->vm.state == REGX_VM_UNKNOWN && regx_vm_check(&neighbour->vm) != REGX_OK) {
        tally_refusal(shm, &neighbour->vm);
    }
    return neighbour->vm.state == REGX_VM_ALLOWED;
}

regx_status_t regx_shm_piece_copy(regx_shm_t *shm, regx_shm_piece_t piece)
{
    regx_counters_t *counters = shm->config.counters;
    const bool reads = piece.direction == REGX_COPY_FROM_PEER;
    char *mapped = regx_alloc_mem_map(shm, &piece);
    regx_status_t status = REGX_OK;

    if (mapped != NULL) {
        if (reads) {
            regx_copy(piece.local, mapped, piece.length);
        } else {
            regx_copy(mapped, piece.local, piece.length);
        }
        regx_alloc_mem_note(shm, *piece.alloc_mem, piece.length);
        regx_count(counters, &counters->pieces_owned, 1);
        regx_count(counters, &counters->bytes_shm, piece.length);
        return REGX_OK;
    }
    while (piece.length > 0 && status == REGX_OK) {
        size_t copied;

        status = regx_vm_copy(&piece.neighbour->vm, piece.direction, piece.local, piece.remote,
                              piece.length, &copied);
        regx_count(counters, &counters->bytes_shm, copied);
        piece.local += copied;
        piece.remote += copied;
        piece.length -= copied;
    }
    if (status == REGX_DENIED) {
        tally_refusal(shm, &piece.neighbour->vm);
    }
    return status;
}

regx_status_t regx_shm_copy_part(regx_shm_t *shm, regx_pending_t *op, size_t at, size_t length)
{
    regx_shm_conn_t *conn = regx_shm_conn_of(op->conn);
    const regx_move_t move = regx_move_of(op);
    const regx_shm_key_t key = regx_shm_key_unpack(move.key);
    const bool reads = op->kind == REGX_PENDING_GET;

    return regx_shm_piece_copy(
        shm, (regx_shm_piece_t){.neighbour = &conn->peer,
                                .alloc_mem = key.by_kernel ? NULL : &conn->alloc_mem,
                                .direction = reads ? REGX_COPY_FROM_PEER : REGX_COPY_TO_PEER,
                                .local = move.local + at,
                                .remote = key.address + move.offset + at,
                                .length = length});
}
