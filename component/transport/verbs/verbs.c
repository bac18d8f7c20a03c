/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The verbs transport: one port of an RDMA device, by rdma-core. See verbs.h for its parts.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "base/memlock.h"
#include "transport/verbs/ep.h"
#include "transport/verbs/memory.h"

/* The object's face; regx_transport_load looks it up. */
__attribute__((visibility("default"))) extern const regx_transport_ops_t regx_transport_ops;

#define SEGMENT_MAX (1u << 30)
#define OWN_REGIONS 3  /* receive buffers, slots, the pool */
#define ACK_TIMEOUT 18 /* about a second */
/* What a small message takes by a port, roughly, to tell a much slower port from others: so many us,
 * and the time of 4 KiB on the wire. */
#define LATENCY 1
#define SMALL_BITS 32768u
#define PREFETCH_MAX (1u << 30) /* bytes of one request */
#define SOFT_ROCE 0xffffffu     /* vendor of rdma_rxe */
#define LOOKS_AT_ONCE 1000u     /* a millisecond or so */
#define MUCH_LOCKED (UINT64_C(256) << 20)
/* A queue pair works off its requests in their order. So many bytes keep it busy until the next
 * write is posted: 20 us of them at 400 Gb/s. */
#define PUT_INFLIGHT_MAX (2u << 20)

/* For who has no parameters. */
static const regx_verbs_settings_t defaults = {
    .gid_index = -1, .traffic_class = -1, .relaxed_ordering = REGX_VERBS_ORDERING_AUTO};

/* How much of everything the device can. */
static void read_limits(regx_verbs_t *verbs)
{
    const struct ibv_device_attr *device = &verbs->port.device;
    const uint64_t completions = (uint64_t)device->max_cqe;
    const uint64_t longest = device->max_mr_size;
    uint64_t receives =
        regx_memlock_limit() < MUCH_LOCKED ? REGX_VERBS_RECEIVES / 4 : REGX_VERBS_RECEIVES;
    regx_verbs_limits_t *can = &verbs->can;

    if (longest != 0) { /* they share a region with what datagrams need */
        receives = regx_min(receives, longest / 2 / REGX_VERBS_FRAME_MAX);
    }
    can->posts_by_kernel = device->vendor_id == SOFT_ROCE;
    can->depth = (uint32_t)regx_min(REGX_VERBS_DEPTH, (uint64_t)device->max_qp_wr);
    can->reads_made = (uint8_t)regx_min(REGX_VERBS_READS, (uint64_t)device->max_qp_init_rd_atom);
    can->reads_answered = (uint8_t)regx_min(REGX_VERBS_READS, (uint64_t)device->max_qp_rd_atom);
    can->ack_timeout = ACK_TIMEOUT;
    /* A driver that leaves it 0 (mana_ib) has told nothing. */
    can->segment_max = verbs->port.attr.max_msg_sz == 0
                           ? SEGMENT_MAX
                           : regx_min(SEGMENT_MAX, verbs->port.attr.max_msg_sz);
    verbs->buffers.receives = (uint32_t)regx_min(receives, (uint64_t)device->max_srq_wr);
    verbs->super.mr_count =
        device->max_mr > OWN_REGIONS ? (uint64_t)device->max_mr - OWN_REGIONS : 1;
    verbs->super.mr_bytes = longest;
    /* With fewer than one endpoint may have, all might wait for all: then there shall be no queue.
     */
    const uint64_t others = verbs->buffers.receives + REGX_CM_RECEIVES + REGX_CM_SENDS;
    verbs->requests.max =
        (uint32_t)regx_min(REGX_VERBS_OUTSTANDING,
                           completions > others + can->depth ? completions - others : can->depth);
}

/* An address that can be given to peers. */
static regx_status_t fill_address(regx_verbs_t *verbs, regx_error_t error)
{
    const struct ibv_port_attr *attr = &verbs->port.attr;
    const uint16_t wanted = verbs->settings.pkey, full = 0x8000;
    regx_verbs_address_t *address = &verbs->address;
    char keys[128] = "";
    size_t length = 0;
    __be16 entry;

    address->version = REGX_VERBS_VERSION;
    address->link_layer =
        attr->link_layer == IBV_LINK_LAYER_ETHERNET ? REGX_VERBS_ETHERNET : REGX_VERBS_INFINIBAND;
    address->gid_type = verbs->port.gid.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 0;
    address->lid = attr->lid;
    memcpy(address->gid, verbs->port.gid.gid.raw, REGX_VERBS_GID_SIZE);
    address->flags =
        (uint8_t)(((attr->flags & IBV_QPF_GRH_REQUIRED) != 0 ? REGX_VERBS_NEEDS_GRH : 0) |
                  (verbs->settings.any_subnet && address->link_layer == REGX_VERBS_ETHERNET
                       ? REGX_VERBS_ANY_SUBNET
                       : 0));
    address->network_bits = verbs->port.network_bits;
    address->mtu = (uint8_t)attr->active_mtu;
    /* Where the partition's key stands in the port's table: the first that may be it and is of full
     * membership, since two limited members cannot talk, else the first that may be it. */
    for (uint16_t i = 0; i < verbs->port.attr.pkey_tbl_len; i++) {
        if (ibv_query_pkey(verbs->port.context, verbs->port.number, i, &entry) != 0 || entry == 0) {
            continue;
        }
        const uint16_t pkey = be16toh(entry);
        if ((wanted == 0 || ((pkey ^ wanted) & ~full) == 0) &&
            (address->pkey == 0 || (pkey & ~address->pkey & full) != 0)) {
            verbs->pkey_index = i;
            address->pkey = pkey;
        }
        if (length < sizeof(keys)) {
            length += (size_t)snprintf(keys + length, sizeof(keys) - length, " %#x", pkey);
        }
    }
    return address->pkey != 0
               ? REGX_OK
               : regx_refuse(error, REGX_INVALID,
                             "verbs_pkey=%#x: port %s is in no such partition; there are:%s",
                             wanted, verbs->port.name, keys);
}

/* Opens all of it: what is open when it fails, verbs_free closes. */
static regx_status_t open_all(regx_verbs_t *verbs, regx_error_t error)
{
    /* A kernel that does not copy pinned pages for a child may leave them to it: what the device then
     * writes, the parent does not see. There the library keeps registered pages from children. */
    const int cause = ibv_is_fork_initialized() == IBV_FORK_DISABLED ? ibv_fork_init() : 0;

    if (cause != 0) {
        return regx_refuse(
            error, REGX_UNREACHABLE,
            "this kernel needs ibv_fork_init for programs that fork, which fails (%s), as it "
            "does once memory is registered; set RDMAV_FORK_SAFE=1 in the job's environment",
            strerror(cause));
    }
    regx_status_t status =
        regx_verbs_port_open(verbs->config.device, verbs->settings.gid_index, error, &verbs->port);
    if (status != REGX_OK) {
        return status;
    }
    struct ibv_context *context = verbs->port.context;
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    read_limits(verbs);
    verbs->traffic_class = verbs->settings.traffic_class >= 0
                               ? (uint8_t)verbs->settings.traffic_class
                               : regx_verbs_port_traffic_class(&verbs->port);
    status = fill_address(verbs, error);
    if (status != REGX_OK) {
        return status;
    }
    verbs->pd = ibv_alloc_pd(context);
    if (verbs->pd == NULL) {
        return regx_verbs_port_refuse(&verbs->port, "protection domain", error);
    }
    verbs->cq = ibv_create_cq(
        context,
        (int)(verbs->requests.max + verbs->buffers.receives + REGX_CM_RECEIVES + REGX_CM_SENDS),
        NULL, NULL, 0);
    if (verbs->cq == NULL) {
        return regx_verbs_port_refuse(&verbs->port, "completion queue", error);
    }
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = verbs->buffers.receives, .max_sge = 1}};
    verbs->srq = ibv_create_srq(verbs->pd, &srq);
    if (verbs->srq == NULL) {
        return regx_verbs_port_refuse(&verbs->port, "shared receive queue", error);
    }
    status = regx_qp_probe(verbs, error);
    if (status == REGX_OK) {
        status = regx_cm_open(verbs, error);
    }
    return status == REGX_OK ? regx_verbs_buffers_open(verbs, error) : status;
}

/* Frees what was opened; also of an opening that failed half-way. */
static void verbs_free(regx_verbs_t *verbs)
{
    if (verbs->port.context != NULL) {
        regx_verbs_port_has_device(&verbs->port);
        regx_verbs_port_has_events(&verbs->port);
    }
    regx_cm_close(verbs);
    if (verbs->srq != NULL) {
        ibv_destroy_srq(verbs->srq);
    }
    if (verbs->cq != NULL) {
        ibv_destroy_cq(verbs->cq);
    }
    regx_verbs_buffers_close(verbs);
    if (verbs->pd != NULL) {
        ibv_dealloc_pd(verbs->pd);
    }
    if (verbs->port.context != NULL) {
        ibv_close_device(verbs->port.context);
    }
    regx_lock_fini(&verbs->conns.lock);
    regx_lock_fini(&verbs->lock);
    free(verbs);
}

static regx_status_t verbs_open(const regx_transport_config_t *config, regx_error_t error,
                                regx_transport_t **transport)
{
    const regx_verbs_settings_t *settings = config->settings;
    regx_verbs_t *verbs = calloc(1, sizeof(*verbs));

    if (verbs == NULL) {
        return regx_refuse(error, REGX_NO_MEMORY, "out of memory");
    }
    verbs->lock =
        (regx_lock_t){.mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, .real = config->threads};
    regx_lock_init(&verbs->conns.lock, config->threads);
    regx_list_init(&verbs->table.eps);
    regx_list_init(&verbs->ending);
    regx_list_init(&verbs->turns);
    regx_list_init(&verbs->cm.waiting);
    for (unsigned i = 0; i < REGX_VERBS_BUCKETS; i++) {
        regx_list_init(&verbs->table.by_peer[i]);
        regx_list_init(&verbs->table.by_qpn[i]);
        regx_list_init(&verbs->conns.by_peer[i]);
    }
    verbs->super.ops = &regx_transport_ops;
    verbs->config = *config;
    verbs->settings = settings != NULL ? *settings : defaults;
    /* Greater than those of a process before us. */
    verbs->table.last_epoch = (uint64_t)regx_now_ns();
    const regx_status_t status = open_all(verbs, error);
    if (status != REGX_OK) {
        verbs_free(verbs);
        return status;
    }
    verbs->super.max_frame = REGX_VERBS_FRAME_MAX;
    verbs->super.max_zcopy = REGX_VERBS_FRAME_MAX;
    snprintf(verbs->wires, sizeof(verbs->wires), "verbs:%s", verbs->port.name);
    verbs->super.wires = verbs->wires;
    verbs->super.registers = true;
    verbs->super.put_inflight_max = PUT_INFLIGHT_MAX;
    verbs->super.megabits = verbs->port.megabits;
    verbs->super.latency =
        verbs->port.megabits != 0 ? LATENCY + SMALL_BITS / verbs->port.megabits : 0;
    verbs->sent = regx_tally_find(config->counters->ports, verbs->port.name);
    *transport = &verbs->super;
    return REGX_OK;
}

/* One of several looks that wait for an end, of which there were so many before. What completes
 * meanwhile of others is handled. A device that failed may complete nothing any more. One whose peer
 * is gone tries for seconds, in which others may need this core. */
static void advance_ends(regx_verbs_t *verbs, unsigned *looks)
{
    const struct timespec pause = {.tv_nsec = 50000};

    if (++*looks > LOOKS_AT_ONCE) {
        nanosleep(&pause, NULL);
    }
    regx_verbs_look(verbs);
    regx_cm_end(verbs, regx_verbs_poll(verbs));
}

static void verbs_close(regx_transport_t *transport)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    unsigned looks = 0;

    regx_lock(&verbs->lock);
    verbs->closing = true;
    for (regx_link_t *at = verbs->table.eps.next; at != &verbs->table.eps; at = at->next) {
        regx_cm_leave(REGX_CONTAINER_OF(at, regx_ep_t, link)); /* also from peers that only sent */
    }
    while (!regx_list_empty(&verbs->table.eps)) { /* all send goodbye, and it arrives */
        advance_ends(verbs, &looks);
    }
    regx_unlock(&verbs->lock);
    verbs_free(verbs);
}

static size_t verbs_address(regx_transport_t *transport, void *buffer)
{
    memcpy(buffer, &regx_verbs_of(transport)->address, REGX_VERBS_ADDRESS_SIZE);
    return REGX_VERBS_ADDRESS_SIZE;
}

static bool can_reach(const regx_verbs_t *verbs, const regx_verbs_address_t *address)
{
    const uint16_t membership = 0x8000; /* full; two limited members cannot talk */

    return address->link_layer == verbs->address.link_layer &&
           address->gid_type == verbs->address.gid_type &&
           regx_verbs_share_subnet(address, &verbs->address) &&
           ((address->pkey ^ verbs->address.pkey) & ~membership) == 0 &&
           ((address->pkey | verbs->address.pkey) & membership) != 0;
}

static bool verbs_reaches(const regx_transport_t *transport, const void *bytes, size_t length,
                          bool same_node)
{
    regx_verbs_address_t address;

    (void)same_node; /* ports lead to both */
    return regx_verbs_address_read(bytes, length, &address) &&
           can_reach((const regx_verbs_t *)transport, &address);
}

static regx_status_t verbs_connect(regx_transport_t *transport, uint64_t peer, const void *bytes,
                                   size_t length, regx_conn_t **out)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    regx_verbs_address_t address;

    if (!regx_verbs_address_read(bytes, length, &address)) {
        return REGX_INVALID;
    }
    /* The smaller packets of two processes are used. */
    if (128u << address.mtu < transport->on_demand_grain) {
        regx_transport_fall_back(&verbs->config, REGX_TRACE_CONNECTION,
                                 "verbs: a peer's packets are too small for odp here");
        return REGX_UNREACHABLE;
    }
    if (!can_reach(verbs, &address)) {
        return REGX_UNREACHABLE;
    }
    regx_verbs_conn_t *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    conn->super = (regx_conn_t){.transport = transport, .peer = peer};
    conn->address = address;
    regx_lock(&verbs->conns.lock);
    regx_list_append(regx_verbs_bucket(verbs->conns.by_peer, peer), &conn->link);
    regx_unlock(&verbs->conns.lock);
    *out = &conn->super;
    return REGX_OK;
}

static void verbs_disconnect(regx_conn_t *super)
{
    regx_verbs_conn_t *conn = (regx_verbs_conn_t *)super;
    regx_verbs_t *verbs = regx_verbs_of(super->transport);
    unsigned looks = 0;

    regx_lock(&verbs->lock);
    regx_ep_t *const ep = conn->ep;
    if (ep != NULL && regx_sq_touches(ep)) { /* puts and zcopies end here */
        ep->leaves = true;
        regx_ep_break(ep, "disconnected", "with work under way");
        regx_cm_end(verbs, false); /* nothing of the peer is heard any more */
        while (conn->ep == ep) {
            advance_ends(verbs, &looks);
        }
    }
    regx_lock(&verbs->conns.lock);
    regx_list_remove(&conn->link);
    regx_unlock(&verbs->conns.lock);
    if (conn->ep != NULL) {
        conn->ep->conn = NULL;
        regx_cm_leave(conn->ep);
        regx_cm_end(verbs, false);
    }
    regx_unlock(&verbs->lock);
    free(conn);
}

static regx_status_t verbs_reg(regx_transport_t *transport, void *base, size_t length,
                               unsigned access, regx_mr_t *mr)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    const bool on_demand = (access & REGX_ACCESS_ON_DEMAND) != 0;
    const regx_verbs_limits_t *can = &verbs->can;
    const int flags = regx_verbs_access(access);

    /* What is only to be written here is to be read from elsewhere. */
    if (on_demand && ((flags & IBV_ACCESS_REMOTE_READ) != 0 || flags == IBV_ACCESS_LOCAL_WRITE) &&
        ((can->odp & IBV_ODP_SUPPORT_READ) == 0 || can->reads_made == 0 ||
         can->reads_answered == 0)) {
        return REGX_INVALID; /* the device does not read on demand */
    }
    struct ibv_mr *handle =
        regx_verbs_register(verbs, base, length, flags | (on_demand ? IBV_ACCESS_ON_DEMAND : 0));

    if (handle == NULL) {
        return on_demand && errno == EOPNOTSUPP ? REGX_INVALID : regx_verbs_refusal(errno);
    }
    const regx_verbs_key_t key = {.base = (uintptr_t)base, .length = length, .rkey = handle->rkey};
    *mr = (regx_mr_t){.base = base, .length = length, .access = access, .handle = handle};
    memcpy(mr->key.bytes, &key, sizeof(key));
    return REGX_OK;
}

static void verbs_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_verbs_port_has_device(&regx_verbs_of(transport)->port);
    ibv_dereg_mr(mr->handle);
}

/* Frames lie in the transport's own memory, which is pinned, so receiving need not be possible on
 * demand; what needs READ is refused by reg. Soft-RoCE forgets where in a page a packet begins
 * (seen in Linux 7.2). What begins where a page does, in packets of a page each, is right. */
static regx_status_t verbs_on_demand(regx_transport_t *transport, regx_error_t error)
{
    regx_verbs_t *verbs = regx_verbs_of(transport);
    struct ibv_device_attr_ex attr = {0};

    if (ibv_query_device_ex(verbs->port.context, NULL, &attr) != 0 ||
        (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) {
        return regx_refuse(error, REGX_DENIED,
                           "%s, or its driver in this kernel, has no on-demand paging",
                           verbs->port.name);
    }
    verbs->can.odp = attr.odp_caps.per_transport_caps.rc_odp_caps;
    if ((verbs->can.odp & IBV_ODP_SUPPORT_WRITE) == 0) {
        return regx_refuse(
            error, REGX_DENIED,
            "%s has on-demand paging, but not for RDMA WRITE over reliable connections",
            verbs->port.name);
    }
    transport->on_demand_grain = verbs->port.device.vendor_id == SOFT_ROCE ? regx_page_size() : 1;
    if ((128u << verbs->address.mtu) < transport->on_demand_grain) {
        return regx_refuse(error, REGX_DENIED,
                           "%s is Soft-RoCE, which errs on demand in packets of %u bytes",
                           verbs->port.name, 128u << verbs->address.mtu);
    }
    return REGX_OK;
}

static regx_status_t verbs_prefetch(regx_transport_t *transport, const regx_mr_t *mr,
                                    const void *base, size_t length, bool wait)
{
    const struct ibv_mr *handle = mr->handle;
    const uint32_t flags = wait ? IBV_ADVISE_MR_FLAG_FLUSH : 0;
    const enum ib_uverbs_advise_mr_advice advice = (mr->access & REGX_ACCESS_ANY_WRITE) != 0
                                                       ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
                                                       : IBV_ADVISE_MR_ADVICE_PREFETCH;
    struct ibv_sge segment = {.addr = (uintptr_t)base, .lkey = handle->lkey};

    regx_verbs_port_has_device(&regx_verbs_of(transport)->port);
    for (size_t left = length; left > 0; left -= segment.length) {
        segment.length = left < PREFETCH_MAX ? (uint32_t)left : PREFETCH_MAX;
        if (ibv_advise_mr(regx_verbs_of(transport)->pd, advice, flags, &segment, 1) != 0) {
            return REGX_DENIED;
        }
        segment.addr += segment.length;
    }
    return REGX_OK;
}

const regx_transport_ops_t regx_transport_ops = {.abi = REGX_TRANSPORT_ABI,
                                                 .name = "verbs",
                                                 .devices = regx_verbs_ports_find,
                                                 .open = verbs_open,
                                                 .close = verbs_close,
                                                 .address = verbs_address,
                                                 .reaches = verbs_reaches,
                                                 .connect = verbs_connect,
                                                 .disconnect = verbs_disconnect,
                                                 .reachable = regx_cm_may_answer,
                                                 .send = regx_verbs_send,
                                                 .send_zcopy = regx_verbs_send_zcopy,
                                                 .put = regx_verbs_put,
                                                 .get = regx_verbs_get,
                                                 .reg = verbs_reg,
                                                 .dereg = verbs_dereg,
                                                 .on_demand = verbs_on_demand,
                                                 .prefetch = verbs_prefetch,
                                                 .progress = regx_verbs_progress};
