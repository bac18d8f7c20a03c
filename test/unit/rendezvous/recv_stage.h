/* SPDX-License-Identifier: BSD-3-Clause
 *
 * For the tests of the receive: the test plays its senders. It keeps its own map of what was
 * granted, and so finds a byte that is granted twice, outside the message, in a slot of someone
 * else's, or never; it sends what a send may send, late and in any order.
 */
#ifndef REGX_TEST_RECV_STAGE_H
#define REGX_TEST_RECV_STAGE_H

#include "fake.h"

#include "rendezvous/checksum.h"

enum { GRANTS = 160, TRANSFERS = 120, PAGE = 4096, SENDERS = 3 };

typedef struct grant { /* told, and not yet answered */
    bool chunk;
    uint64_t offset, length;
    uint32_t slot;
    uint64_t start; /* in the region that the key names */
    regx_key_t key;
} grant_t;

typedef struct transfer { /* one transfer */
    fake_t *sender, *receiver;
    regx_rndv_recv_t *recv; /* NULL: closed */
    guarded_t received;
    uint8_t *map; /* of each byte: 0 not granted, 1 granted, 2 written */
    uint64_t written;
    uint64_t stream;
    regx_handle_t to, from;
    bool started;
    grant_t grants[GRANTS];
    unsigned count;
    unsigned slot_grants, chunk_grants; /* ever */
} transfer_t;

typedef struct stage {
    fake_config_t config;
    fake_t *receiver;
    fake_t *senders[SENDERS]; /* processes 1, 2 and 3, played by the test */
    transfer_t *transfers[TRANSFERS];
    unsigned again; /* the number of the receiver's send that finds no room, 0: none */
    unsigned again_percent;
    unsigned refused; /* the number of the registration that is refused, 0: none */
    uint64_t seed;
} stage_t;

stage_t *stage_open(fake_config_t config);

transfer_t *transfer_open(stage_t *stage, unsigned index, unsigned sender, size_t length);

/* What the sender tells about a grant. */
regx_control_t notice_of(const transfer_t *transfer, const grant_t *grant,
                         regx_control_type_t type);

void tell(stage_t *stage, const transfer_t *transfer, const regx_control_t *control);

void start(stage_t *stage, transfer_t *transfer);

/* A grant was answered: the bytes are written, or to be granted again. */
void drop_grant(transfer_t *transfer, unsigned index, bool written);

/* Writes the bytes of a grant, into its slot or its chunk, and says nothing yet. */
void write_grant(transfer_t *transfer, const grant_t *grant);

/* Answers one grant as it should be. */
void serve(stage_t *stage, transfer_t *transfer, unsigned index);

void refuse(stage_t *stage, transfer_t *transfer, unsigned index, bool permanent);

/* Takes in what the receive has sent. */
void hear_all(stage_t *stage);

/* Serves whatever is granted to that transfer until all is written; whether it came to that. */
bool finish(stage_t *stage, transfer_t *transfer);

void assert_arrived(const transfer_t *transfer);

void transfer_close(stage_t *stage, transfer_t *transfer);

/* Serves the rest, checks every byte, closes. */
void transfer_finish(stage_t *stage, transfer_t *transfer);

uint64_t malformed(const stage_t *stage);

void stage_close(stage_t *stage);

extern const fake_config_t bounce;
extern const fake_config_t pipeline;
extern const fake_config_t direct;

extern const fake_config_t verified_bounce;
extern const fake_config_t verified_pipeline;

#endif
