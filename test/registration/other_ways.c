/* SPDX-License-Identifier: BSD-3-Clause */
#include "other_ways.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "places.h"

enum { RING_BYTES = 4096 };

/* One entry of the queue, filled in and handed over; the call returns when it is done. */
static int submit(int ring, const struct io_uring_params *params, const struct io_uring_sqe *entry)
{
    uint8_t *const queues =
        mmap(NULL, RING_BYTES, READ_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *const entries =
        mmap(NULL, RING_BYTES, READ_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);

    must(queues != MAP_FAILED && (void *)entries != MAP_FAILED, "the ring's memory");
    must((params->features & IORING_FEAT_SINGLE_MMAP) != 0, "one mapping of both queues");
    entries[0] = *entry;
    ((uint32_t *)(void *)(queues + params->sq_off.array))[0] = 0;
    atomic_store((_Atomic uint32_t *)(void *)(queues + params->sq_off.tail), 1);
    must(syscall(SYS_io_uring_enter, (long)ring, 1L, 1L, (long)IORING_ENTER_GETEVENTS, 0L, 0L) == 1,
         "io_uring_enter");
    const struct io_uring_cqe *const done = (void *)(queues + params->cq_off.cqes);
    const int result = done[0].res;
    munmap(queues, RING_BYTES);
    munmap(entries, RING_BYTES);
    return result;
}

bool other_ring_madvise(void *address, size_t length, int advice)
{
    struct io_uring_params params = {0};
    const struct io_uring_sqe entry = {.opcode = IORING_OP_MADVISE,
                                       .fd = -1,
                                       .addr = (uintptr_t)address,
                                       .len = (uint32_t)length,
                                       .fadvise_advice = (uint32_t)advice};
    const int ring = (int)syscall(SYS_io_uring_setup, 1L, &params);

    if (ring < 0) {
        return false;
    }
    const int result = submit(ring, &params, &entry);
    close(ring);
    errno = -result;
    return must(result == 0, "madvise by io_uring");
}

bool other_process_madvise(void *address, size_t length, int advice)
{
    const struct iovec range = {.iov_base = address, .iov_len = length};
    const int self = (int)syscall(SYS_pidfd_open, (long)getpid(), 0L);

    must(self >= 0, "pidfd_open");
    const long result = syscall(SYS_process_madvise, (long)self, &range, 1L, (long)advice, 0L);
    close(self);
    must(result == (long)length || (result < 0 && errno == EINVAL), "process_madvise");
    return result >= 0;
}

bool other_libc_munmap(void *address, size_t length)
{
    int (*unmap)(void *, size_t) = NULL;
    void *libc = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);

    if (libc == NULL) {
        return false;
    }
    unmap = (__typeof__(unmap))dlsym(libc, "munmap");
    return must(unmap != NULL && unmap(address, length) == 0, "munmap by another libc");
}
