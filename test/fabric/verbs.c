/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport named verbs for machines without an RDMA device: its ports are tcp connections by the
 * uct transport. It registers memory and counts what each port sends, as verbs does, so that the
 * choice between uct and verbs can be tested where there is only a network.
 *
 * REGX_TEST_PORTS in the environment: the ports' names, comma-separated, each with the fabric that
 * it is on: "fake0:1@a,fake1:1@b". Ports of different fabrics do not reach each other. With
 * REGX_TEST_UNUSABLE=TEXT none is usable, and that is why.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mux/params.h"
#include "transport/transport.h"

/* The object's face, completed once the uct transport is loaded. */
__attribute__((visibility("default"))) regx_transport_ops_t regx_transport_ops;

static const regx_transport_ops_t *uct;

static struct port {
    regx_transport_t *transport;
    regx_tally_t *sent;
    char name[48];
    char fabric; /* a letter */
} ports[REGX_DEVICES_MAX];

static const char *listed_ports(void)
{
    const char *list = getenv("REGX_TEST_PORTS");

    return list != NULL ? list : "fake0:1@a";
}

static regx_status_t list_devices(const regx_transport_config_t *config, char *error,
                                  size_t error_size, regx_device_name_t names[REGX_DEVICES_MAX],
                                  size_t *count)
{
    const char *unusable = getenv("REGX_TEST_UNUSABLE");

    *count = 0;
    if (unusable != NULL) {
        snprintf(error, error_size, "%s", unusable);
        return REGX_UNREACHABLE;
    }
    for (const char *at = listed_ports(); *at != '\0'; at += at[0] == ',') {
        const size_t length = strcspn(at, ",");
        const size_t device = strcspn(at, ":");
        char name[sizeof(regx_device_name_t)];

        snprintf(name, sizeof(name), "%.*s", (int)device, at);
        if (config->if_include == NULL || strstr(config->if_include, name) != NULL) {
            snprintf(names[(*count)++], sizeof(names[0]), "%.*s", (int)length, at);
        }
        at += length;
    }
    if (*count == 0) {
        snprintf(error, error_size, "if_include=%s: names no port", config->if_include);
        return REGX_INVALID;
    }
    return REGX_OK;
}

static struct port *port_of(const regx_transport_t *transport)
{
    for (unsigned i = 0; i < REGX_DEVICES_MAX; i++) {
        if (ports[i].transport == transport) {
            return &ports[i];
        }
    }
    return NULL;
}

static regx_status_t open_port(const regx_transport_config_t *config, char *error,
                               size_t error_size, regx_transport_t **transport)
{
    const regx_mux_settings_t settings = {.tls = "tcp"};
    regx_transport_config_t over_tcp = *config;
    struct port *port = port_of(NULL);

    over_tcp.settings = &settings;
    over_tcp.if_include = over_tcp.if_exclude = NULL;
    const regx_status_t status = uct->open(&over_tcp, error, error_size, transport);
    if (status != REGX_OK) {
        return status;
    }
    const char *at = strchr(config->device, '@');
    snprintf(port->name, sizeof(port->name), "verbs:%.*s", (int)(at - config->device),
             config->device);
    port->fabric = at[1];
    port->transport = *transport;
    port->sent = regx_tally_find(config->counters->ports, port->name + strlen("verbs:"));
    (*transport)->ops = &regx_transport_ops;
    (*transport)->wires = port->name;
    (*transport)->registers = true;
    return REGX_OK;
}

static void close_port(regx_transport_t *transport)
{
    port_of(transport)->transport = NULL;
    uct->close(transport);
}

static size_t address(regx_transport_t *transport, void *buffer)
{
    *(char *)buffer = port_of(transport)->fabric;
    return 1 + uct->address(transport, (char *)buffer + 1);
}

static bool reaches(const regx_transport_t *transport, const void *bytes, size_t length)
{
    return length > 1 && *(const char *)bytes == port_of(transport)->fabric;
}

static regx_status_t connect_port(regx_transport_t *transport, uint64_t peer, bool same_node,
                                  const void *bytes, size_t length, regx_conn_t **conn)
{
    (void)same_node;
    return uct->connect(transport, peer, false, (const char *)bytes + 1, length - 1, conn);
}

static void count(const regx_conn_t *conn, regx_status_t status, size_t length)
{
    if (status == REGX_OK || status == REGX_PENDING) {
        atomic_fetch_add(&port_of(conn->transport)->sent->count, length);
    }
}

static regx_status_t send_frame(regx_conn_t *conn, uint8_t tag, const void *header,
                                size_t header_length, regx_pack_t pack, void *pack_context,
                                size_t payload_length)
{
    const regx_status_t status =
        uct->send(conn, tag, header, header_length, pack, pack_context, payload_length);

    count(conn, status, header_length + payload_length);
    return status;
}

static regx_status_t send_zcopy(regx_conn_t *conn, regx_zcopy_t *frame)
{
    const size_t length = frame->length;
    const regx_status_t status = uct->send_zcopy(conn, frame);

    count(conn, status, length);
    return status;
}

static regx_status_t put(regx_conn_t *conn, regx_put_t *what)
{
    const size_t length = what->length;
    const regx_status_t status = uct->put(conn, what);

    count(conn, status, length);
    return status;
}

__attribute__((constructor)) static void load_uct(void)
{
    char path[4096];
    Dl_info info;

    dladdr((const void *)&ports, &info);
    snprintf(path, sizeof(path), "%.*sregx_transport_uct.so",
             (int)(strrchr(info.dli_fname, '/') - info.dli_fname) + 1, info.dli_fname);
    uct = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "regx_transport_ops");
    regx_transport_ops = *uct;
    regx_transport_ops.name = "verbs";
    regx_transport_ops.copies = false;
    regx_transport_ops.devices = list_devices;
    regx_transport_ops.open = open_port;
    regx_transport_ops.close = close_port;
    regx_transport_ops.address = address;
    regx_transport_ops.reaches = reaches;
    regx_transport_ops.connect = connect_port;
    regx_transport_ops.send = send_frame;
    regx_transport_ops.send_zcopy = send_zcopy;
    regx_transport_ops.put = put;
}
