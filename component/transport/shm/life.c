/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/shm/segment.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A segment that children would keep says nothing of this process. */
static void *attach_alone(int id)
{
    void *base = shmat(id, NULL, SHM_RDONLY);

    if (base == (void *)-1) { /* NOLINT(performance-no-int-to-ptr) */
        return NULL;
    }
    if (madvise(base, regx_page_size(), MADV_DONTFORK) != 0) {
        shmdt(base);
        return NULL;
    }
    return base;
}

regx_life_t regx_life_begin(void **held)
{
    const int id = shmget(IPC_PRIVATE, regx_page_size(), IPC_CREAT | S_IRUSR);
    regx_life_t life = {.id = -1, .pid = getpid()};
    struct shmid_ds status;

    *held = id >= 0 ? attach_alone(id) : NULL;
    if (id >= 0) {
        if (*held != NULL && shmctl(id, IPC_STAT, &status) == 0) {
            life.id = id;
            life.made = status.shm_ctime;
        }
        shmctl(id, IPC_RMID, NULL);
    }
    return life;
}

void regx_life_end(void *held)
{
    if (held != NULL) {
        shmdt(held);
    }
}

/* One that is not reaped has ended, too. A process whose first thread has ended has not. */
static bool has_ended(pid_t pid)
{
    struct pollfd file = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

    if (file.fd < 0) { /* too old a kernel, or no descriptor left */
        return kill(pid, 0) != 0 && errno == ESRCH;
    }
    const bool ended = poll(&file, 1, 0) == 1;
    close(file.fd);
    return ended;
}

typedef enum sight { THERE, GONE, NOT_TOLD } sight_t;

static sight_t look(const regx_life_t *life)
{
    struct shmid_ds status;

    if (shmctl(life->id, IPC_STAT, &status) == 0) {
        return status.shm_ctime == life->made ? THERE : GONE;
    }
    /* EACCES: this process has given up its rights. */
    return errno == EACCES ? THERE : errno == EINVAL || errno == EIDRM ? GONE : NOT_TOLD;
}

bool regx_life_is_over(const regx_life_t *life, const regx_life_t *own)
{
    const sight_t seen = life->id < 0 ? NOT_TOLD : look(life);

    if (seen == THERE) {
        return false;
    }
    if (seen == GONE && own->id >= 0 && look(own) == THERE) {
        return true;
    }
    return life->pid > 0 && has_ended(life->pid);
}
