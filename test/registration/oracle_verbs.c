/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The oracle on an RDMA device: two of the product's verbs transports in this process, the
 * application's and a peer's. What is sent is what the device writes from the application's region
 * into the peer's memory; what is received it writes from there into the region.
 */
#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../stamp.h"
#include "transport/verbs/verbs.h"

enum { STAGE = 256 << 10, POOL = 64 << 10 };

extern const regx_transport_ops_t regx_transport_ops; /* verbs/ */

typedef struct side {
    regx_transport_t *transport;
    regx_conn_t *conn; /* to the other */
    regx_counters_t counters;
    uint64_t notices; /* that arrived */
} side_t;

struct oracle {
    side_t own, peer;
    uint8_t *stage; /* the peer's memory */
    regx_mr_t stage_mr;
    char broken[160]; /* why the connection is no more */
};

/* One write that is under way. */
typedef struct event {
    bool done;
    regx_status_t status;
} event_t;

static void must(bool so, const char *what, const char *why)
{
    if (!so) {
        fprintf(stderr, "oracle: %s: %s\n", what, why);
        abort();
    }
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    oracle_t *oracle = context;
    side_t *side = sender == (uintptr_t)&oracle->own ? &oracle->peer : &oracle->own;

    (void)tag, (void)data, (void)length;
    side->notices++;
}

static void broken(void *context, uint64_t peer, bool ended, const char *what)
{
    oracle_t *oracle = context;

    (void)peer;
    snprintf(oracle->broken, sizeof(oracle->broken), "%s", what);
}

static void put_done(regx_put_t *put, regx_status_t status)
{
    *(event_t *)put->context = (event_t){.done = true, .status = status};
}

static void progress(const oracle_t *oracle)
{
    if (regx_transport_ops.progress(oracle->own.transport) +
            regx_transport_ops.progress(oracle->peer.transport) ==
        0) {
        sched_yield(); /* Soft-RoCE works in threads of the kernel */
    }
}

/* One write from one side's registered memory to the other's. */
static regx_status_t put(oracle_t *oracle, side_t *from, const side_t *to, const regx_mr_t *region,
                         const void *local, const regx_key_t *key, uint64_t offset, size_t length)
{
    const uint64_t notices = to->notices;
    event_t event = {0};
    regx_put_t write = {.local = local,
                        .length = length,
                        .region = region,
                        .target = REGX_TARGET_REGION,
                        .offset = offset,
                        .key = *key,
                        .done = put_done,
                        .context = &event};
    regx_status_t status;

    while ((status = regx_transport_ops.put(from->conn, &write)) == REGX_AGAIN) { /* it connects */
        progress(oracle);
    }
    must(status == REGX_PENDING, "a write is not accepted", oracle->broken);
    until(event.done && (event.status != REGX_OK || to->notices != notices), progress(oracle));
    return event.status;
}

/* ---- opening and closing ---- */

static bool open_side(oracle_t *oracle, side_t *side, regx_error_t why)
{
    regx_device_name_t ports[REGX_DEVICES_MAX];
    const regx_transport_config_t config = {
        .self = (uintptr_t)side,
        .pool_size = POOL,
        .pool_min = POOL,
        .device = ports[0],
        .counters = &side->counters,
        .events = {.context = oracle, .deliver = deliver, .broken = broken}};
    size_t count, near;

    if (regx_transport_ops.devices(&config, why, ports, &count, &near) != REGX_OK ||
        regx_transport_ops.open(&config, why, &side->transport) != REGX_OK) {
        return false;
    }
    /* Both ends are this process: memory that is gone is known to be so after two seconds, not
     * after the eight that a network may take. */
    regx_verbs_of(side->transport)->can.ack_timeout = 16;
    return true;
}

static void connect_side(side_t *side, const side_t *to)
{
    uint8_t address[REGX_ADDRESS_MAX];
    const size_t length = regx_transport_ops.address(to->transport, address);

    must(regx_transport_ops.connect(side->transport, (uintptr_t)to, address, length, &side->conn) ==
             REGX_OK,
         "connecting", "refused");
}

oracle_t *oracle_open(regx_error_t why)
{
    /* Not from malloc, whose doings may be what is tested. */
    uint8_t *memory = mmap(NULL, STAGE + sizeof(oracle_t), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    oracle_t *oracle = (oracle_t *)(void *)(memory + STAGE);

    must(memory != MAP_FAILED, "opening", "no memory");
    oracle->stage = memory;
    if (!open_side(oracle, &oracle->own, why)) {
        munmap(memory, STAGE + sizeof(oracle_t));
        return NULL;
    }
    must(open_side(oracle, &oracle->peer, why), "opening a second time", why);
    connect_side(&oracle->own, &oracle->peer);
    connect_side(&oracle->peer, &oracle->own);
    must(regx_transport_ops.reg(oracle->peer.transport, oracle->stage, STAGE,
                                REGX_ACCESS_REMOTE_WRITE | REGX_ACCESS_REMOTE_READ,
                                &oracle->stage_mr) == REGX_OK,
         "registering the peer's memory", "refused");
    return oracle;
}

void oracle_close(oracle_t *oracle)
{
    regx_transport_ops.dereg(oracle->peer.transport, &oracle->stage_mr);
    regx_transport_ops.disconnect(oracle->own.conn);
    regx_transport_ops.disconnect(oracle->peer.conn);
    regx_transport_ops.close(oracle->own.transport);
    regx_transport_ops.close(oracle->peer.transport);
    munmap(oracle->stage, STAGE + sizeof(oracle_t));
}

regx_transport_t *oracle_transport(oracle_t *oracle)
{
    return oracle->own.transport;
}

/* ---- transfers ---- */

/* Where in its registration that is. */
static uint64_t offset_of(const regx_mr_t *mr, const void *address, size_t length)
{
    const uintptr_t base = (uintptr_t)mr->base;
    const uintptr_t start = (uintptr_t)address;

    must(start >= base && start - base <= mr->length && length <= mr->length - (start - base),
         "a transfer", "outside its registration");
    return start - base;
}

void oracle_send(oracle_t *oracle, const regx_mr_t *mr, const void *from, size_t length, void *to)
{
    offset_of(mr, from, length);
    for (size_t at = 0; at < length; at += STAGE) {
        const size_t part = length - at < STAGE ? length - at : STAGE;

        must(put(oracle, &oracle->own, &oracle->peer, mr, (const char *)from + at,
                 &oracle->stage_mr.key, 0, part) == REGX_OK,
             "sending", oracle->broken);
        memcpy((char *)to + at, oracle->stage, part);
    }
}

void oracle_receive(oracle_t *oracle, const regx_mr_t *mr, void *to, size_t length,
                    const void *data)
{
    const uint64_t offset = offset_of(mr, to, length);

    for (size_t at = 0; at < length; at += STAGE) {
        const size_t part = length - at < STAGE ? length - at : STAGE;

        memcpy(oracle->stage, (const char *)data + at, part);
        must(put(oracle, &oracle->peer, &oracle->own, &oracle->stage_mr, oracle->stage, &mr->key,
                 offset + at, part) == REGX_OK,
             "receiving", oracle->broken);
    }
}
