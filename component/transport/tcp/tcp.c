/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Opening and closing of tcp.
 *
 * Settings of UCX that the user may have in the environment (UCX_TCP_…) hold, but for those that
 * both ends must agree about or that would make it wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transport/tcp/tcp_device.h"
#include "transport/tcp/tcp_internal.h"
#include "transport/uct/component.h"
#include "transport/uct/log.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

/* The segments must take the largest message, and the peer's be as large as ours. 65640 is
 * REGX_TCP_MESSAGE_MAX, spelled for UCX. */
#define SEGMENT_SIZE 65640
_Static_assert(SEGMENT_SIZE == REGX_TCP_MESSAGE_MAX, "spelled for UCX");

static const struct setting {
    const char *name;
    const char *value;
} settings[] = {
    {"TX_SEG_SIZE", STRING(SEGMENT_SIZE)},
    {"RX_SEG_SIZE", STRING(SEGMENT_SIZE)},
    {"CONN_NB", "y"}, /* connect without waiting */
};

/* Chooses among the devices that UCX offers. */
static regx_status_t choose_device(regx_tcp_t *tcp, char *error, size_t error_size)
{
    const regx_tcp_device_t *chosen = NULL;
    regx_tcp_device_t *devices = NULL;
    uct_tl_resource_desc_t *resources;
    const char **offered;
    unsigned count;
    size_t device_count;
    regx_status_t status;

    if (uct_md_query_tl_resources(tcp->md, &resources, &count) != UCS_OK) {
        snprintf(error, error_size, "UCX cannot list the network devices");
        return REGX_UNREACHABLE;
    }
    offered = calloc(count + 1, sizeof(*offered));
    for (unsigned i = 0; offered != NULL && i < count; i++) {
        offered[i] = resources[i].dev_name;
    }
    status = offered == NULL ? REGX_NO_MEMORY
                             : regx_tcp_list_devices(offered, count, &devices, &device_count);
    free(offered);
    uct_release_tl_resource_list(resources);
    if (status != REGX_OK) {
        snprintf(error, error_size, "the network devices cannot be listed");
        return status == REGX_NO_MEMORY ? status : REGX_UNREACHABLE;
    }
    status = regx_tcp_choose_device(devices, device_count, tcp->config.if_include,
                                    tcp->config.if_exclude, &chosen, error, error_size);
    if (status == REGX_OK) {
        snprintf(tcp->device, sizeof(tcp->device), "%s", chosen->name);
    }
    free(devices);
    return status;
}

/* Since UCX 1.17 the name of a setting begins with its table's prefix; before, it must not. */
static ucs_status_t change(uct_iface_config_t *config, const struct setting *setting)
{
    char name[32];
    ucs_status_t status = uct_config_modify(config, setting->name, setting->value);

    if (status == UCS_ERR_NO_ELEM) {
        snprintf(name, sizeof(name), "TCP_%s", setting->name);
        status = uct_config_modify(config, name, setting->value);
    }
    return status;
}

static ucs_status_t open_iface(regx_tcp_t *tcp)
{
    const uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE | UCT_IFACE_PARAM_FIELD_DEVICE |
                      UCT_IFACE_PARAM_FIELD_RX_HEADROOM | UCT_IFACE_PARAM_FIELD_ERR_HANDLER |
                      UCT_IFACE_PARAM_FIELD_ERR_HANDLER_ARG |
                      UCT_IFACE_PARAM_FIELD_ERR_HANDLER_FLAGS,
        .open_mode = UCT_IFACE_OPEN_MODE_DEVICE,
        .mode.device = {.tl_name = "tcp", .dev_name = tcp->device},
        .err_handler = regx_tcp_endpoint_broke,
        .err_handler_arg = tcp};
    uct_iface_config_t *config;
    ucs_status_t status = uct_md_iface_config_read(tcp->md, "tcp", NULL, NULL, &config);

    if (status != UCS_OK) {
        return status;
    }
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]) && status == UCS_OK; i++) {
        status = change(config, &settings[i]);
    }
    if (status == UCS_OK) {
        status = uct_iface_open(tcp->md, tcp->worker, &params, config, &tcp->iface);
    }
    uct_config_release(config);
    return status;
}

/* Checks that the interface can do what this file relies on, and takes its address. */
static ucs_status_t query_iface(regx_tcp_t *tcp)
{
    const uint64_t needed = UCT_IFACE_FLAG_AM_BCOPY | UCT_IFACE_FLAG_AM_ZCOPY |
                            UCT_IFACE_FLAG_PENDING | UCT_IFACE_FLAG_CONNECT_TO_IFACE;
    uct_iface_attr_t attr;
    ucs_status_t status = uct_iface_query(tcp->iface, &attr);

    if (status != UCS_OK) {
        return status;
    }
    if ((attr.cap.flags & needed) != needed || attr.cap.am.max_bcopy < REGX_TCP_MESSAGE_MAX ||
        attr.cap.am.max_zcopy < REGX_TCP_MESSAGE_MAX || attr.cap.am.max_hdr < REGX_TCP_HEAD_MAX ||
        attr.device_addr_len > REGX_TCP_UCT_ADDRESS_MAX ||
        attr.iface_addr_len > REGX_TCP_UCT_ADDRESS_MAX) {
        return UCS_ERR_UNSUPPORTED;
    }
    tcp->device_address.length = (uint8_t)attr.device_addr_len;
    tcp->iface_address.length = (uint8_t)attr.iface_addr_len;
    status = uct_iface_get_device_address(tcp->iface, (void *)tcp->device_address.bytes);
    if (status == UCS_OK) {
        status = uct_iface_get_address(tcp->iface, (void *)tcp->iface_address.bytes);
    }
    return status;
}

/* What the watch waits for. UCT's address of the interface begins with its port. */
static void find_descriptors(regx_tcp_t *tcp)
{
    uint16_t port;

    if (uct_iface_event_fd_get(tcp->iface, &tcp->events_fd) != UCS_OK) {
        tcp->events_fd = -1;
    }
    memcpy(&port, tcp->iface_address.bytes, sizeof(port));
    tcp->listener_fd = regx_tcp_watch_find_listener(port);
}

/* The worker is SINGLE as far as UCX is concerned: it is entered by one thread at a time, and UCX
 * makes no difference between that and always the same thread. */
static ucs_status_t start(regx_tcp_t *tcp)
{
    ucs_status_t status = ucs_async_context_create(UCS_ASYNC_MODE_POLL, &tcp->async);

    if (status == UCS_OK) {
        status = uct_worker_create(tcp->async, UCS_THREAD_MODE_SINGLE, &tcp->worker);
    }
    if (status == UCS_OK) {
        status = open_iface(tcp);
    }
    if (status == UCS_OK) {
        status = query_iface(tcp);
    }
    if (status == UCS_OK) {
        status = uct_iface_set_am_handler(tcp->iface, REGX_TCP_AM_ID, regx_tcp_receive, tcp, 0);
    }
    if (status == UCS_OK) {
        uct_iface_progress_enable(tcp->iface, UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
        find_descriptors(tcp);
    }
    return status;
}

static regx_status_t make_pool(regx_tcp_t *tcp)
{
    tcp->super.pool_size = tcp->config.pool_size;
    tcp->super.pool_memory = tcp->config.pool_memory;
    if (tcp->super.pool_memory != NULL) {
        return REGX_OK;
    }
    tcp->own_pool = mmap(NULL, tcp->super.pool_size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (tcp->own_pool == MAP_FAILED) {
        tcp->own_pool = NULL;
        return REGX_NO_MEMORY;
    }
    tcp->super.pool_memory = tcp->own_pool;
    return REGX_OK;
}

static regx_status_t open_device(regx_tcp_t *tcp, char *error, size_t error_size)
{
    uct_component_h component = regx_uct_component("tcp");
    regx_status_t status;
    ucs_status_t ucs_status;

    if (component == NULL || regx_uct_open_md(component, "tcp", &tcp->md) != REGX_OK) {
        snprintf(error, error_size, "UCX offers no tcp here");
        return REGX_UNREACHABLE;
    }
    status = choose_device(tcp, error, error_size);
    if (status != REGX_OK) {
        return status;
    }
    ucs_status = start(tcp);
    if (ucs_status != UCS_OK) {
        snprintf(error, error_size, "UCX cannot use tcp on %s: %s", tcp->device,
                 ucs_status_string(ucs_status));
        return REGX_UNREACHABLE;
    }
    return REGX_OK;
}

static void tcp_close(regx_transport_t *transport)
{
    regx_tcp_t *tcp = regx_tcp_of(transport);

    regx_tcp_watch_stop(&tcp->watch);
    regx_uct_log_suppress(true); /* who is still connecting to this process finds nobody any more */
    while (tcp->closing != NULL) {
        ucs_async_poll(tcp->async);
        uct_worker_progress(tcp->worker);
        regx_tcp_reap(tcp);
    }
    if (tcp->iface != NULL) {
        uct_iface_close(tcp->iface);
    }
    if (tcp->worker != NULL) {
        uct_worker_destroy(tcp->worker);
    }
    if (tcp->async != NULL) {
        ucs_async_context_destroy(tcp->async);
    }
    if (tcp->md != NULL) {
        uct_md_close(tcp->md);
    }
    regx_uct_log_suppress(false);
    if (tcp->own_pool != NULL) {
        munmap(tcp->own_pool, tcp->super.pool_size);
    }
    regx_try_lock_fini(&tcp->try_lock);
    regx_tcp_talkers_fini(&tcp->talkers);
    free(tcp);
}

static regx_status_t tcp_open(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_transport_t **transport)
{
    regx_tcp_t *tcp = calloc(1, sizeof(*tcp));
    regx_status_t status;

    snprintf(error, error_size, "out of memory");
    if (tcp == NULL) {
        return REGX_NO_MEMORY;
    }
    tcp->config = *config;
    tcp->pace.quiet_ns = REGX_TCP_IDLE_NS;
    tcp->newcomers.quiet_ns = tcp->newcomers.busy_ns = REGX_TCP_NEWCOMERS_NS;
    regx_try_lock_init(&tcp->try_lock, config->threads);
    tcp->super.ops = &regx_tcp_ops;
    tcp->super.front = &tcp->super;
    tcp->super.max_frame = REGX_TCP_DATA_MAX;
    tcp->super.wires = "tcp";
    atomic_init(&tcp->super.unused, true);
    status = make_pool(tcp);
    if (status == REGX_OK) {
        status = open_device(tcp, error, error_size);
    }
    if (status != REGX_OK) {
        if (status != REGX_INVALID) {
            regx_transport_fall_back(config, REGX_TRACE_CHOICE, "tcp: cannot be opened");
        }
        tcp_close(&tcp->super);
        return status;
    }
    *transport = &tcp->super;
    return REGX_OK;
}

const regx_transport_ops_t regx_tcp_ops = {.abi = REGX_TRANSPORT_ABI,
                                           .name = "tcp",
                                           .open = tcp_open,
                                           .close = tcp_close,
                                           .address = regx_tcp_address,
                                           .connect = regx_tcp_connect,
                                           .disconnect = regx_tcp_disconnect,
                                           .reachable = regx_tcp_reachable,
                                           .send = regx_tcp_send,
                                           .send_zcopy = regx_tcp_send_zcopy,
                                           .put = regx_tcp_put,
                                           .progress = regx_tcp_progress};
