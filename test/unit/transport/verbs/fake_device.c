/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_device.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_query_port

#define GRH_SIZE 40
#define QUEUE 16384 /* entries of any queue */

fake_t fake;

typedef struct request {
    struct ibv_send_wr wr;
    struct ibv_sge piece;
    struct ibv_ah_attr to; /* of a datagram */
    uint8_t carried[1024];
} request_t;

typedef struct context {
    struct verbs_context verbs;
    fake_port_t *port;
    struct ibv_async_event events[64];
    int event_count;
} context_t;

typedef struct receives {
    struct ibv_recv_wr *entries;
    struct ibv_sge *pieces;
    uint64_t posted, taken;
} receives_t;

typedef struct srq {
    struct ibv_srq super;
    receives_t receives;
} srq_t;

typedef struct cq {
    struct ibv_cq super;
    struct ibv_wc *entries;
    uint64_t pushed, polled, size;
} cq_t;

typedef struct qp {
    struct ibv_qp super;
    fake_port_t *port;
    receives_t receives; /* of a UD one */
    request_t *requests;
    uint32_t depth, dest, qkey;
    uint64_t posted, done;
    struct qp *next;
} qp_t;

typedef struct ah {
    struct ibv_ah super;
    struct ibv_ah_attr attr;
} ah_t;

typedef struct mr {
    struct ibv_mr super;
    int access;
    struct mr *next;
} mr_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of queues and of the lists below */
static struct ibv_device devices[FAKE_DEVICES];
static qp_t *qps;
static mr_t *mrs;
static uint32_t last_number = 0x100;
static uint32_t freed_number; /* of the queue pair that was destroyed last; 0: it is in use again */

void fake_gid(uint8_t gid[16], uint8_t network, uint8_t host)
{
    const uint8_t bytes[16] = {
        [10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [14] = network, [15] = host};

    memcpy(gid, bytes, sizeof(bytes));
}

fake_port_t *fake_add(uint8_t network, uint8_t host)
{
    struct ibv_device *device = &devices[fake.count];
    fake_port_t *port = &fake.ports[fake.count];

    snprintf(device->name, sizeof(device->name), "fake%d", fake.count++);
    device->transport_type = IBV_TRANSPORT_IB;
    *port = (fake_port_t){.link_layer = IBV_LINK_LAYER_ETHERNET,
                          .speed = 32,
                          .width = 1,
                          .lid = (uint16_t)fake.count,
                          .gid_type = IBV_GID_TYPE_ROCE_V2,
                          .netmask = 0xffffff00,
                          .inline_max = 1024};
    fake_gid(port->gid, network, host);
    return port;
}

void fake_reset(void)
{
    memset(&fake, 0, sizeof(fake));
    fake_add(0, 1);
}

static __attribute__((constructor)) void begin(void)
{
    fake_reset();
}

static context_t *context_of(struct ibv_context *context)
{
    return (context_t *)((char *)context - offsetof(context_t, verbs.context));
}

/* Queues of receives. */
static void receives_init(receives_t *receives)
{
    receives->entries = calloc(QUEUE, sizeof(receives->entries[0]));
    receives->pieces = calloc(QUEUE, sizeof(receives->pieces[0]));
}

static void receives_fini(receives_t *receives)
{
    free(receives->entries);
    free(receives->pieces);
}

static void receives_add(receives_t *receives, struct ibv_recv_wr *wr)
{
    for (; wr != NULL; wr = wr->next) {
        const uint64_t at = receives->posted++ % QUEUE;

        receives->entries[at] = *wr;
        receives->pieces[at] = wr->sg_list[0];
    }
}

static void complete(struct ibv_cq *super, const struct ibv_wc *wc)
{
    cq_t *cq = (cq_t *)super;

    if (cq->pushed - cq->polled >= cq->size) {
        fprintf(stderr, "fake device: a completion queue overflows\n");
        abort();
    }
    cq->entries[cq->pushed++ % cq->size] = *wc;
}

static void tell(struct ibv_context *context, enum ibv_event_type type, struct ibv_qp *qp)
{
    context_t *own = context_of(context);

    if (own->event_count < 64) {
        own->events[own->event_count++] =
            (struct ibv_async_event){.event_type = type, .element.qp = qp};
    }
}

static void end_request(qp_t *qp, const request_t *request, enum ibv_wc_status status)
{
    static const enum ibv_wc_opcode opcodes[] = {[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
                                                 [IBV_WR_SEND] = IBV_WC_SEND,
                                                 [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
                                                 [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ};

    if (status != IBV_WC_SUCCESS || (request->wr.send_flags & IBV_SEND_SIGNALED) != 0) {
        const struct ibv_wc wc = {.wr_id = request->wr.wr_id,
                                  .status = status,
                                  .opcode = opcodes[request->wr.opcode],
                                  .qp_num = qp->super.qp_num};

        complete(qp->super.send_cq, &wc);
    }
    qp->done++;
}

static void enter_error(qp_t *qp)
{
    if (qp->super.state == IBV_QPS_ERR) {
        return;
    }
    qp->super.state = IBV_QPS_ERR;
    if (qp->super.qp_type == IBV_QPT_RC) {
        tell(qp->super.context, IBV_EVENT_QP_LAST_WQE_REACHED, &qp->super);
    }
    while (qp->super.qp_type == IBV_QPT_UD && qp->receives.taken != qp->receives.posted) {
        const struct ibv_wc wc = {.wr_id = qp->receives.entries[qp->receives.taken++ % QUEUE].wr_id,
                                  .status = IBV_WC_WR_FLUSH_ERR,
                                  .opcode = IBV_WC_RECV,
                                  .qp_num = qp->super.qp_num};

        complete(qp->super.recv_cq, &wc);
    }
}

static qp_t *find(uint32_t number)
{
    qp_t *qp = qps;

    while (qp != NULL && qp->super.qp_num != number) {
        qp = qp->next;
    }
    return qp;
}

/* Whether that memory is registered under the key, and for that. */
static bool is_registered(uint32_t key, uint64_t address, uint64_t length, int access)
{
    for (const mr_t *mr = mrs; mr != NULL; mr = mr->next) {
        if (mr->super.rkey == key) {
            const uint64_t base = (uintptr_t)mr->super.addr;

            return (mr->access & access) == access && address >= base &&
                   address + length <= base + mr->super.length;
        }
    }
    return false;
}

/* Gives what arrives to the next receive buffer. false: there is none. */
static bool receive(qp_t *to, receives_t *receives, const struct ibv_wc *wc, const uint8_t *header,
                    const void *data, uint32_t length)
{
    struct ibv_wc done = *wc;

    if (receives->taken == receives->posted) {
        return false;
    }
    const uint64_t at = receives->taken++ % QUEUE;
    uint8_t *room = (uint8_t *)(uintptr_t)receives->pieces[at].addr;
    if (header != NULL) {
        memcpy(room, header, GRH_SIZE);
        room += GRH_SIZE;
        done.byte_len += GRH_SIZE;
    }
    done.wr_id = receives->entries[at].wr_id;
    done.qp_num = to->super.qp_num;
    if (done.opcode == IBV_WC_RECV) {
        if (done.byte_len > receives->pieces[at].length) {
            done.status = IBV_WC_LOC_LEN_ERR;
        } else if (length > 0) {
            memcpy(room, data, length);
        }
    }
    complete(to->super.recv_cq, &done);
    return true;
}

static uint16_t checksum(const uint8_t header[20])
{
    uint32_t sum = 0;

    for (int i = 0; i < 20; i += 2) {
        sum += (uint32_t)header[i] << 8 | header[i + 1];
    }
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

/* What a datagram queue pair puts before the data. */
static void fill_header(const qp_t *from, const request_t *request, uint8_t header[GRH_SIZE])
{
    memset(header, 0, GRH_SIZE);
    if (from->port->link_layer == IBV_LINK_LAYER_ETHERNET && from->port->gid[10] == 0xff) {
        uint8_t *ip = header + 20;

        ip[0] = 0x45;
        memcpy(ip + 12, from->port->gid + 12, 4);
        memcpy(ip + 16, request->to.grh.dgid.raw + 12, 4);
        const uint16_t sum = checksum(ip);
        ip[10] = (uint8_t)(sum >> 8);
        ip[11] = (uint8_t)sum;
    } else if (request->to.is_global) {
        header[0] = 0x60;
        memcpy(header + 8, from->port->gid, 16);
        memcpy(header + 24, request->to.grh.dgid.raw, 16);
    }
}

/* Whether a route leads to that port. */
static bool leads_to(const struct ibv_ah_attr *route, const fake_port_t *port)
{
    if ((port->port_flags & IBV_QPF_GRH_REQUIRED) != 0 && !route->is_global) {
        return false;
    }
    return port->link_layer == IBV_LINK_LAYER_ETHERNET
               ? route->is_global && memcmp(route->grh.dgid.raw, port->gid, 16) == 0
               : route->dlid == port->lid;
}

static void send_datagram(qp_t *qp, const request_t *request)
{
    qp_t *to = find(request->wr.wr.ud.remote_qpn);
    uint8_t header[GRH_SIZE];

    fake.datagrams++;
    if (to != NULL && to->super.qp_type == IBV_QPT_UD && to->super.state == IBV_QPS_RTS &&
        to->qkey == request->wr.wr.ud.remote_qkey && leads_to(&request->to, to->port) &&
        !fake.drop_datagrams) {
        const struct ibv_wc wc = {.opcode = IBV_WC_RECV,
                                  .byte_len = request->piece.length,
                                  .src_qp = qp->super.qp_num,
                                  .slid = qp->port->lid,
                                  .wc_flags = request->to.is_global ? IBV_WC_GRH : 0};

        fill_header(qp, request, header);
        receive(to, &to->receives, &wc, header, (const void *)(uintptr_t)request->piece.addr,
                request->piece.length);
    }
    end_request(qp, request, IBV_WC_SUCCESS);
}

/* Does one request of a reliable queue pair. false: the receiver has no buffer now. */
static bool send_reliably(qp_t *qp, const request_t *request)
{
    qp_t *to = find(qp->dest);
    const struct ibv_send_wr *wr = &request->wr;
    void *local = (void *)(uintptr_t)request->piece.addr;
    void *remote = (void *)(uintptr_t)wr->wr.rdma.remote_addr;
    const uint32_t length = request->piece.length;
    const bool writes = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    struct ibv_wc wc = {.opcode = IBV_WC_RECV, .byte_len = length};
    enum ibv_wc_status status = IBV_WC_SUCCESS;

    if (to == NULL || to->super.state == IBV_QPS_ERR ||
        (to->super.state != IBV_QPS_INIT && to->dest != qp->super.qp_num)) {
        status = IBV_WC_RETRY_EXC_ERR;
    } else if (to->super.state == IBV_QPS_INIT) {
        return false;
    } else if (length > 0 && (wr->send_flags & IBV_SEND_INLINE) == 0 &&
               !is_registered(request->piece.lkey, request->piece.addr, length,
                              wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0)) {
        status = IBV_WC_LOC_PROT_ERR;
    } else if (length > 0 && (writes || wr->opcode == IBV_WR_RDMA_READ) &&
               !is_registered(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, length,
                              writes ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ)) {
        status = IBV_WC_REM_ACCESS_ERR;
    } else if (wr->opcode == IBV_WR_RDMA_READ) {
        memcpy(local, remote, length);
    } else if (writes && length > 0) {
        memcpy(remote, local, length);
    }
    if (wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        wc.wc_flags = IBV_WC_WITH_IMM;
        wc.imm_data = wr->imm_data;
        wc.opcode = writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
        if (status == IBV_WC_SUCCESS &&
            !receive(to, &((srq_t *)to->super.srq)->receives, &wc, NULL, local, length)) {
            return false;
        }
    }
    end_request(qp, request, status);
    if (status != IBV_WC_SUCCESS) {
        enter_error(qp);
    }
    return true;
}

static void run(qp_t *qp)
{
    while (qp->done != qp->posted) {
        const request_t *request = &qp->requests[qp->done % qp->depth];

        if (qp->super.state == IBV_QPS_ERR) {
            end_request(qp, request, IBV_WC_WR_FLUSH_ERR);
        } else if (qp->super.qp_type == IBV_QPT_UD) {
            send_datagram(qp, request);
        } else if (!send_reliably(qp, request)) {
            break;
        }
    }
}

static int poll_cq(struct ibv_cq *super, int most, struct ibv_wc *wc)
{
    cq_t *cq = (cq_t *)super;
    int count = 0;

    pthread_mutex_lock(&lock);
    for (qp_t *qp = qps; qp != NULL; qp = qp->next) {
        run(qp);
    }
    while (count < most && cq->polled != cq->pushed) {
        wc[count++] = cq->entries[cq->polled++ % cq->size];
    }
    pthread_mutex_unlock(&lock);
    return count;
}

static int post(qp_t *qp, const struct ibv_send_wr *wr)
{
    if (qp->posted - qp->done == qp->depth) {
        return ENOMEM;
    }
    request_t *request = &qp->requests[qp->posted % qp->depth];
    request->wr = *wr;
    request->piece = wr->num_sge > 0 ? wr->sg_list[0] : (struct ibv_sge){0};
    if (qp->super.qp_type == IBV_QPT_UD) {
        request->to = ((ah_t *)wr->wr.ud.ah)->attr;
    }
    if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
        if (request->piece.length > qp->port->inline_max) {
            return EINVAL;
        }
        if (request->piece.length > fake.inline_max) {
            fake.inline_max = request->piece.length;
        }
        memcpy(request->carried, (const void *)(uintptr_t)request->piece.addr,
               request->piece.length);
        request->piece.addr = (uintptr_t)request->carried;
    }
    qp->posted++;
    return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **refused)
{
    int error = 0;

    pthread_mutex_lock(&lock);
    for (; wr != NULL && error == 0; wr = error == 0 ? wr->next : wr) {
        *refused = wr;
        error = post((qp_t *)qp, wr);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int post_recv(struct ibv_qp *super, struct ibv_recv_wr *wr, struct ibv_recv_wr **refused)
{
    *refused = wr;
    pthread_mutex_lock(&lock);
    receives_add(&((qp_t *)super)->receives, wr);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int post_srq_recv(struct ibv_srq *super, struct ibv_recv_wr *wr,
                         struct ibv_recv_wr **refused)
{
    *refused = wr;
    pthread_mutex_lock(&lock);
    receives_add(&((srq_t *)super)->receives, wr);
    pthread_mutex_unlock(&lock);
    return 0;
}

uint32_t fake_srq_length(const struct ibv_srq *srq)
{
    const receives_t *receives = &((const srq_t *)srq)->receives;

    return (uint32_t)(receives->posted - receives->taken);
}

/* Devices. */
struct ibv_device **ibv_get_device_list(int *count)
{
    struct ibv_device **list = calloc((size_t)fake.count + 1, sizeof(list[0]));

    for (int i = 0; i < fake.count; i++) {
        list[i] = &devices[i];
    }
    if (count != NULL) {
        *count = fake.count;
    }
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free((void *)list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr,
                      size_t size)
{
    const fake_port_t *port = context_of(context)->port;
    const struct ibv_port_attr known = {.state = port->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
                                        .active_mtu = IBV_MTU_4096,
                                        .max_msg_sz = 1u << 31,
                                        .pkey_tbl_len = 1,
                                        .lid = port->lid,
                                        .active_speed = port->speed,
                                        .active_width = port->width,
                                        .link_layer = port->link_layer,
                                        .flags = port->port_flags};

    memset(attr, 0, size);
    memcpy(attr, &known, size < sizeof(known) ? size : sizeof(known));
    return number == 1 ? 0 : EINVAL;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    context_t *context = calloc(1, sizeof(*context));

    context->port = &fake.ports[device - devices];
    context->verbs.sz = sizeof(context->verbs);
    context->verbs.query_port = query_port;
    context->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    context->verbs.context.device = device;
    context->verbs.context.async_fd = open("/dev/null", O_RDWR);
    context->verbs.context.ops.poll_cq = poll_cq;
    context->verbs.context.ops.post_send = post_send;
    context->verbs.context.ops.post_recv = post_recv;
    context->verbs.context.ops.post_srq_recv = post_srq_recv;
    return &context->verbs.context; // cppcheck-suppress memleak
}

int ibv_close_device(struct ibv_context *context)
{
    close(context->async_fd);
    free(context_of(context));
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    *attr = (struct ibv_device_attr){.phys_port_cnt = 1,
                                     .max_cqe = 1 << 16,
                                     .max_mr = 1 << 16,
                                     .max_mr_size = UINT64_MAX,
                                     .max_qp_wr = 1 << 12,
                                     .max_srq_wr = 1 << 13,
                                     .max_qp_rd_atom = 16,
                                     .max_qp_init_rd_atom = 16};
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey)
{
    (void)context;
    (void)number;
    *pkey = index == 0 ? 0xffff : 0;
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                             size_t most, uint32_t flags, size_t size)
{
    const fake_port_t *port = context_of(context)->port;

    (void)flags;
    (void)size;
    if (port->without_gid || most == 0) {
        return 0;
    }
    entries[0] = (struct ibv_gid_entry){
        .port_num = 1, .gid_type = port->gid_type, .ndev_ifindex = port->ifindex};
    memcpy(entries[0].gid.raw, port->gid, sizeof(port->gid));
    return 1;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    context_t *own = context_of(context);

    if (own->event_count == 0) {
        errno = EAGAIN;
        return -1;
    }
    *event = own->events[0];
    memmove(own->events, own->events + 1, (size_t)--own->event_count * sizeof(own->events[0]));
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

/* The network devices of the ports: each has the port's IPv4 address. */
typedef struct interface {
    struct ifaddrs super;
    struct sockaddr_in address, mask;
} interface_t;

int getifaddrs(struct ifaddrs **list)
{
    *list = NULL;
    for (int i = 0; i < fake.count; i++) {
        interface_t *interface = calloc(1, sizeof(*interface));

        interface->address.sin_family = interface->mask.sin_family = AF_INET;
        memcpy(&interface->address.sin_addr, fake.ports[i].gid + 12, 4);
        interface->mask.sin_addr.s_addr = htobe32(fake.ports[i].netmask);
        interface->super = (struct ifaddrs){.ifa_next = *list,
                                            .ifa_addr = (struct sockaddr *)&interface->address,
                                            .ifa_netmask = (struct sockaddr *)&interface->mask};
        *list = &interface->super;
    }
    return 0;
}

void freeifaddrs(struct ifaddrs *list)
{
    while (list != NULL) {
        struct ifaddrs *next = list->ifa_next;

        free(list);
        list = next;
    }
}

/* Objects. */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));

    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

/* Whether all of that is mapped, to be written if `written`. */
static bool is_mapped(uintptr_t base, size_t length, bool written)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t at = base;
    char line[512];

    while (fgets(line, sizeof(line), maps) != NULL && at < base + length) {
        uintptr_t first, end;
        char rights[5];

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &first, &end, rights) == 3 &&
            first <= at && at < end && rights[0] == 'r' && (!written || rights[1] == 'w')) {
            at = end;
        }
    }
    fclose(maps);
    return at >= base + length;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t length, int access)
{
    if (!is_mapped((uintptr_t)base, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0)) {
        errno = EFAULT;
        return NULL;
    }
    if (fake.register_error != 0) {
        fake.registers++;
        errno = fake.register_error;
        return NULL;
    }
    mr_t *mr = calloc(1, sizeof(*mr));

    mr->super = (struct ibv_mr){
        .context = pd->context, .pd = pd, .addr = base, .length = length, .rkey = ++last_number};
    mr->super.lkey = mr->super.rkey;
    mr->access = access;
    pthread_mutex_lock(&lock);
    mr->next = mrs;
    mrs = mr;
    pthread_mutex_unlock(&lock);
    return &mr->super;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                unsigned int access)
{
    (void)iova;
    return ibv_reg_mr(pd, base, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *super)
{
    mr_t **at = &mrs, *mr = (mr_t *)super;

    pthread_mutex_lock(&lock);
    while (*at != mr) {
        at = &(*at)->next;
    }
    *at = mr->next;
    pthread_mutex_unlock(&lock);
    free(mr);
    return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *own,
                             struct ibv_comp_channel *channel, int vector)
{
    cq_t *cq = calloc(1, sizeof(*cq));

    (void)own;
    (void)channel;
    (void)vector;
    cq->super.context = context;
    cq->size = (uint64_t)entries;
    cq->entries = calloc(cq->size, sizeof(cq->entries[0]));
    return &cq->super;
}

int ibv_destroy_cq(struct ibv_cq *super)
{
    cq_t *cq = (cq_t *)super;

    free(cq->entries);
    free(cq);
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    srq_t *srq = calloc(1, sizeof(*srq));

    (void)attr;
    srq->super = (struct ibv_srq){.context = pd->context, .pd = pd};
    receives_init(&srq->receives);
    return &srq->super;
}

int ibv_destroy_srq(struct ibv_srq *super)
{
    srq_t *srq = (srq_t *)super;

    receives_fini(&srq->receives);
    free(srq);
    return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    fake_port_t *port = context_of(pd->context)->port;

    if (port->inline_refused != 0 && attr->cap.max_inline_data > port->inline_refused) {
        errno = EINVAL;
        return NULL;
    }
    qp_t *qp = calloc(1, sizeof(*qp));
    const uint32_t number = freed_number != 0 ? freed_number : ++last_number;

    freed_number = 0;
    qp->super = (struct ibv_qp){.context = pd->context,
                                .pd = pd,
                                .send_cq = attr->send_cq,
                                .recv_cq = attr->recv_cq,
                                .srq = attr->srq,
                                .qp_num = number,
                                .qp_type = attr->qp_type};
    qp->port = port;
    qp->depth = attr->cap.max_send_wr;
    qp->requests = calloc(qp->depth, sizeof(qp->requests[0]));
    if (attr->srq == NULL) {
        receives_init(&qp->receives);
    }
    attr->cap.max_inline_data = port->inline_max;
    port->queue_pairs_made += attr->qp_type == IBV_QPT_RC;
    pthread_mutex_lock(&lock);
    qp->next = qps;
    qps = qp;
    pthread_mutex_unlock(&lock);
    return &qp->super;
}

int ibv_modify_qp(struct ibv_qp *super, struct ibv_qp_attr *attr, int mask)
{
    qp_t *qp = (qp_t *)super;

    if ((mask & IBV_QP_DEST_QPN) != 0) {
        qp->dest = attr->dest_qp_num;
    }
    if ((mask & IBV_QP_QKEY) != 0) {
        qp->qkey = attr->qkey;
    }
    if ((mask & IBV_QP_AV) != 0) {
        fake.routed = attr->ah_attr;
    }
    pthread_mutex_lock(&lock);
    if (attr->qp_state == IBV_QPS_ERR) {
        enter_error(qp);
    } else {
        qp->super.state = attr->qp_state;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

/* A device that drops receives forgets completions of the queue pair that nobody has polled. */
static void drop_receives(const qp_t *qp)
{
    cq_t *cq = (cq_t *)qp->super.recv_cq;
    uint64_t kept = cq->polled;

    for (uint64_t i = cq->polled; i != cq->pushed; i++) {
        const struct ibv_wc wc = cq->entries[i % cq->size];

        if (wc.qp_num != qp->super.qp_num) {
            cq->entries[kept++ % cq->size] = wc;
        }
    }
    cq->pushed = kept;
}

int ibv_destroy_qp(struct ibv_qp *super)
{
    qp_t **at = &qps, *qp = (qp_t *)super;
    context_t *context = context_of(super->context);

    pthread_mutex_lock(&lock);
    while (*at != qp) {
        at = &(*at)->next;
    }
    *at = qp->next;
    freed_number = super->qp_num;
    if (qp->port->drops_receives) {
        drop_receives(qp);
    }
    for (int i = context->event_count - 1; i >= 0; i--) {
        if (context->events[i].element.qp == super) {
            context->event_count--;
            memmove(context->events + i, context->events + i + 1,
                    (size_t)(context->event_count - i) * sizeof(context->events[0]));
        }
    }
    pthread_mutex_unlock(&lock);
    if (super->srq == NULL) {
        receives_fini(&qp->receives);
    }
    free(qp->requests);
    free(qp);
    return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    const context_t *context = context_of(pd->context);

    if (context->port->link_layer == IBV_LINK_LAYER_INFINIBAND &&
        (attr->dlid == 0 || attr->dlid >= 0xc000)) {
        errno = EINVAL; /* no unicast address */
        return NULL;
    }
    if (fake.route_error != 0) {
        fake.routes++;
        errno = fake.route_error;
        return NULL;
    }
    ah_t *ah = calloc(1, sizeof(*ah));
    ah->super = (struct ibv_ah){.context = pd->context, .pd = pd};
    ah->attr = fake.addressed = *attr;
    return &ah->super;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    free(ah);
    return 0;
}
