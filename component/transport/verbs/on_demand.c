/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Regions on demand: nothing is pinned, the device asks the kernel for pages as it needs them, and
 * the kernel notifies it when they are replaced.
 *
 * What is sent is read through one implicit region over the whole address space, where the device
 * has such a thing. What peers may write or read never is: they could reach everything by its key.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "transport/verbs/cleanup.h"
#include "transport/verbs/on_demand.h"
#include "transport/verbs/qp.h"
#include "transport/verbs/rx.h"
#include "transport/verbs/tx.h"

#define PREFETCH_MAX (1u << 30) /* bytes of one request */
#define TRIAL_PATIENCE 10       /* seconds for one write of the self-test */

/* What is done with regions: they are read for RDMA WRITE and written by it; by RDMA READ only
 * where that is seen to work. Frames lie in the transport's own memory, which is pinned, so
 * receiving need not be possible. */
static const uint32_t needed = IBV_ODP_SUPPORT_WRITE;

static regx_status_t read_abilities(regx_verbs_t *verbs, char *error, size_t error_size)
{
    struct ibv_device_attr_ex attr = {0};

    if (ibv_query_device_ex(verbs->port.context, NULL, &attr) != 0 ||
        (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) {
        snprintf(error, error_size, "%s, or its driver in this kernel, has no on-demand paging",
                 verbs->port.name);
        return REGX_DENIED;
    }
    verbs->on_demand.operations = attr.odp_caps.per_transport_caps.rc_odp_caps;
    verbs->on_demand.has_implicit = (attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0;
    if ((verbs->on_demand.operations & needed) != needed) {
        snprintf(error, error_size,
                 "%s has on-demand paging, but not for RDMA WRITE over reliable connections",
                 verbs->port.name);
        return REGX_DENIED;
    }
    return REGX_OK;
}

static bool can_read(const regx_verbs_t *verbs)
{
    return (verbs->on_demand.operations & IBV_ODP_SUPPORT_READ) != 0 && verbs->reads_made > 0 &&
           verbs->reads_answered > 0;
}

/* In parentheses: the function, whose macro of the same name converts signs. */
static struct ibv_mr *reg(const regx_verbs_t *verbs, void *base, size_t length, int flags)
{
    return (ibv_reg_mr)(verbs->pd, base, length, flags | IBV_ACCESS_ON_DEMAND);
}

struct ibv_mr *regx_on_demand_reg(regx_verbs_t *verbs, void *base, size_t length, int flags)
{
    if (flags == 0 && verbs->on_demand.implicit != NULL) {
        return verbs->on_demand.implicit;
    }
    /* At either end: what is only to be written here is to be read from elsewhere. */
    if (((flags & IBV_ACCESS_REMOTE_READ) != 0 || flags == IBV_ACCESS_LOCAL_WRITE) &&
        !can_read(verbs)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return reg(verbs, base, length, flags);
}

/* The self-test: moves bytes between two areas, both on demand, through an endpoint that is
 * connected to itself. */
typedef struct trial {
    regx_verbs_t *verbs;
    regx_ep_t *ep;
    enum ibv_wr_opcode operation; /* RDMA WRITE, or READ */
    size_t page, area, length;    /* bytes; of what is moved: more than two pages */
    uint8_t *from, *to;
    struct ibv_mr *from_mr, *to_mr;
} trial_t;

static uint8_t byte_of(uint8_t seed, size_t position)
{
    return (uint8_t)(seed + position * 7 + position / 251) | 1;
}

static void fill(const trial_t *trial, uint8_t seed)
{
    for (size_t i = 0; i < trial->area; i++) {
        trial->from[i] = byte_of(seed, i);
    }
}

/* NULL: done, else why not. */
static const char *post_and_wait(const trial_t *trial, size_t from, size_t to)
{
    const bool writes = trial->operation == IBV_WR_RDMA_WRITE;
    const uintptr_t source = (uintptr_t)trial->from + from, target = (uintptr_t)trial->to + to;
    struct ibv_sge segment = {.addr = writes ? source : target,
                              .length = (uint32_t)trial->length,
                              .lkey = writes ? trial->from_mr->lkey : trial->to_mr->lkey};
    struct timespec now, end;
    bool empty;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += TRIAL_PATIENCE;
    regx_tx_post_trial(trial->ep, trial->operation, &segment, writes ? target : source,
                       writes ? trial->to_mr->rkey : trial->from_mr->rkey);
    do {
        regx_verbs_poll(trial->verbs, &empty);
        if (trial->ep->state == REGX_EP_BROKEN) {
            return trial->ep->what;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (trial->ep->done != trial->ep->posted && now.tv_sec <= end.tv_sec);
    return trial->ep->done == trial->ep->posted ? NULL : "it took too long";
}

/* Moves from and to these offsets; `wrong` if the bytes there, or around, are not the right ones
 * then. The area moved to is all zero before. */
static const char *move_and_look(const trial_t *trial, size_t from, size_t to, uint8_t seed,
                                 const char *wrong)
{
    const char *why = post_and_wait(trial, from, to);

    for (size_t i = 0; i < trial->area && why == NULL; i++) {
        const bool within = i >= to && i - to < trial->length;

        if (trial->to[i] != (within ? byte_of(seed, i - to + from) : 0)) {
            why = wrong;
        }
    }
    return why;
}

static bool replace(void *area, size_t size)
{
    return mmap(area, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) == area;
}

/* NULL: what is moved is what the mapping holds at that time, on both sides. */
static const char *follow_mapping(const trial_t *trial)
{
    const char *why;

    memset(trial->to, 0, trial->area);
    fill(trial, 10);
    why = move_and_look(trial, 0, 0, 10, "what was sent did not arrive");
    if (why != NULL) {
        return why;
    }
    if (!replace(trial->from, trial->area)) {
        return "no memory";
    }
    memset(trial->to, 0, trial->area);
    fill(trial, 20);
    why = move_and_look(trial, 0, 0, 20, "memory with new pages was read from the old ones");
    if (why != NULL) {
        return why;
    }
    return replace(trial->to, trial->area)
               ? move_and_look(trial, 0, 0, 20, "memory with new pages was written to the old ones")
               : "no memory";
}

/* Soft-RoCE forgets where in a page a packet begins (seen in Linux 7.2). What begins where a page
 * does, in packets of a page each, is right. */
static const char *find_grain(const trial_t *trial)
{
    static const char wrong[] = "wrong";

    memset(trial->to, 0, trial->area);
    const char *why = move_and_look(trial, 5, 6, 20, wrong);
    if (why == wrong) {
        trial->verbs->super.on_demand_grain = trial->page;
    }
    return why == wrong ? NULL : why;
}

/* NULL: that operation does what it should with regions on demand. */
static const char *try_operation(trial_t *trial, enum ibv_wr_opcode operation)
{
    trial->operation = operation;
    const char *why = follow_mapping(trial);

    return why == NULL ? find_grain(trial) : why;
}

static uint8_t *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static const char *open_trial(trial_t *trial)
{
    regx_verbs_t *verbs = trial->verbs;
    regx_cm_message_t self = {.reads = verbs->reads_answered, .address = verbs->address};

    trial->page = regx_page_size();
    trial->length = 2 * trial->page + 100;
    trial->area = 4 * trial->page;
    trial->from = map(trial->area);
    trial->to = map(trial->area);
    if (trial->from == NULL || trial->to == NULL) {
        return "no memory";
    }
    trial->from_mr =
        reg(verbs, trial->from, trial->area, can_read(verbs) ? IBV_ACCESS_REMOTE_READ : 0);
    trial->to_mr =
        reg(verbs, trial->to, trial->area, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (trial->from_mr == NULL || trial->to_mr == NULL) {
        return strerror(errno);
    }
    int error;
    struct ibv_ah *route = regx_qp_route(verbs, &verbs->address, &error);
    trial->ep = regx_ep_new(verbs, verbs->config.self, &verbs->address, route, error);
    if (trial->ep == NULL) {
        return "no memory";
    }
    if (trial->ep->state == REGX_EP_BROKEN) {
        return trial->ep->what;
    }
    self.qpn = trial->ep->qp->qp_num;
    self.psn = trial->ep->psn;
    return regx_ep_connect(trial->ep, &self) ? NULL : trial->ep->what;
}

static void close_trial(trial_t *trial)
{
    if (trial->ep != NULL) {
        regx_ep_delete(trial->ep);
    }
    if (trial->from_mr != NULL) {
        ibv_dereg_mr(trial->from_mr);
    }
    if (trial->to_mr != NULL) {
        ibv_dereg_mr(trial->to_mr);
    }
    if (trial->from != NULL) {
        munmap(trial->from, trial->area);
    }
    if (trial->to != NULL) {
        munmap(trial->to, trial->area);
    }
}

static regx_status_t test_device(regx_verbs_t *verbs, char *error, size_t error_size)
{
    trial_t trial = {.verbs = verbs};
    const char *why = open_trial(&trial);

    verbs->super.on_demand_grain = 1;
    if (why == NULL) {
        why = try_operation(&trial, IBV_WR_RDMA_WRITE);
    }
    /* Last: the endpoint does not survive a failure. Without READ, all but strategy read works. */
    if (why == NULL && can_read(verbs) && try_operation(&trial, IBV_WR_RDMA_READ) != NULL) {
        verbs->on_demand.operations &= ~(uint32_t)IBV_ODP_SUPPORT_READ;
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CHOICE,
                                 "odp: the self-test by RDMA READ failed");
    }
    if (why != NULL) {
        snprintf(error, error_size, "self-test of %s, in packets of %u bytes: %s", verbs->port.name,
                 128u << verbs->address.mtu, why);
    }
    close_trial(&trial);
    return why == NULL ? REGX_OK : REGX_INVALID;
}

static void make_implicit(regx_verbs_t *verbs)
{
    if (!verbs->on_demand.has_implicit || verbs->on_demand.implicit != NULL) {
        return;
    }
    verbs->on_demand.implicit = reg(verbs, NULL, SIZE_MAX, 0);
    if (verbs->on_demand.implicit == NULL) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CHOICE,
                                 "verbs: implicit region refused");
    }
}

regx_status_t regx_verbs_on_demand(regx_transport_t *transport, char *error, size_t error_size)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);

    regx_try_lock_wait(&verbs->try_lock);
    regx_status_t status = read_abilities(verbs, error, error_size);
    if (status == REGX_OK) {
        status = test_device(verbs, error, error_size);
    }
    if (status == REGX_OK) {
        make_implicit(verbs);
    }
    regx_try_lock_leave(&verbs->try_lock);
    return status;
}

void regx_on_demand_close(regx_verbs_t *verbs)
{
    if (verbs->on_demand.implicit != NULL) {
        ibv_dereg_mr(verbs->on_demand.implicit);
    }
}

regx_status_t regx_verbs_prefetch(regx_transport_t *transport, const regx_mr_t *mr,
                                  const void *base, size_t length)
{
    const struct ibv_mr *handle = mr->handle;
    const enum ib_uverbs_advise_mr_advice advice = (mr->access & REGX_ACCESS_ANY_WRITE) != 0
                                                       ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
                                                       : IBV_ADVISE_MR_ADVICE_PREFETCH;
    struct ibv_sge segment = {.addr = (uintptr_t)base, .lkey = handle->lkey};

    for (size_t left = length; left > 0; left -= segment.length) {
        segment.length = left < PREFETCH_MAX ? (uint32_t)left : PREFETCH_MAX;
        if (ibv_advise_mr(regx_verbs_of(transport)->pd, advice, 0, &segment, 1) != 0) {
            return REGX_DENIED;
        }
        segment.addr += segment.length;
    }
    return REGX_OK;
}
