/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A layer between regx and libibverbs (LD_PRELOAD), which counts what is made and not destroyed,
 * and refuses or breaks what it is told to. The environment says what:
 *
 * - REGX_LAYER_RANK: in this rank of MPI_COMM_WORLD only; else in all
 * - REGX_LAYER_REG: the registration of that number, from 1, fails for lack of memory
 * - REGX_LAYER_POST: the call of that number that posts requests to an RC queue pair fails
 * - REGX_LAYER_SENT: the completion of that number of a request of an RC queue pair is an error
 * - REGX_LAYER_MAKE: no RC queue pair is made; any value
 * - REGX_LAYER_MODIFY: the call of that number that modifies an RC queue pair fails; of one pair
 *   the first is for INIT, the second for RTR, the third for RTS
 * - REGX_LAYER_TIMEOUT: a packet is sent again after 4.096 us times 2 to the power of this
 * - REGX_LAYER_ERROR: after the post of that number, the queue pair is driven to error
 * - REGX_LAYER_SRQ, _CQ: so many entries are the most that the device's queues of these kinds may
 *   have
 * - REGX_LAYER_MR, _MR_SIZE: so many regions are the most that the device has, and so many bytes
 *   the most of one; asking for more is counted
 * - REGX_LAYER_FORK: an older kernel; "needed": nothing can be registered before ibv_fork_init is
 *   called, nor that called later, "refused": it fails
 * - REGX_LAYER_PAGING: what the device is to say of on-demand paging; "none", "receive": but not
 *   RDMA WRITE, "write": but not RDMA READ
 * - REGX_LAYER_ADVISE: "kernel": it is asked to prefetch, though the library cannot ask it (of
 *   Soft-RoCE only newer ones can), "refused": for a single page only
 * - REGX_LAYER_REPORT: a file to which each process that opened a device appends a line of what it
 *   made and what of it is left, when it ends
 *
 * A program may also call regx_layer_refuse.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#undef ibv_reg_mr

#define LAYER __attribute__((visibility("default")))

enum object { DEVICE, PD, MR, CQ, SRQ, QP, AH, TOO_MUCH, OBJECTS };

static const char *const names[OBJECTS] = {"device", "pd", "mr", "cq",
                                           "srq",    "qp", "ah", "too much"};
static atomic_int made[OBJECTS], left[OBJECTS];
static atomic_int registrations, posts, sents, modifications, errors;
static atomic_int refuse_in; /* registrations; 0: none is refused */

static bool is_for_this_rank(void)
{
    const char *rank = getenv("REGX_LAYER_RANK"), *own = getenv("OMPI_COMM_WORLD_RANK");

    return rank == NULL || (own != NULL && strcmp(rank, own) == 0);
}

/* Whether this is the one that is to fail. */
static bool fails(const char *variable, atomic_int *count)
{
    const char *number = getenv(variable);

    return number != NULL && is_for_this_rank() && atomic_fetch_add(count, 1) + 1 == atoi(number);
}

/* libibverbs' own. It is not among the libraries of the program, so RTLD_NEXT would not find it. */
static void *next(const char *name)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW);
    void *function = library != NULL ? dlsym(library, name) : NULL;

    if (function == NULL) {
        fprintf(stderr, "layer: no %s\n", name);
        abort();
    }
    return function;
}

/* Counts what was made. */
static void *count(enum object object, void *thing)
{
    if (thing != NULL) {
        atomic_fetch_add(&made[object], 1);
        atomic_fetch_add(&left[object], 1);
    }
    return thing;
}

static int uncount(enum object object, int error)
{
    if (error == 0) {
        atomic_fetch_sub(&left[object], 1);
    }
    return error;
}

/* The type of the function of that name, which the header declares. */
#define NEXT(name) ((__typeof__(name) *)next(#name))

static int (*query)(struct ibv_context *, const struct ibv_query_device_ex_input *,
                    struct ibv_device_attr_ex *, size_t);

static int querying(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                    struct ibv_device_attr_ex *attr, size_t size)
{
    const int error = query(context, input, attr, size);
    const char *paging = getenv("REGX_LAYER_PAGING");

    if (strcmp(paging, "none") == 0) {
        attr->odp_caps.general_caps = 0;
    } else if (strcmp(paging, "receive") == 0) {
        attr->odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_RECV;
    } else if (strcmp(paging, "write") == 0) {
        attr->odp_caps.per_transport_caps.rc_odp_caps &= ~(uint32_t)IBV_ODP_SUPPORT_READ;
    }
    return error;
}

static int advising(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
                    struct ibv_sge *pieces, uint32_t count)
{
    struct {
        struct ib_uverbs_ioctl_hdr header;
        struct ib_uverbs_attr attrs[4];
    } command = {
        .header = {.length = sizeof(command),
                   .object_id = UVERBS_OBJECT_MR,
                   .method_id = UVERBS_METHOD_ADVISE_MR,
                   .num_attrs = 4,
                   .driver_id = RDMA_DRIVER_RXE},
        .attrs = {{.attr_id = UVERBS_ATTR_ADVISE_MR_PD_HANDLE,
                   .flags = UVERBS_ATTR_F_MANDATORY,
                   .data = pd->handle},
                  {.attr_id = UVERBS_ATTR_ADVISE_MR_ADVICE,
                   .len = sizeof(uint64_t),
                   .flags = UVERBS_ATTR_F_MANDATORY,
                   .data = advice},
                  {.attr_id = UVERBS_ATTR_ADVISE_MR_FLAGS,
                   .len = sizeof(uint64_t),
                   .flags = UVERBS_ATTR_F_MANDATORY,
                   .data = flags},
                  {.attr_id = UVERBS_ATTR_ADVISE_MR_SGE_LIST,
                   .len = (uint16_t)(count * sizeof(*pieces)),
                   .flags = UVERBS_ATTR_F_MANDATORY,
                   .data = (uintptr_t)pieces}},
    };

    if (strcmp(getenv("REGX_LAYER_ADVISE"), "refused") == 0 && pieces->length > 4096) {
        return EFAULT;
    }
    return ioctl(pd->context->cmd_fd, RDMA_VERBS_IOCTL, &command) == 0 ? 0 : errno;
}

LAYER struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *context = count(DEVICE, NEXT(ibv_open_device)(device));
    struct verbs_context *verbs = context != NULL ? verbs_get_ctx(context) : NULL;

    if (verbs != NULL && getenv("REGX_LAYER_ADVISE") != NULL) {
        verbs->advise_mr = advising;
    }
    if (verbs != NULL && getenv("REGX_LAYER_PAGING") != NULL && is_for_this_rank()) {
        query = verbs->query_device_ex;
        verbs->query_device_ex = querying;
    }
    return context;
}

LAYER int ibv_close_device(struct ibv_context *context)
{
    return uncount(DEVICE, NEXT(ibv_close_device)(context));
}

LAYER struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    return count(PD, NEXT(ibv_alloc_pd)(context));
}

LAYER int ibv_dealloc_pd(struct ibv_pd *pd)
{
    return uncount(PD, NEXT(ibv_dealloc_pd)(pd));
}

static atomic_bool fork_safe;

LAYER enum ibv_fork_status ibv_is_fork_initialized(void)
{
    if (getenv("REGX_LAYER_FORK") == NULL) {
        return NEXT(ibv_is_fork_initialized)();
    }
    return fork_safe ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

LAYER int ibv_fork_init(void)
{
    const char *how = getenv("REGX_LAYER_FORK");

    if (how == NULL) {
        return NEXT(ibv_fork_init)();
    }
    fork_safe = strcmp(how, "needed") == 0 && made[MR] == 0;
    return fork_safe ? 0 : EINVAL;
}

LAYER int regx_layer_refuse(int nth);

/* The nth registration from now (1: the next) is refused; 0: none is. Answers what was left of the
 * last such wish: 0 if it was granted. */
LAYER int regx_layer_refuse(int nth)
{
    return atomic_exchange(&refuse_in, nth);
}

static bool is_refused(void)
{
    int in = atomic_load(&refuse_in);

    while (in > 0 && !atomic_compare_exchange_weak(&refuse_in, &in, in - 1)) {
    }
    return in == 1 || fails("REGX_LAYER_REG", &registrations);
}

/* As many as the environment allows. */
static int at_most(const char *variable, int number)
{
    const char *most = getenv(variable);

    return most != NULL && atoi(most) < number ? atoi(most) : number;
}

LAYER struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                      unsigned access)
{
    if (getenv("REGX_LAYER_FORK") != NULL && !fork_safe) {
        errno = EFAULT;
        return NULL;
    }
    if (is_refused()) {
        errno = ENOMEM;
        return NULL;
    }
    if (left[MR] >= at_most("REGX_LAYER_MR", INT_MAX) ||
        length > (size_t)at_most("REGX_LAYER_MR_SIZE", INT_MAX)) {
        made[TOO_MUCH]++;
        errno = ENOMEM;
        return NULL;
    }
    return count(MR, NEXT(ibv_reg_mr_iova2)(pd, base, length, iova, access));
}

LAYER struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t length, int access)
{
    return ibv_reg_mr_iova2(pd, base, length, (uintptr_t)base, (unsigned)access);
}

LAYER int ibv_dereg_mr(struct ibv_mr *mr)
{
    return uncount(MR, NEXT(ibv_dereg_mr)(mr));
}

static atomic_uint ud_qpn;

static int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
static int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);

/* What was received has the highest bit of its number set; see verbs/verbs.h. */
static int polling(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    const int polled = poll_cq(cq, most, wc);

    for (int i = 0; i < polled; i++) {
        const bool sent = wc[i].wr_id >> 63 == 0 && wc[i].qp_num != ud_qpn;

        if (sent && wc[i].status == IBV_WC_SUCCESS && fails("REGX_LAYER_SENT", &sents)) {
            wc[i].status = IBV_WC_REM_OP_ERR;
            wc[i].vendor_err = 0x77;
        }
    }
    return polled;
}

static int posting(struct ibv_qp *qp, struct ibv_send_wr *requests, struct ibv_send_wr **refused)
{
    if (qp->qp_type == IBV_QPT_RC && fails("REGX_LAYER_POST", &posts)) {
        *refused = requests;
        return EIO;
    }
    const int error = post_send(qp, requests, refused);
    if (qp->qp_type == IBV_QPT_RC && fails("REGX_LAYER_ERROR", &errors)) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

        NEXT(ibv_modify_qp)(qp, &attr, IBV_QP_STATE);
    }
    return error;
}

LAYER int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    const int error = NEXT(ibv_query_device)(context, attr);

    if (getenv("REGX_LAYER_MR_SIZE") != NULL) {
        attr->max_mr_size = (uint64_t)at_most("REGX_LAYER_MR_SIZE", INT_MAX);
    }
    attr->max_mr = at_most("REGX_LAYER_MR", attr->max_mr);
    attr->max_srq_wr = at_most("REGX_LAYER_SRQ", attr->max_srq_wr);
    attr->max_cqe = at_most("REGX_LAYER_CQ", attr->max_cqe);
    return error;
}

/* Whether a queue of so many entries is more than the environment allows. */
static bool is_too_long(const char *variable, uint32_t entries)
{
    if (at_most(variable, (int)entries) == (int)entries) {
        return false;
    }
    errno = EINVAL;
    return true;
}

LAYER struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *own,
                                   struct ibv_comp_channel *channel, int vector)
{
    if (is_too_long("REGX_LAYER_CQ", (uint32_t)entries)) {
        return NULL;
    }
    if (context->ops.poll_cq != polling) {
        poll_cq = context->ops.poll_cq;
        context->ops.poll_cq = polling;
        post_send = context->ops.post_send;
        context->ops.post_send = posting;
    }
    return count(CQ, NEXT(ibv_create_cq)(context, entries, own, channel, vector));
}

LAYER int ibv_destroy_cq(struct ibv_cq *cq)
{
    return uncount(CQ, NEXT(ibv_destroy_cq)(cq));
}

LAYER struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    return is_too_long("REGX_LAYER_SRQ", attr->attr.max_wr)
               ? NULL
               : count(SRQ, NEXT(ibv_create_srq)(pd, attr));
}

LAYER int ibv_destroy_srq(struct ibv_srq *srq)
{
    return uncount(SRQ, NEXT(ibv_destroy_srq)(srq));
}

LAYER struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    if (attr->qp_type == IBV_QPT_RC && getenv("REGX_LAYER_MAKE") != NULL && is_for_this_rank()) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_qp *qp = count(QP, NEXT(ibv_create_qp)(pd, attr));

    if (qp != NULL && attr->qp_type == IBV_QPT_UD) {
        ud_qpn = qp->qp_num;
    }
    return qp;
}

/* As libibverbs: the answer is the error, and errno may be anything. */
LAYER int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    if (qp->qp_type == IBV_QPT_RC && fails("REGX_LAYER_MODIFY", &modifications)) {
        errno = 0;
        return ETIMEDOUT;
    }
    const char *timeout = getenv("REGX_LAYER_TIMEOUT");
    if (timeout != NULL && (mask & IBV_QP_TIMEOUT) != 0) {
        attr->timeout = (uint8_t)atoi(timeout);
    }
    return NEXT(ibv_modify_qp)(qp, attr, mask);
}

LAYER int ibv_destroy_qp(struct ibv_qp *qp)
{
    return uncount(QP, NEXT(ibv_destroy_qp)(qp));
}

LAYER struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    return count(AH, NEXT(ibv_create_ah)(pd, attr));
}

LAYER int ibv_destroy_ah(struct ibv_ah *ah)
{
    return uncount(AH, NEXT(ibv_destroy_ah)(ah));
}

static __attribute__((destructor)) void report(void)
{
    const char *file = getenv("REGX_LAYER_REPORT");
    char line[512];
    int length = 0, out;

    if (file == NULL || made[DEVICE] == 0 ||
        (out = open(file, O_WRONLY | O_CREAT | O_APPEND, 0666)) < 0) {
        return;
    }
    for (int i = 0; i < OBJECTS; i++) {
        length += snprintf(line + length, sizeof(line) - (size_t)length, "%s \"%s\": [%d, %d]",
                           i == 0 ? "{" : ",", names[i], made[i], left[i]);
    }
    length += snprintf(line + length, sizeof(line) - (size_t)length, "}\n");
    if (write(out, line, (size_t)length) != length) {
        perror(file);
    }
    close(out);
}
