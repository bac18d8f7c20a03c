/* SPDX-License-Identifier: BSD-3-Clause
 *
 * example [BACKEND]: RDMA WRITE between two buffers, by libibverbs and libregx-registration.
 *
 *     cc -o example example.c $(pkg-config --cflags --libs libregx-registration)
 *
 * One process plays both ends: two queue pairs of one port, connected with each other. Buffers are
 * used a few times and then unmapped, and the next ones lie where they lay: most uses need no
 * registration, and none finds that of memory which is gone. What arrives is compared. Ends with 0;
 * 77: there is no device to use.
 */
#include <infiniband/verbs.h>
#include <regx/registration.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BUFFERS = 20, USES = 10, LENGTH = 1 << 16, NO_DEVICE = 77, PORT = 1 };

typedef struct wire {
    struct ibv_context *context;
    struct ibv_port_attr port;
    struct ibv_gid_entry gid;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *from, *to;
} wire_t;

static void require(int right, const char *what)
{
    if (!right) {
        fprintf(stderr, "example: %s\n", what);
        exit(1);
    }
}

/* ---- libibverbs: a port, and two queue pairs that are connected ---- */

/* The first device of which the first port is active and has an address. */
static int open_device(wire_t *wire)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    struct ibv_gid_entry gids[256];
    int found = 0;

    for (int i = 0; devices != NULL && devices[i] != NULL && !found; i++) {
        wire->context = ibv_open_device(devices[i]);
        found = wire->context != NULL && ibv_query_port(wire->context, PORT, &wire->port) == 0 &&
                wire->port.state == IBV_PORT_ACTIVE &&
                ibv_query_gid_table(wire->context, gids, 256, 0) > 0;
        if (found) {
            wire->gid = gids[0];
        } else if (wire->context != NULL) {
            ibv_close_device(wire->context);
        }
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return found;
}

static void connect_qp(const wire_t *wire, struct ibv_qp *qp, uint32_t number)
{
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                  .path_mtu = wire->port.active_mtu,
                                  .dest_qp_num = number,
                                  .max_dest_rd_atomic = 1,
                                  .min_rnr_timer = 12,
                                  .ah_attr = {.is_global = 1,
                                              .grh = {.dgid = wire->gid.gid,
                                                      .sgid_index = (uint8_t)wire->gid.gid_index,
                                                      .hop_limit = 1},
                                              .dlid = wire->port.lid,
                                              .port_num = PORT}};
    struct ibv_qp_attr send = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};

    require(ibv_modify_qp(qp, &init,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
                    0 &&
                ibv_modify_qp(qp, &receive,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                  IBV_QP_MIN_RNR_TIMER) == 0 &&
                ibv_modify_qp(qp, &send,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
            "the queue pairs cannot be connected");
}

static void open_wire(wire_t *wire)
{
    wire->pd = ibv_alloc_pd(wire->context);
    wire->cq = ibv_create_cq(wire->context, 4, NULL, NULL, 0);
    require(wire->pd != NULL && wire->cq != NULL, "the device has no room");
    const struct ibv_qp_init_attr least = {
        .send_cq = wire->cq,
        .recv_cq = wire->cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    struct ibv_qp_init_attr from = least, to = least; /* a call writes to its own what it got */
    wire->from = ibv_create_qp(wire->pd, &from);
    wire->to = ibv_create_qp(wire->pd, &to);
    require(wire->from != NULL && wire->to != NULL, "ibv_create_qp fails");
    connect_qp(wire, wire->from, wire->to->qp_num);
    connect_qp(wire, wire->to, wire->from->qp_num);
}

/* Returns when it is done. */
static void write_to(const wire_t *wire, const void *from, uint32_t lkey, const void *to,
                     uint32_t rkey)
{
    struct ibv_sge part = {.addr = (uintptr_t)from, .length = LENGTH, .lkey = lkey};
    struct ibv_send_wr request = {.sg_list = &part,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_WRITE,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .wr.rdma = {.remote_addr = (uintptr_t)to, .rkey = rkey}};
    struct ibv_send_wr *refused;
    struct ibv_wc done;
    int count;

    require(ibv_post_send(wire->from, &request, &refused) == 0, "ibv_post_send fails");
    while ((count = ibv_poll_cq(wire->cq, 1, &done)) == 0) {
    }
    require(count == 1 && done.status == IBV_WC_SUCCESS, "a write fails");
}

/* ---- the cache ---- */

static void use_buffers(const wire_t *wire, regx_domain_t *domain, int round)
{
    char *from = mmap(NULL, 2 * LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *to = from + LENGTH;
    regx_use_t source, target;

    require(from != MAP_FAILED, "no memory");
    for (int use = 0; use < USES; use++) {
        memset(from, round * USES + use, LENGTH);
        memset(to, ~(round * USES + use), LENGTH);
        /* Each side registers its own buffer, or finds that it is registered. */
        require(regx_domain_acquire(domain, from, LENGTH, 0, &source) == 0 &&
                    regx_domain_acquire(domain, to, LENGTH,
                                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                                        &target) == 0,
                "a buffer cannot be registered (ulimit -l?)");
        write_to(wire, from, source.mr->lkey, to, target.mr->rkey);
        regx_domain_release(domain, &target);
        regx_domain_release(domain, &source);
        require(memcmp(from, to, LENGTH) == 0, "what arrived is WRONG");
    }
    munmap(from, 2 * LENGTH);
}

int main(int argc, char **argv)
{
    const regx_domain_options_t options = {.size = sizeof(options),
                                           .backend = argc > 1 ? argv[1] : NULL};
    regx_statistics_t seen;
    regx_domain_t *domain;
    const char *reason;
    wire_t wire;
    char error[256];

    if (!open_device(&wire)) {
        fprintf(stderr, "example: no RDMA device here\n");
        return NO_DEVICE;
    }
    open_wire(&wire);
    require(regx_domain_open(wire.pd, &options, &domain, error, sizeof(error)) == 0, error);
    for (int round = 0; round < BUFFERS; round++) {
        use_buffers(&wire, domain, round);
    }
    regx_domain_statistics(domain, &seen, sizeof(seen));
    printf("backend %s\n", regx_domain_backend(domain, &reason));
    printf("why %s\nregistrations %llu\nhits %llu\n", reason,
           (unsigned long long)seen.registrations, (unsigned long long)seen.hits);
    regx_domain_close(domain);
    ibv_destroy_qp(wire.from);
    ibv_destroy_qp(wire.to);
    ibv_destroy_cq(wire.cq);
    ibv_dealloc_pd(wire.pd);
    ibv_close_device(wire.context);
    return 0;
}
