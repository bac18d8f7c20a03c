/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport between fake processes (fake.h): it delivers when the test says so, answers what
 * the test's rule says, and checks every put and get against what was registered and of what size
 * the pool is.
 */
#ifndef REGX_TEST_FAKE_WIRE_H
#define REGX_TEST_FAKE_WIRE_H

#include "guarded.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "rendezvous/rendezvous.h"

/* ---- what there is ---- */

enum { FAKE_PROCESSES = 4, FAKE_WINDOWS = 2048, FAKE_FRAME = 256, FAKE_GETS = 256 };

typedef enum fake_call { FAKE_SEND, FAKE_PUT, FAKE_GET, FAKE_REG, FAKE_CALLS } fake_call_t;

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

/* Whether the wire tells of puts by immediate data, and how often it did. */
extern bool fake_immediates;
extern _Atomic unsigned fake_immediate_count;

/* Whether frames overtake those whose put is pending, as on a node. */
extern bool fake_overtaking;

typedef struct fake_conn {
    regx_conn_t conn; /* first */
    fake_t *from, *to;
    fake_frame_t *head, **tail;
    regx_get_t *gets[FAKE_GETS]; /* pending, oldest first */
    unsigned get_count;
} fake_conn_t;

typedef struct fake_window { /* registered memory; its number and generation are its key */
    char *base;
    size_t length;
    unsigned access;
    uint32_t generation;
    bool open;
} fake_window_t;

struct fake {
    regx_transport_t transport; /* first */
    guarded_t pool_memory;
    uint64_t id;
    regx_counters_t counters;
    regx_pool_t pool;
    regx_registry_t registry;
    regx_rndv_t *rndv; /* NULL: the test plays this process */
    regx_peer_t peers[FAKE_PROCESSES];
    fake_conn_t conns[FAKE_PROCESSES]; /* to the process of that number */
    fake_window_t windows[FAKE_WINDOWS];
    unsigned open_windows;
    size_t outer;   /* bytes by which regions are larger than asked for, before and behind */
    size_t longest; /* no more can be registered at once; 0: any length */
    unsigned calls[FAKE_CALLS];
    unsigned assisted; /* of the gets: those that asked for it */
    /* Gets may read into what is registered for a peer's puts, as those of a whole message do where
     * the path is one that writes. All others need what is registered for gets. */
    bool gets_into_targets;
    bool stages; /* what is exposed, too */
    unsigned staged, unstaged;
    /* What a call is answered: REGX_OK to do it, REGX_PENDING (put; any get) to do it later. */
    regx_status_t (*rule)(fake_t *fake, fake_call_t call, const regx_put_t *put);
    /* Frames that are not the engine's, or all of them where there is no engine. */
    void (*deliver)(fake_t *fake, uint64_t sender, uint8_t tag, const void *data, size_t length);
    /* A wire that does not keep what it carries: called on what a put or get of this process wrote:
     * `length` bytes from `from` on. */
    void (*corrupt)(fake_t *fake, const void *from, size_t length, char *written);
    void *context;       /* the test's, for all of these */
    unsigned mismatches; /* that the engine told, … */
    uint64_t mismatch_peer;
    char mismatch[256]; /* … and the last of them */
};

/* One lock for all: tests may use threads. Nothing is called while it is held, but the rule. */
extern pthread_mutex_t fake_lock;

/* ---- the transport ---- */

void fake_append(fake_conn_t *conn, uint8_t tag, const void *data, size_t length,
                 uint32_t immediate, regx_put_t *pending);

/* Where the put writes, or NULL if the peer has not published that. */
char *fake_target(const fake_conn_t *conn, const regx_put_t *put);

void fake_write(const fake_conn_t *conn, const regx_put_t *put, char *to);

/* Does a get. false: the peer has not published that. */
bool fake_read(const fake_conn_t *conn, const regx_get_t *get);

regx_status_t fake_reg(regx_transport_t *transport, void *base, size_t length, unsigned access,
                       regx_mr_t *mr);

void fake_dereg(regx_transport_t *transport, regx_mr_t *mr);

extern const regx_transport_ops_t fake_ops;

#endif
