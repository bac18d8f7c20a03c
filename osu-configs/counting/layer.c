/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A layer between a process and libibverbs (LD_PRELOAD), which counts what is asked of devices:
 * requests, the calls that post them (each rings a doorbell), registrations. At its end a process
 * that opened a device appends a line of JSON to the file that COUNTS_FILE names.
 *
 * Posting goes by a table in each opened device, which is changed here. What a library does past
 * libibverbs, as drivers of some devices allow, is not seen.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_reg_mr

#define LAYER __attribute__((visibility("default")))
#define DEVICES_MAX 64

enum count { SENDS, SEND_CALLS, RECEIVES, RECEIVE_CALLS, REGISTRATIONS, COUNTS };

static const char *const names[COUNTS] = {"sends", "send_calls", "receives", "receive_calls",
                                          "registrations"};
static atomic_long counts[COUNTS];

static struct device {
    struct ibv_context *context;
    struct ibv_context_ops ops; /* its own */
} devices[DEVICES_MAX];
static atomic_int device_count;

static const struct ibv_context_ops *own(const struct ibv_context *context)
{
    for (int i = device_count - 1; i >= 0; i--) { /* an address may have been used before */
        if (devices[i].context == context) {
            return &devices[i].ops;
        }
    }
    abort(); /* it calls us, so it is among them */
}

static void *next(const char *name)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    void *function = library != NULL ? dlsym(library, name) : NULL;

    if (function == NULL) {
        fprintf(stderr, "counts: libibverbs has no %s\n", name);
        abort();
    }
    return function;
}

#define NEXT(name) ((__typeof__(name) *)next(#name))

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *requests, struct ibv_send_wr **refused)
{
    counts[SEND_CALLS]++;
    for (const struct ibv_send_wr *request = requests; request != NULL; request = request->next) {
        counts[SENDS]++;
    }
    return own(qp->context)->post_send(qp, requests, refused);
}

static void count_receives(const struct ibv_recv_wr *requests)
{
    counts[RECEIVE_CALLS]++;
    for (; requests != NULL; requests = requests->next) {
        counts[RECEIVES]++;
    }
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *requests, struct ibv_recv_wr **refused)
{
    count_receives(requests);
    return own(qp->context)->post_recv(qp, requests, refused);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *requests,
                         struct ibv_recv_wr **refused)
{
    count_receives(requests);
    return own(srq->context)->post_srq_recv(srq, requests, refused);
}

LAYER struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *context = NEXT(ibv_open_device)(device);

    if (context != NULL) {
        if (device_count == DEVICES_MAX) {
            fprintf(stderr, "counts: more than %d devices are opened\n", DEVICES_MAX);
            abort();
        }
        devices[device_count] = (struct device){context, context->ops};
        device_count++;
        context->ops.post_send = post_send;
        context->ops.post_recv = post_recv;
        context->ops.post_srq_recv = post_srq_recv;
    }
    return context;
}

/* One of these functions may call the other. */
static _Thread_local bool registering;

LAYER struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t length, int access)
{
    counts[REGISTRATIONS] += !registering;
    registering = true;
    struct ibv_mr *mr = NEXT(ibv_reg_mr)(pd, base, length, access);
    registering = false;
    return mr;
}

LAYER struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                      unsigned access)
{
    counts[REGISTRATIONS] += !registering;
    return NEXT(ibv_reg_mr_iova2)(pd, base, length, iova, access);
}

static __attribute__((destructor)) void report(void)
{
    const char *file = getenv("COUNTS_FILE");
    char line[256] = "{";

    if (file == NULL || device_count == 0) {
        return;
    }
    for (int i = 0; i < COUNTS; i++) {
        const size_t length = strlen(line);

        snprintf(line + length, sizeof(line) - length, "%s\"%s\": %ld", i == 0 ? "" : ", ",
                 names[i], counts[i]);
    }
    const size_t length = strlen(line);
    snprintf(line + length, sizeof(line) - length, "}\n");
    const int out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (out < 0 || write(out, line, strlen(line)) != (ssize_t)strlen(line)) {
        perror(file);
    }
    close(out);
}
