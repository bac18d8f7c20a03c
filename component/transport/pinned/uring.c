/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/pinned/uring.h"

#include <sched.h>
#include <string.h>
#include <sys/uio.h>

#include "base/memlock.h"

#if REGX_HAVE_PINNED

#define TRIES 1000u /* to have the kernel take a request: it may lack memory for a moment */

/* Maps a part of the ring's memory, where no child has it: it would submit requests of its own. */
static void *map(int fd, size_t size, off_t what)
{
    void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

    if (base == MAP_FAILED) {
        return NULL;
    }
    madvise(base, size, MADV_DONTFORK);
    return base;
}

/* With one request at a time the order of requests never changes: it is the zero of new memory. */
static bool map_rings(regx_uring_t *uring, const struct io_uring_params *params)
{
    const size_t submissions = params->sq_off.array + sizeof(uint32_t);
    const size_t completions =
        params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);

    uring->rings_size = regx_max(submissions, completions);
    uring->rings = map(uring->file.fd, uring->rings_size, IORING_OFF_SQ_RING);
    uring->request = map(uring->file.fd, sizeof(*uring->request), IORING_OFF_SQES);
    if (uring->rings == NULL || uring->request == NULL) {
        return false;
    }
    char *base = uring->rings;
    uring->submitted = (_Atomic uint32_t *)(void *)(base + params->sq_off.tail);
    uring->results_head = (_Atomic uint32_t *)(void *)(base + params->cq_off.head);
    uring->results_tail = (_Atomic uint32_t *)(void *)(base + params->cq_off.tail);
    uring->results = (struct io_uring_cqe *)(void *)(base + params->cq_off.cqes);
    uring->result_mask = params->cq_entries - 1;
    return true;
}

/* The program may have closed the ring, and have another file under its number. */
static int call_register(const regx_uring_t *uring, unsigned what, const void *argument,
                         size_t size)
{
    if (!regx_file_is_ours(&uring->file)) {
        return -EBADF;
    }
    return (int)regx_raw(SYS_io_uring_register, uring->file.fd, (long)what,
                         (long)(uintptr_t)argument, (long)size, 0);
}

static const char *why_refused(int error)
{
    if (error == -EPERM) {
        return "not permitted (kernel.io_uring_disabled, or a container's filter)";
    }
    if (error == -ENOSYS) {
        return "the kernel or a container's filter has none";
    }
    return error == -ENOMEM && regx_memlock_limit() != REGX_MEMLOCK_NONE
               ? "over the limit of locked memory (ulimit -l); " REGX_MEMLOCK_REMEDY
               : strerror(-error);
}

regx_status_t regx_uring_open(regx_uring_t *uring, uint32_t slots, regx_error_t error)
{
    struct io_uring_params params = {0};
    const struct io_uring_rsrc_register table = {.nr = slots, .flags = IORING_RSRC_REGISTER_SPARSE};
    const int fd = (int)regx_raw(SYS_io_uring_setup, 1, (long)(uintptr_t)&params, 0, 0, 0);

    *uring = (regx_uring_t){.file = regx_file_of(regx_descriptor_move(fd))};
    if (uring->file.fd < 0) {
        return regx_refuse(error, REGX_UNREACHABLE, "no io_uring for this process: %s",
                           why_refused(fd < 0 ? fd : -errno));
    }
    const int status = call_register(uring, IORING_REGISTER_BUFFERS2, &table, sizeof(table));
    if (status < 0) {
        snprintf(error, REGX_ERROR,
                 "io_uring has no table of %u buffers here: %s; Linux 5.19 or later has", slots,
                 strerror(-status));
    } else if (!map_rings(uring, &params)) {
        snprintf(error, REGX_ERROR, "io_uring's memory cannot be mapped: %s", strerror(errno));
    } else {
        return REGX_OK;
    }
    regx_uring_close(uring);
    return REGX_UNREACHABLE;
}

void regx_uring_close(regx_uring_t *uring)
{
    if (uring->rings != NULL) {
        munmap(uring->rings, uring->rings_size);
    }
    if (uring->request != NULL) {
        munmap(uring->request, sizeof(*uring->request));
    }
    regx_file_close(&uring->file);
}

int regx_uring_set(const regx_uring_t *uring, uint32_t slot, const void *base, size_t length)
{
    const struct iovec range = {.iov_base = (void *)(uintptr_t)base, .iov_len = length};
    const struct io_uring_rsrc_update2 update = {
        .offset = slot, .data = (uintptr_t)&range, .nr = 1};
    const int updated =
        call_register(uring, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof(update));

    if (updated == 1) {
        return 0;
    }
    return updated < 0 ? updated : -EAGAIN;
}

/* Has the kernel take so many requests, and wait for a result. Negative: it was not asked, or a
 * signal came. The program may have closed the ring, and have another under its number, for whose
 * results it would be waited without end. */
static long enter(const regx_uring_t *uring, unsigned requests)
{
    return regx_file_is_ours(&uring->file) ? regx_raw(SYS_io_uring_enter, uring->file.fd, requests,
                                                      1, IORING_ENTER_GETEVENTS, 0)
                                           : -EBADF;
}

bool regx_uring_copy(const regx_uring_t *uring, bool to_file, uint32_t slot, uint64_t address,
                     uint32_t length, int file, uint64_t offset)
{
    const uint32_t tail = atomic_load_explicit(uring->submitted, memory_order_relaxed);
    long begun = 0;

    *uring->request =
        (struct io_uring_sqe){.opcode = to_file ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
                              .fd = file,
                              .off = offset,
                              .addr = address,
                              .len = length,
                              .buf_index = (uint16_t)slot};
    /* The kernel reads the request once it sees the tail. */
    atomic_store_explicit(uring->submitted, tail + 1, memory_order_release);
    for (unsigned i = 0; begun != 1 && begun != -EBADF && i < TRIES; i++) {
        begun = enter(uring, 1);
    }
    if (begun != 1) { /* the kernel has not taken it */
        atomic_store_explicit(uring->submitted, tail, memory_order_release);
        return false;
    }
    /* The request ends even if the ring's descriptor is closed: what is mapped keeps the ring. The
     * kernel has a thread of its own for what does not go at once; so this one sleeps until it is
     * done, rather than to take its processor. */
    const uint32_t head = atomic_load_explicit(uring->results_head, memory_order_relaxed);
    while (head == atomic_load_explicit(uring->results_tail, memory_order_acquire)) {
        if (enter(uring, 0) < 0) {
            sched_yield();
        }
    }
    const int32_t result = uring->results[head & uring->result_mask].res;
    /* Given back only once it was read. */
    atomic_store_explicit(uring->results_head, head + 1, memory_order_release);
    return result == (int32_t)length;
}

#endif
