/* SPDX-License-Identifier: BSD-3-Clause
 *
 * verbs: a process on a device in memory, and a peer with queue pairs of its own on the same
 * fabric, which publishes an address, sends datagrams of connection management, and frames by the
 * reliable queue pair. The input is a sequence of steps.
 */
#include "fuzz.h"

#include <endian.h>
#include <infiniband/verbs.h>

#include "../unit/transport/verbs/fake_device.h"
#include "base/util.h"
#include "transport/verbs/ep.h"
#include "transport/verbs/verbs.h"

extern const regx_transport_ops_t regx_transport_ops;

enum { SELF = 1, PEER = 7, POOL = 8192, QKEY = 0x1234 };

typedef enum step {
    STEP_PROGRESS,
    STEP_DATAGRAM,
    STEP_ATTACH, /* the peer's reliable queue pair, to ours */
    STEP_FRAME,
    STEP_WRITTEN,
    STEP_CONNECT,
    STEP_SEND,
    STEP_DISCONNECT,
    STEPS
} step_t;

typedef struct peer { /* raw verbs */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq; /* without receives: what we send waits */
    struct ibv_qp *ud, *rc;
    struct ibv_ah *route;
    struct ibv_mr *mr;
    uint8_t memory[REGX_VERBS_ZCOPY_MAX];
} peer_t;

typedef struct process {
    regx_counters_t counters;
    regx_transport_t *transport;
    regx_conn_t *conn;
    unsigned delivered, accepted;
} process_t;

static process_t process;
static peer_t peer;

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    static uint8_t copy[REGX_VERBS_ZCOPY_MAX];

    (void)context, (void)sender, (void)tag;
    fuzz_check(length <= sizeof(copy));
    memcpy(copy, data, length); /* the sanitizer looks at it */
    process.delivered++;
}

static void immediate(void *context, uint64_t sender, uint32_t value)
{
    (void)context, (void)sender;
    fuzz_check(value <= REGX_IMMEDIATE_MAX);
    process.delivered++;
}

static void broken(void *context, uint64_t id, const char *what)
{
    (void)context, (void)id, (void)what;
}

static regx_verbs_t *verbs(void)
{
    return regx_verbs_of(process.transport);
}

/* ---- the peer ---- */

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
    struct ibv_qp_init_attr attr = {.send_cq = peer.cq,
                                    .recv_cq = peer.cq,
                                    .srq = type == IBV_QPT_RC ? peer.srq : NULL,
                                    .cap = {.max_send_wr = 64, .max_send_sge = 1},
                                    .qp_type = type};
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTS, .qkey = QKEY};
    struct ibv_qp *qp = ibv_create_qp(peer.pd, &attr);

    fuzz_check(qp != NULL && ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_QKEY) == 0);
    return qp;
}

static void open_peer(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_ah_attr attr = {.is_global = 1};
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 16, .max_sge = 1}};

    peer.context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    peer.pd = ibv_alloc_pd(peer.context);
    peer.cq = ibv_create_cq(peer.context, 4096, NULL, NULL, 0);
    peer.srq = ibv_create_srq(peer.pd, &shared);
    peer.mr = ibv_reg_mr(peer.pd, peer.memory, sizeof(peer.memory), IBV_ACCESS_LOCAL_WRITE);
    peer.ud = make_qp(IBV_QPT_UD);
    peer.rc = make_qp(IBV_QPT_RC);
    memcpy(attr.grh.dgid.raw, verbs()->address.gid, REGX_VERBS_GID_SIZE);
    peer.route = ibv_create_ah(peer.pd, &attr);
}

static void close_peer(void)
{
    ibv_destroy_ah(peer.route);
    ibv_destroy_qp(peer.ud);
    ibv_destroy_qp(peer.rc);
    ibv_destroy_srq(peer.srq);
    ibv_dereg_mr(peer.mr);
    ibv_destroy_cq(peer.cq);
    ibv_dealloc_pd(peer.pd);
    ibv_close_device(peer.context);
}

static regx_verbs_address_t peers_address(void)
{
    regx_verbs_address_t address = verbs()->address;

    address.qpn = peer.ud->qp_num;
    address.qkey = QKEY;
    return address;
}

/* The device does what was posted. */
static void run_device(void)
{
    struct ibv_wc wc[16];

    while (ibv_poll_cq(peer.cq, 16, wc) > 0) {
    }
}

/* Over bytes that are well formed. */
static void scribble(fuzz_input_t *input, uint8_t *to, size_t size)
{
    const size_t at = fuzz_number(input, 1) % size;
    size_t length = regx_min((size_t)fuzz_number(input, 1), size - at);
    uint8_t *bytes = fuzz_take(input, &length);

    memcpy(to + at, bytes, length);
    free(bytes);
}

/* As the peer would say it; `known`: it knows our queue pair. */
static regx_cm_message_t request(fuzz_input_t *input)
{
    const uint64_t bits = fuzz_number(input, 1);
    const uint64_t from = (bits & 4) != 0 ? PEER + 1 : PEER;
    const regx_ep_t *ep = regx_ep_find(verbs(), from);

    return (regx_cm_message_t){.version = REGX_VERBS_VERSION,
                               .kind = (uint8_t)(1 + bits % 3),
                               .reads = 4,
                               .qpn = peer.rc->qp_num,
                               .from = from,
                               .to = SELF,
                               .pool = 4096,
                               .pool_size = POOL,
                               .epoch = 1 + (bits >> 4),
                               .known = (bits & 8) != 0 && ep != NULL ? ep->epoch : 0,
                               .address = peers_address()};
}

static void send_datagram(fuzz_input_t *input)
{
    const regx_cm_message_t message = request(input);
    const size_t cut = fuzz_number(input, 1);
    struct ibv_sge segment = {.addr = (uintptr_t)peer.memory,
                              .length = REGX_CM_MESSAGE_SIZE - (uint32_t)(cut % 8),
                              .lkey = peer.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &segment,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .wr.ud = {.ah = peer.route,
                                       .remote_qpn = verbs()->address.qpn,
                                       .remote_qkey = verbs()->address.qkey}};
    struct ibv_send_wr *refused;

    memcpy(peer.memory, &message, sizeof(message));
    scribble(input, peer.memory, REGX_CM_MESSAGE_SIZE);
    ibv_post_send(peer.ud, &wr, &refused);
    run_device();
}

static void attach(void)
{
    const regx_ep_t *ep = regx_ep_find(verbs(), PEER);

    if (ep != NULL && ep->qp != NULL) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .dest_qp_num = ep->qp->qp_num};

        ibv_modify_qp(peer.rc, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN);
    }
}

static void send_reliably(fuzz_input_t *input, bool written)
{
    const uint32_t value = (uint32_t)fuzz_number(input, 4);
    const uint32_t length = (uint32_t)fuzz_number(input, 2) % (REGX_VERBS_RECEIVE_SIZE + 1);
    struct ibv_sge segment = {
        .addr = (uintptr_t)peer.memory, .length = written ? 0 : length, .lkey = peer.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &segment,
                             .num_sge = 1,
                             .opcode = written ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM,
                             .imm_data = htobe32(value)};
    struct ibv_send_wr *refused;

    ibv_post_send(peer.rc, &wr, &refused);
    run_device();
}

/* ---- our own calls ---- */

static void disconnect(void)
{
    if (process.conn != NULL) {
        regx_transport_ops.disconnect(process.conn);
        process.conn = NULL;
    }
}

static void connect_to(fuzz_input_t *input)
{
    const regx_verbs_address_t address = peers_address();
    uint8_t bytes[REGX_VERBS_ADDRESS_SIZE];

    disconnect();
    memcpy(bytes, &address, sizeof(bytes));
    scribble(input, bytes, sizeof(bytes));
    if (regx_transport_ops.connect(process.transport, PEER, bytes, sizeof(bytes), &process.conn) ==
        REGX_OK) {
        process.accepted++;
    } else {
        process.conn = NULL;
    }
}

static void send_frame(fuzz_input_t *input)
{
    static uint8_t payload[REGX_VERBS_FRAME_MAX];
    const size_t length = fuzz_number(input, 2) % (sizeof(payload) + 1);

    if (process.conn != NULL) {
        regx_transport_ops.send(process.conn, 65, NULL, 0, NULL, payload, length);
    }
}

static void take_step(fuzz_input_t *input)
{
    switch ((step_t)(fuzz_number(input, 1) % STEPS)) {
    case STEP_DATAGRAM:
        send_datagram(input);
        break;
    case STEP_ATTACH:
        attach();
        break;
    case STEP_FRAME:
        send_reliably(input, false);
        break;
    case STEP_WRITTEN:
        send_reliably(input, true);
        break;
    case STEP_CONNECT:
        connect_to(input);
        break;
    case STEP_SEND:
        send_frame(input);
        break;
    case STEP_DISCONNECT:
        disconnect();
        break;
    default:
        regx_transport_ops.progress(process.transport);
    }
}

static void begin(void)
{
    const regx_transport_config_t config = {
        .self = SELF,
        .pool_size = POOL,
        .pool_min = POOL,
        .counters = &process.counters,
        .events = {.deliver = deliver, .immediate = immediate, .broken = broken}};
    char error[256];

    memset(&process, 0, sizeof(process));
    fake_reset();
    fuzz_check(regx_transport_ops.open(&config, error, sizeof(error), &process.transport) ==
               REGX_OK);
    open_peer();
}

static void finish(void)
{
    disconnect();
    regx_eps_break(verbs(), "fuzz", "the end");
    regx_transport_ops.progress(process.transport);
    regx_transport_ops.close(process.transport);
    close_peer();
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size};
    bool connected = false;

    begin();
    while (input.left > 0) {
        take_step(&input);
        const regx_ep_t *ep = regx_ep_find(verbs(), PEER);
        connected = connected ||
                    (ep != NULL && (ep->state == REGX_EP_ACCEPTED || ep->state == REGX_EP_READY));
    }
    const bool accepted = process.counters.malformed == 0 &&
                          (connected || process.delivered > 0 || process.accepted > 0);
    finish();
    return accepted;
}

/* Nothing is cut off, nothing scribbled over. */
#define PLAIN 0, 0, 0
#define REQUEST STEP_DATAGRAM, 0, PLAIN
#define ACCEPT STEP_DATAGRAM, 10, PLAIN
#define READY STEP_DATAGRAM, 8, PLAIN
#define CONNECT STEP_CONNECT, 0, 0
#define P STEP_PROGRESS
/* A segment of a frame that fills a receive buffer. */
#define MORE                                                                                       \
    STEP_FRAME, 0, 0, 0, REGX_SEGMENT_MORE, REGX_VERBS_RECEIVE_SIZE & 0xff,                        \
        REGX_VERBS_RECEIVE_SIZE >> 8

size_t fuzz_seed(unsigned number, uint8_t *to)
{
    static const fuzz_seed_t seeds[] = {
        FUZZ_SEED(CONNECT),
        FUZZ_SEED(REQUEST, P, P),
        FUZZ_SEED(REQUEST, P, STEP_ATTACH, STEP_FRAME, 65, 0, 0, REGX_SEGMENT_LAST, 100, 0, P),
        FUZZ_SEED(REQUEST, P, STEP_ATTACH, STEP_FRAME, 0, 0, 0, REGX_SEGMENT_MORE, 0, 33,
                  STEP_FRAME, 65, 0, 0, REGX_SEGMENT_LAST, 100, 0, P),
        FUZZ_SEED(REQUEST, P, STEP_ATTACH, MORE, MORE, MORE, MORE, P, MORE, MORE, MORE, STEP_FRAME,
                  65, 0, 0, REGX_SEGMENT_LAST, 100, 0, P),
        FUZZ_SEED(REQUEST, P, STEP_ATTACH, STEP_WRITTEN, 1, 2, 3, REGX_SEGMENT_WRITTEN, 0, 0, P),
        FUZZ_SEED(REQUEST, P, STEP_ATTACH, STEP_FRAME, 65, 0, 0, REGX_SEGMENT_LAST, 9, 0,
                  STEP_FRAME, 0, 0, 0, REGX_SEGMENT_GOODBYE, 0, 0, P, P),
        FUZZ_SEED(CONNECT, STEP_SEND, 8, 0, P, ACCEPT, P, STEP_ATTACH, STEP_SEND, 8, 0, P),
        FUZZ_SEED(CONNECT, STEP_SEND, 8, 0, REQUEST, P, READY, P, STEP_ATTACH, STEP_SEND, 8, 0, P,
                  STEP_DISCONNECT, P),
    };

    return fuzz_seed_of(seeds, sizeof(seeds) / sizeof(seeds[0]), number, to);
}
