/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The ring has a sparse table of registered buffers, of which an update sets or clears one entry.
 * An entry carries a tag, which the kernel posts as a completion once the pages are given back: no
 * deregistration returns before that. The ring's lock is held while it is used; a transfer is one
 * WRITE_FIXED or READ_FIXED between the registered buffer and a memory file of the ring.
 */
#include "oracle.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STAGE = 1 << 20 }; /* bytes of a ring's memory file */

/* What a completion tells of: a transfer, or the end of a registration. */
typedef struct event {
    bool done;
    int result;
} event_t;

typedef struct buffer {
    struct ring *ring;
    unsigned number; /* in the ring's table */
    event_t gone;    /* the pages were given back */
    bool used;
} buffer_t;

typedef struct ring {
    pthread_mutex_t lock;
    struct io_uring uring;
    int file;
    char *stage; /* the file's content */
    buffer_t *buffers;
    unsigned *free; /* numbers of buffers, a stack */
    unsigned free_count;
} ring_t;

struct oracle {
    regx_transport_t transport; /* first */
    ring_t ring;
    _Atomic unsigned registered;
};

_Noreturn static void give_up(const char *what, int error)
{
    fprintf(stderr, "oracle: %s: %s\n", what, strerror(error));
    abort();
}

/* Waits for that event. The ring's lock is held. */
static void await(ring_t *ring, const event_t *event)
{
    while (!event->done) {
        struct io_uring_cqe *cqe;
        const int error = io_uring_wait_cqe(&ring->uring, &cqe);

        if (error == -EINTR) {
            continue;
        }
        if (error < 0) {
            give_up("waiting for a completion", -error);
        }
        event_t *told = io_uring_cqe_get_data(cqe);
        told->result = cqe->res;
        told->done = true;
        io_uring_cqe_seen(&ring->uring, cqe);
    }
}

/* ---- the memory domain ---- */

static int set_buffer(buffer_t *buffer, void *base, size_t length)
{
    const struct iovec range = {.iov_base = base, .iov_len = length};
    const __u64 tag = base == NULL ? 0 : (__u64)(uintptr_t)&buffer->gone;

    return io_uring_register_buffers_update_tag(&buffer->ring->uring, buffer->number, &range, &tag,
                                                1);
}

static regx_status_t reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                         regx_mr_t *mr)
{
    oracle_t *oracle = (oracle_t *)transport;
    ring_t *ring = &oracle->ring;

    if (length > ORACLE_LARGEST) {
        return REGX_DENIED;
    }
    pthread_mutex_lock(&ring->lock);
    if (ring->free_count == 0) {
        pthread_mutex_unlock(&ring->lock);
        return REGX_NO_MEMORY;
    }
    buffer_t *buffer = &ring->buffers[ring->free[--ring->free_count]];
    buffer->gone = (event_t){.done = false};
    const int set = set_buffer(buffer, base, length);
    if (set != 1) {
        ring->free[ring->free_count++] = buffer->number;
    } else {
        buffer->used = true;
    }
    pthread_mutex_unlock(&ring->lock);
    if (set != 1) {
        return set == -ENOMEM ? REGX_NO_MEMORY : REGX_DENIED;
    }
    atomic_fetch_add(&oracle->registered, 1);
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = buffer};
    memcpy(mr->key.bytes, &buffer, sizeof(buffer));
    return REGX_OK;
}

static void dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    oracle_t *oracle = (oracle_t *)transport;
    buffer_t *buffer = mr->handle;
    ring_t *ring = buffer->ring;

    pthread_mutex_lock(&ring->lock);
    if (!buffer->used) {
        give_up("deregistered twice", 0);
    }
    const int cleared = set_buffer(buffer, NULL, 0);
    if (cleared != 1) {
        give_up("clearing a buffer", -cleared);
    }
    await(ring, &buffer->gone);
    buffer->used = false;
    ring->free[ring->free_count++] = buffer->number;
    pthread_mutex_unlock(&ring->lock);
    atomic_fetch_sub(&oracle->registered, 1);
    memset(mr, 0xee, sizeof(*mr)); /* nothing of it may be used after */
}

static const regx_transport_ops_t ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "oracle", .reg = reg, .dereg = dereg};

regx_transport_t *oracle_transport(oracle_t *oracle)
{
    return &oracle->transport;
}

unsigned oracle_registered(const oracle_t *oracle)
{
    return atomic_load(&oracle->registered);
}

uint64_t oracle_pinned(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kilobytes = 0;
    char line[128];

    if (file == NULL) {
        give_up("/proc/self/status", errno);
    }
    while (fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, "VmPin: %llu", &kilobytes) != 1) {
    }
    fclose(file);
    return kilobytes * 1024;
}

/* ---- opening and closing ---- */

static void ring_close(ring_t *ring)
{
    io_uring_queue_exit(&ring->uring);
    munmap(ring->stage, STAGE);
    close(ring->file);
    free(ring->buffers);
    free(ring->free);
    pthread_mutex_destroy(&ring->lock);
}

static bool ring_open(ring_t *ring, unsigned buffers, regx_error_t why)
{
    int error = io_uring_queue_init(8, &ring->uring, 0);

    if (error < 0) {
        snprintf(why, REGX_ERROR, "io_uring is refused here: %s", strerror(-error));
        return false;
    }
    error = io_uring_register_buffers_sparse(&ring->uring, buffers);
    if (error < 0) {
        snprintf(why, REGX_ERROR, "io_uring has no table of buffers here: %s", strerror(-error));
        io_uring_queue_exit(&ring->uring);
        return false;
    }
    ring->file = memfd_create("oracle", MFD_CLOEXEC);
    if (ring->file < 0 || ftruncate(ring->file, STAGE) != 0) {
        give_up("a memory file", errno);
    }
    ring->stage = mmap(NULL, STAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ring->file, 0);
    ring->buffers = calloc(buffers, sizeof(ring->buffers[0]));
    ring->free = calloc(buffers, sizeof(ring->free[0]));
    if (ring->stage == MAP_FAILED || ring->buffers == NULL || ring->free == NULL) {
        give_up("memory", ENOMEM);
    }
    for (unsigned i = 0; i < buffers; i++) {
        ring->buffers[i] = (buffer_t){.ring = ring, .number = i};
        ring->free[i] = buffers - 1 - i;
    }
    ring->free_count = buffers;
    pthread_mutex_init(&ring->lock, NULL);
    return true;
}

oracle_t *oracle_open(unsigned buffers, regx_error_t why)
{
    oracle_t *oracle = calloc(1, sizeof(*oracle));

    if (oracle == NULL) {
        give_up("memory", ENOMEM);
    }
    oracle->transport.ops = &ops;
    oracle->transport.registers = true;
    if (!ring_open(&oracle->ring, buffers, why)) {
        free(oracle);
        return NULL;
    }
    return oracle;
}

void oracle_close(oracle_t *oracle)
{
    if (oracle_registered(oracle) != 0) {
        fprintf(stderr, "oracle: %u registrations are left\n", oracle_registered(oracle));
        abort();
    }
    ring_close(&oracle->ring);
    free(oracle);
}

/* ---- transfers ---- */

static buffer_t *buffer_of(const regx_mr_t *mr, const void *address, size_t length)
{
    const uintptr_t base = (uintptr_t)mr->base;
    const uintptr_t start = (uintptr_t)address;

    if (start < base || start - base > mr->length || length > mr->length - (start - base)) {
        give_up("a transfer outside its registration", 0);
    }
    return mr->handle;
}

static struct io_uring_sqe *request(ring_t *ring, event_t *event)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

    if (sqe == NULL) {
        give_up("the submission queue is full", 0);
    }
    event->done = false;
    return sqe;
}

/* Between the start of the ring's file and the registered buffer. The ring's lock is held. */
static void move(buffer_t *buffer, const void *address, size_t length, bool send)
{
    ring_t *ring = buffer->ring;
    event_t event;
    struct io_uring_sqe *sqe = request(ring, &event);

    if (send) {
        io_uring_prep_write_fixed(sqe, ring->file, address, (unsigned)length, 0,
                                  (int)buffer->number);
    } else {
        /* The device writes there; const is this function's for both directions. */
        io_uring_prep_read_fixed(sqe, ring->file, (void *)(uintptr_t)address, (unsigned)length, 0,
                                 (int)buffer->number);
    }
    io_uring_sqe_set_data(sqe, &event);
    if (io_uring_submit_and_wait(&ring->uring, 1) < 0) {
        give_up("submitting a transfer", errno);
    }
    await(ring, &event);
    if (event.result != (int)length) {
        give_up(send ? "sending" : "receiving", event.result < 0 ? -event.result : EIO);
    }
}

void oracle_send(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length, void *to)
{
    buffer_t *buffer = buffer_of(mr, from, length);

    (void)oracle;
    pthread_mutex_lock(&buffer->ring->lock);
    for (size_t at = 0; at < length; at += STAGE) {
        const size_t part = length - at < STAGE ? length - at : STAGE;

        move(buffer, (const char *)from + at, part, true);
        memcpy((char *)to + at, buffer->ring->stage, part);
    }
    pthread_mutex_unlock(&buffer->ring->lock);
}

void oracle_receive(oracle_t *oracle, const regx_mr_t *mr, void *to, size_t length,
                    const void *data)
{
    buffer_t *buffer = buffer_of(mr, to, length);

    (void)oracle;
    pthread_mutex_lock(&buffer->ring->lock);
    for (size_t at = 0; at < length; at += STAGE) {
        const size_t part = length - at < STAGE ? length - at : STAGE;

        memcpy(buffer->ring->stage, (const char *)data + at, part);
        move(buffer, (char *)to + at, part, false);
    }
    pthread_mutex_unlock(&buffer->ring->lock);
}
