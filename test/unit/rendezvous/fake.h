/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Several processes with an engine each, whose threads use them at the same time (test_threads.c).
 * The wire between them delivers, and ends puts and gets, when a thread says so. The simulator
 * (sim.h) has one thread, and checks more.
 */
#ifndef REGX_TEST_FAKE_H
#define REGX_TEST_FAKE_H

#include "../unit.h"

#include <pthread.h>

#include "rendezvous/rendezvous.h"

enum { FAKE_PROCESSES = 3, FAKE_FRAME = 256, FAKE_GETS = 256 };

typedef enum fake_call { FAKE_SEND, FAKE_PUT, FAKE_GET, FAKE_REG } fake_call_t;

typedef struct fake fake_t;

/* A frame under way, or a put whose notice is that frame and which is not yet done. */
typedef struct fake_frame {
    struct fake_frame *next;
    regx_put_t *pending; /* NULL: can be delivered */
    uint8_t tag;
    uint32_t immediate; /* not 0: it is that alone */
    size_t length;
    uint8_t data[FAKE_FRAME];
} fake_frame_t;

typedef struct fake_conn {
    regx_conn_t conn; /* first */
    fake_t *from, *to;
    fake_frame_t *head, **tail;
    regx_get_t *gets[FAKE_GETS]; /* pending, oldest first */
    unsigned get_count;
} fake_conn_t;

typedef struct fake_window { /* registered memory; its address is its key */
    struct fake_window *next;
    char *base;
    size_t length;
    unsigned access;
    bool open;
} fake_window_t;

struct fake {
    regx_transport_t transport; /* first */
    uint64_t id;
    regx_counters_t counters;
    regx_pool_t pool;
    regx_registry_t registry;
    regx_rndv_t *rndv;
    regx_peer_t peers[FAKE_PROCESSES];
    fake_conn_t conns[FAKE_PROCESSES]; /* to the process of that number */
    fake_window_t *windows;            /* all that ever were */
    unsigned open_windows;
    /* What a call is answered: REGX_OK to do it, REGX_PENDING (put; any get) to do it later. */
    regx_status_t (*rule)(fake_t *fake, fake_call_t call);
    /* Frames that are not the engine's. */
    void (*deliver)(fake_t *fake, uint64_t sender, uint8_t tag, const void *data, size_t length);
    void *context; /* the test's, for both */
};

/* Opens a process with that engine. cache_bytes: that are kept; 0: registered per use. */
fake_t *fake_open(uint64_t id, uint32_t slots, const regx_rndv_config_t *config,
                  uint64_t cache_bytes);
void fake_connect(fake_t *from, fake_t *to);
/* Asserts that nothing is left, in any room. */
void fake_close(fake_t *fake);

/* Any thread. Tells the caches, if there are any, that the memory has changed. */
void fake_changed(const void *start, size_t length);
void fake_send(fake_t *from, fake_t *to, uint8_t tag, const void *data, size_t length);

/* By the thread that makes a process's progress. false: there is nothing to be done. */
/* Ends the `which`-th put that is pending towards `to`. */
bool fake_complete(fake_t *fake, unsigned to, unsigned which);
/* Ends the `which`-th get that is pending from `to`: does it, or fails with `status`. */
bool fake_got(fake_t *fake, unsigned to, unsigned which, regx_status_t status);
/* Delivers the next frame from that process, unless it is of a put that is pending. */
bool fake_receive(fake_t *fake, fake_t *from);

#endif
