/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What of libibverbs the devices in memory do not have, because the product does not use it: the extended
 * interface of a queue pair, for one at a time.
 */
#include <errno.h>

#include "../unit/transport/verbs/fake_parts.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static struct ibv_qp_ex extended;
static struct ibv_qp *base;
static struct ibv_send_wr request;
static struct ibv_sge piece;

static void start(struct ibv_qp_ex *qp)
{
    request =
        (struct ibv_send_wr){.sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
}

static void rdma_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t address)
{
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = key;
}

static void set_sge(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, uint32_t length)
{
    piece = (struct ibv_sge){.addr = address, .length = length, .lkey = key};
}

static void set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
    request.num_sge = (int)count;
    piece = list[0];
}

static void set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
                                 const struct ibv_data_buf *list)
{
    request.num_sge = (int)count;
    request.send_flags |= IBV_SEND_INLINE;
    piece = (struct ibv_sge){.addr = (uintptr_t)list[0].addr, .length = (uint32_t)list[0].length};
}

static void set_inline_data(struct ibv_qp_ex *qp, void *address, size_t length)
{
    set_inline_data_list(qp, 1, &(struct ibv_data_buf){address, length});
}

static int complete(struct ibv_qp_ex *qp)
{
    struct ibv_context_ops own = {0};
    struct ibv_send_wr *refused;

    fake_queues_serve(&own);
    return own.post_send(base, &request, &refused);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    base = qp;
    extended = (struct ibv_qp_ex){.qp_base = *qp,
                                  .wr_rdma_write = rdma_write,
                                  .wr_set_sge = set_sge,
                                  .wr_set_sge_list = set_sge_list,
                                  .wr_set_inline_data = set_inline_data,
                                  .wr_set_inline_data_list = set_inline_data_list,
                                  .wr_start = start,
                                  .wr_complete = complete};
    return &extended;
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                               int access)
{
    return ibv_reg_mr(pd, addr, length, access);
}

/* Changes nothing that the devices in memory would look at. */
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                 int access)
{
    return flags == IBV_REREG_MR_CHANGE_ACCESS ? 0 : IBV_REREG_MR_ERR_INPUT;
}
