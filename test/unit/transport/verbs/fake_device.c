/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Devices in memory: ports, devices, events and registered memory.
 */
#include "fake_device.h"

#include <endian.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_parts.h"

#undef ibv_reg_mr
#undef ibv_query_port

fake_t fake;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct mr {
    struct ibv_mr super;
    int access;
    struct mr *next;
} mr_t;

static struct ibv_device devices[FAKE_DEVICES];
static mr_t *mrs;
static _Atomic uint32_t last_number = 0x100; /* of several threads */

/* The address that RoCE gives an IPv4 address. */
static void fake_gid(uint8_t gid[16], uint8_t network, uint8_t host)
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
                          .lid = (uint16_t)fake.count,
                          .gid_type = IBV_GID_TYPE_ROCE_V2,
                          .pkeys = {0xffff, 0x8123},
                          .netmask = 0xffffff00,
                          .inline_max = 1024};
    fake_gid(port->gid, network, host);
    return port;
}

void fake_make_infiniband(fake_port_t *port, uint8_t subnet)
{
    const uint8_t gid[16] = {0xfe, 0x80, [7] = subnet, [15] = (uint8_t)port->lid};

    port->link_layer = IBV_LINK_LAYER_INFINIBAND;
    port->gid_type = IBV_GID_TYPE_IB;
    memcpy(port->gid, gid, sizeof(gid));
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

fake_context_t *fake_context_of(struct ibv_context *context)
{
    return (fake_context_t *)((char *)context - offsetof(fake_context_t, verbs.context));
}

uint32_t fake_next_number(void)
{
    return ++last_number;
}

/* A library uses what number it has, whatever file that is. */
static bool use(int fd, const struct stat *own)
{
    struct stat now = {0};

    if (fd < 0) {
        errno = EBADF;
        return false;
    }
    fstat(fd, &now);
    fake.strays += now.st_dev != own->st_dev || now.st_ino != own->st_ino;
    return true;
}

bool fake_ask(struct ibv_context *context)
{
    return use(context->cmd_fd, &fake_context_of(context)->control);
}

void fake_tell(struct ibv_context *context, const struct ibv_async_event *event)
{
    fake_context_t *own = fake_context_of(context);

    if (own->event_count < FAKE_EVENTS) {
        own->events[own->event_count++] = *event;
    }
}

void fake_untell(const struct ibv_qp *qp)
{
    fake_context_t *own = fake_context_of(qp->context);

    for (int i = own->event_count - 1; i >= 0; i--) {
        if (own->events[i].element.qp == qp) {
            own->event_count--;
            memmove(own->events + i, own->events + i + 1,
                    (size_t)(own->event_count - i) * sizeof(own->events[0]));
        }
    }
}

bool fake_is_registered(uint32_t key, uint64_t address, uint64_t length, int access)
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
    const fake_port_t *port = fake_context_of(context)->port;
    const struct ibv_port_attr known = {.state = port->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
                                        .active_mtu = IBV_MTU_4096,
                                        .max_msg_sz = port->message_untold     ? 0
                                                      : port->message_max != 0 ? port->message_max
                                                                               : 1u << 31,
                                        .pkey_tbl_len = FAKE_PKEYS,
                                        .lid = port->lid,
                                        .link_layer = port->link_layer,
                                        .flags = port->port_flags};

    memset(attr, 0, size);
    memcpy(attr, &known, size < sizeof(known) ? size : sizeof(known));
    return number == 1 ? 0 : EINVAL;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    if (fake.ports[device - devices].open_error != 0) {
        errno = fake.ports[device - devices].open_error;
        return NULL;
    }
    fake_context_t *context = calloc(1, sizeof(*context));

    context->port = &fake.ports[device - devices];
    context->verbs.sz = sizeof(context->verbs);
    context->verbs.query_port = query_port;
    context->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    context->verbs.context.device = device;
    context->verbs.context.cmd_fd = memfd_create("fake", MFD_CLOEXEC);
    context->verbs.context.async_fd = memfd_create("fake", MFD_CLOEXEC);
    fstat(context->verbs.context.cmd_fd, &context->control);
    fstat(context->verbs.context.async_fd, &context->told);
    fake_queues_serve(&context->verbs.context.ops);
    return &context->verbs.context; // cppcheck-suppress memleak
}

int ibv_close_device(struct ibv_context *context)
{
    if (fake_ask(context)) {
        close(context->cmd_fd);
    }
    if (use(context->async_fd, &fake_context_of(context)->told)) {
        close(context->async_fd);
    }
    free(fake_context_of(context));
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    const fake_port_t *port = fake_context_of(context)->port;

    *attr = (struct ibv_device_attr){.vendor_id = port->vendor,
                                     .phys_port_cnt = 1,
                                     .max_cqe = 1 << 16,
                                     .max_mr = 1 << 16,
                                     .max_mr_size = UINT64_MAX,
                                     .max_qp_wr = port->depth != 0 ? (int)port->depth : 1 << 12,
                                     .max_srq_wr = port->srq_error != 0 ? 0 : 1 << 13,
                                     .max_qp_rd_atom = 16,
                                     .max_qp_init_rd_atom = 16};
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index, __be16 *pkey)
{
    *pkey = htobe16(fake_context_of(context)->port->pkeys[index]);
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                             size_t most, uint32_t flags, size_t size)
{
    const fake_port_t *port = fake_context_of(context)->port;

    if (port->without_gid || most < 2) {
        return 0;
    }
    for (uint32_t i = 0; i < 2; i++) { /* another index for the same */
        const bool worse = i == 0 && memcmp(port->worse, (uint8_t[16]){0}, 16) != 0;

        entries[i] = (struct ibv_gid_entry){
            .gid_index = port->gid_index + i, .port_num = 1, .gid_type = port->gid_type};
        memcpy(entries[i].gid.raw, worse ? port->worse : port->gid, sizeof(port->gid));
    }
    return 2;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    fake_context_t *own = fake_context_of(context);

    if (!use(context->async_fd, &own->told)) {
        return -1;
    }
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
}

/* The network devices of the ports: each has the port's IPv4 address. */
typedef struct interface {
    struct ifaddrs super;
    struct sockaddr_in address, mask;
} interface_t;

static void add_interface(struct ifaddrs **list, const fake_port_t *port, const uint8_t gid[16],
                          bool down)
{
    interface_t *interface = calloc(1, sizeof(*interface));

    interface->address.sin_family = interface->mask.sin_family = AF_INET;
    memcpy(&interface->address.sin_addr, gid + 12, 4);
    interface->mask.sin_addr.s_addr = htobe32(port->netmask);
    interface->super = (struct ifaddrs){.ifa_next = *list,
                                        .ifa_flags = down ? 0 : IFF_UP | IFF_RUNNING,
                                        .ifa_addr = (struct sockaddr *)&interface->address,
                                        .ifa_netmask = (struct sockaddr *)&interface->mask};
    *list = &interface->super;
}

int getifaddrs(struct ifaddrs **list)
{
    *list = NULL;
    for (int i = 0; i < fake.count; i++) {
        const fake_port_t *port = &fake.ports[i];

        add_interface(list, port, port->gid, false);
        if (!port->without_interface) {
            add_interface(list, port, port->worse, port->interface_down);
        }
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
    FILE *maps = fopen("/proc/thread-self/maps", "re");
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
    if (!fake_ask(pd->context)) {
        return NULL;
    }
    if (fake.register_error != 0) {
        errno = fake.register_error;
        return NULL;
    }
    const bool is_relaxed = (access & IBV_ACCESS_RELAXED_ORDERING) != 0;
    if (fake.relaxed_only && !is_relaxed) {
        errno = EINVAL;
        return NULL;
    }
    mr_t *mr = calloc(1, sizeof(*mr));

    mr->super = (struct ibv_mr){.context = pd->context,
                                .pd = pd,
                                .addr = base,
                                .length = length,
                                .rkey = fake_next_number()};
    mr->super.lkey = mr->super.rkey;
    mr->access = access;
    pthread_mutex_lock(&fake_lock);
    mr->next = mrs;
    mrs = mr;
    fake.relaxed += is_relaxed;
    fake.strict += !is_relaxed;
    pthread_mutex_unlock(&fake_lock);
    return &mr->super;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                unsigned int access)
{
    return ibv_reg_mr(pd, base, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *super)
{
    mr_t **at = &mrs, *mr = (mr_t *)super;

    fake_ask(super->context);
    pthread_mutex_lock(&fake_lock);
    while (*at != mr) {
        at = &(*at)->next;
    }
    *at = mr->next;
    pthread_mutex_unlock(&fake_lock);
    free(mr);
    return 0;
}
