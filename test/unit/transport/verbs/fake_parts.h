/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the files of the devices in memory share: fake_device.c has ports, devices, events and
 * registered memory, fake_queues.c the queues, fake_fabric.c what goes by them.
 */
#pragma once

#include <pthread.h>
#include <sys/stat.h>

#include "fake_device.h"

/* Callbacks, and what stands in for others' functions, get what their callers have: few use all of it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { FAKE_EVENTS = 64 };

typedef struct fake_context {
    struct verbs_context verbs;
    fake_port_t *port;
    struct ibv_async_event events[FAKE_EVENTS];
    int event_count;
    struct stat control, told; /* what cmd_fd and async_fd are */
} fake_context_t;

extern pthread_mutex_t fake_lock; /* of queues, events and registered memory */

/* Calls of a context that post and poll. */
void fake_queues_serve(struct ibv_context_ops *ops);

/* The kernel is asked by cmd_fd. false: there is none, as errno says. */
bool fake_ask(struct ibv_context *context);
fake_context_t *fake_context_of(struct ibv_context *context);
/* A number that nothing has yet: of a queue pair, or a key. */
uint32_t fake_next_number(void);
/* The lock is held by who calls the following. */
/* Whether that memory is registered under the key, and for that. */
bool fake_is_registered(uint32_t key, uint64_t address, uint64_t length, int access);
/* An event is to be reported of a queue pair or a shared receive queue. */
void fake_tell(struct ibv_context *context, const struct ibv_async_event *event);
/* Forgets what is to be reported of a queue pair that ends. */
void fake_untell(const struct ibv_qp *qp);
