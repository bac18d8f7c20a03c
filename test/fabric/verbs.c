/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A transport named verbs for machines without an RDMA device: its ports are shared memory, which
 * reaches across the pretended hosts of one machine. It registers memory and counts what each port
 * sends, as verbs does, so that the choice between both transports can be tested.
 *
 * REGX_TEST_PORTS in the environment: the ports' names, comma-separated, each with the fabric that
 * it is on: "fake0:1@a,fake1:1@b". Ports of different fabrics do not reach each other. With
 * REGX_TEST_UNUSABLE=TEXT none is usable, and that is why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/shm/shm_internal.h"

/* The object's face, completed when it is loaded. */
__attribute__((visibility("default"))) regx_transport_ops_t regx_transport_ops;

static struct port {
    regx_transport_t *transport;
    regx_tally_t *sent;
    char name[48];
    char fabric; /* a letter */
} ports[REGX_DEVICES_MAX];

static regx_counters_t counters; /* of the shared memory under the ports */

static const char *listed_ports(void)
{
    const char *list = getenv("REGX_TEST_PORTS");

    return list != NULL ? list : "fake0:1@a";
}

static regx_status_t list_devices(const regx_transport_config_t *config, regx_error_t error,
                                  regx_device_name_t names[REGX_DEVICES_MAX], size_t *count,
                                  size_t *near)
{
    const char *unusable = getenv("REGX_TEST_UNUSABLE");

    *count = 0;
    if (unusable != NULL) {
        snprintf(error, REGX_ERROR, "%s", unusable);
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
        snprintf(error, REGX_ERROR, "if_include=%s: names no port", config->if_include);
        return REGX_INVALID;
    }
    *near = *count;
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

static regx_status_t open_port(const regx_transport_config_t *config, regx_error_t error,
                               regx_transport_t **transport)
{
    regx_transport_config_t under = *config;
    struct port *port = port_of(NULL);

    counters.threads = config->counters->threads;
    under.counters = &counters;
    const regx_status_t status = regx_shm_ops.open(&under, error, transport);
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
    regx_shm_ops.close(transport);
}

static size_t address(regx_transport_t *transport, void *buffer)
{
    *(char *)buffer = port_of(transport)->fabric;
    return 1 + regx_shm_ops.address(transport, (char *)buffer + 1);
}

static bool reaches(const regx_transport_t *transport, const void *bytes, size_t length,
                    bool same_node)
{
    return length > 1 && *(const char *)bytes == port_of(transport)->fabric;
}

/* Without what a device does not have. */
static regx_status_t connect_port(regx_transport_t *transport, uint64_t peer, const void *bytes,
                                  size_t length, regx_conn_t **conn)
{
    const regx_status_t status =
        regx_shm_ops.connect(transport, peer, (const char *)bytes + 1, length - 1, conn);

    if (status == REGX_OK) {
        (*conn)->shares_pool = false;
        (*conn)->single_copy = false;
    }
    return status;
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
        regx_shm_ops.send(conn, tag, header, header_length, pack, pack_context, payload_length);

    count(conn, status, header_length + payload_length);
    return status;
}

static regx_status_t send_zcopy(regx_conn_t *conn, regx_zcopy_t *frame)
{
    const size_t length = frame->length;
    const regx_status_t status = regx_shm_ops.send_zcopy(conn, frame);

    count(conn, status, length);
    return status;
}

static regx_status_t put(regx_conn_t *conn, regx_put_t *what)
{
    const size_t length = what->length;
    const regx_status_t status = regx_shm_ops.put(conn, what);

    count(conn, status, length);
    return status;
}

__attribute__((constructor)) static void complete(void)
{
    regx_transport_ops = (regx_transport_ops_t){.abi = REGX_TRANSPORT_ABI,
                                                .name = "verbs",
                                                .devices = list_devices,
                                                .open = open_port,
                                                .close = close_port,
                                                .address = address,
                                                .reaches = reaches,
                                                .connect = connect_port,
                                                .disconnect = regx_shm_ops.disconnect,
                                                .reachable = regx_shm_ops.reachable,
                                                .send = send_frame,
                                                .send_zcopy = send_zcopy,
                                                .put = put,
                                                .reg = regx_shm_ops.reg,
                                                .dereg = regx_shm_ops.dereg,
                                                .progress = regx_shm_ops.progress};
}
