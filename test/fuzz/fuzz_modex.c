/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process publishes of itself: the addresses of its modules. Here are two modules, shared
 * memory and a port. The input is what was published.
 */
#include "fuzz.h"

#include "btl/module.h"
#include "transport/shm/shm_internal.h"
#include "transport/verbs/wire.h"

#define PEER 7 /* its number */

static uint8_t published[16384];
static size_t published_length;
static const uint8_t *fetched;
static size_t fetched_length;
static unsigned connected;

/* ---- Open MPI, as compat.h has it ---- */

int regx_compat_publish(const mca_base_component_t *component, const void *bytes, size_t length)
{
    (void)component;
    fuzz_check(length <= sizeof(published));
    memcpy(published, bytes, length);
    published_length = length;
    return OPAL_SUCCESS;
}

int regx_compat_fetch(const mca_base_component_t *component, opal_proc_t *proc, void **bytes,
                      size_t *length)
{
    (void)component, (void)proc;
    *bytes = malloc(fetched_length > 0 ? fetched_length : 1);
    fuzz_check(*bytes != NULL);
    memcpy(*bytes, fetched, fetched_length);
    *length = fetched_length;
    return OPAL_SUCCESS;
}

/* Who published is the peer that is connected to. */
uint64_t regx_compat_self(void)
{
    return PEER;
}

bool regx_compat_same_node(const opal_proc_t *proc)
{
    (void)proc;
    return true;
}

const char *regx_compat_host(void)
{
    return "here";
}

/* All processes are on this node, so none is warned of. */
uint32_t regx_compat_processes(void)
{
    return 1;
}

uint32_t regx_compat_local_processes(void)
{
    return 1;
}

uint32_t regx_compat_far_rank(void)
{
    return 1;
}

bool regx_compat_falls_here(const mca_base_component_t *component, const char *line)
{
    (void)component, (void)line;
    return true;
}

void regx_compat_output(const char *line)
{
    fuzz_check(strlen(line) < 1024);
}

bool regx_other_btl_leads(bool same_node)
{
    (void)same_node;
    return false;
}

/* ---- wires ---- */

static regx_status_t connect_to(regx_transport_t *transport, const void *address, size_t length,
                                regx_conn_t **conn)
{
    uint8_t copy[REGX_ADDRESS_MAX];

    fuzz_check(length <= sizeof(copy));
    memcpy(copy, address, length); /* the sanitizer looks at it */
    *conn = calloc(1, sizeof(**conn));
    fuzz_check(*conn != NULL);
    (*conn)->transport = transport;
    (*conn)->wire = "wire";
    return REGX_OK;
}

static void disconnect(regx_conn_t *conn)
{
    free(conn);
}

static regx_shm_t shm;

static size_t shm_address(regx_transport_t *transport, void *buffer)
{
    const regx_shm_address_t address = {.node = shm.node};

    (void)transport;
    memcpy(buffer, &address, sizeof(address));
    return sizeof(address);
}

static regx_status_t shm_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                 size_t length, regx_conn_t **conn)
{
    (void)peer;
    return connect_to(transport, address, length, conn);
}

static const regx_transport_ops_t shm_ops = {.abi = REGX_TRANSPORT_ABI,
                                             .name = "shm",
                                             .reaches = regx_shm_reaches,
                                             .address = shm_address,
                                             .connect = shm_connect,
                                             .disconnect = disconnect};

static bool verbs_reaches(const regx_transport_t *transport, const void *address, size_t length)
{
    regx_verbs_address_t ours = {.link_layer = REGX_VERBS_ETHERNET}, theirs;

    (void)transport;
    return regx_verbs_address_read(address, length, &theirs) &&
           (theirs.flags == REGX_VERBS_ANY_SUBNET || regx_verbs_share_subnet(&ours, &theirs));
}

static regx_status_t verbs_connect(regx_transport_t *transport, uint64_t peer, const void *address,
                                   size_t length, regx_conn_t **conn)
{
    regx_verbs_address_t theirs;

    (void)peer;
    return regx_verbs_address_read(address, length, &theirs)
               ? connect_to(transport, address, length, conn)
               : REGX_INVALID;
}

static size_t verbs_address(regx_transport_t *transport, void *buffer)
{
    const regx_verbs_address_t address = {
        .version = REGX_VERBS_VERSION, .link_layer = REGX_VERBS_ETHERNET, .mtu = 3, .qpn = 5};

    (void)transport;
    memcpy(buffer, &address, sizeof(address));
    return sizeof(address);
}

static const regx_transport_ops_t verbs_ops = {.abi = REGX_TRANSPORT_ABI,
                                               .name = "verbs",
                                               .reaches = verbs_reaches,
                                               .connect = verbs_connect,
                                               .disconnect = disconnect,
                                               .address = verbs_address};

/* ---- the process ---- */

static regx_transport_t verbs = {.ops = &verbs_ops, .wires = "verbs"};
static regx_component_t component;
static regx_module_t modules[2];

static void begin(void)
{
    if (component.module_count > 0) {
        return;
    }
    shm.node = (regx_shm_node_t){1, 2, 3};
    shm.super = (regx_transport_t){.ops = &shm_ops, .wires = "posix"};
    component.params.settings.component.transport = "auto";
    for (unsigned i = 0; i < 2; i++) {
        modules[i] = (regx_module_t){.component = &component,
                                     .counters = &component.counters,
                                     .place = i,
                                     .kind = i == 0 ? REGX_ON_NODE : REGX_BETWEEN_NODES,
                                     .transport = i == 0 ? &shm.super : &verbs};
        component.modules[i] = &modules[i];
    }
    component.module_count = 2;
    fuzz_check(regx_address_publish(&component));
}

bool fuzz_one(const uint8_t *data, size_t size)
{
    static opal_proc_t proc;

    proc.proc_hostname = (char *)(uintptr_t) "host";
    begin();
    connected = 0;
    /* Many processes: the first byte says whether it is the one that was asked for. */
    if (size < 1) {
        return false;
    }
    uint8_t *bytes = malloc(size);
    fuzz_check(bytes != NULL);
    memcpy(bytes, data + 1, size - 1);
    if (data[0] % 4 < 3 && size - 1 >= 16) { /* the rest has another process's number, or any */
        memcpy(bytes + 8, published + 8, 8);
    }
    fetched = bytes;
    fetched_length = size - 1;
    for (unsigned i = 0; i < 2; i++) {
        regx_peer_t peer = {.id = PEER};

        if (regx_address_connect(&modules[i], &proc, &peer)) {
            connected++;
            peer.conn->transport->ops->disconnect(peer.conn);
        }
    }
    free(bytes);
    return connected > 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to)
{
    begin();
    if (number > 1) {
        return 0;
    }
    to[0] = (uint8_t)number;
    memcpy(to + 1, published, published_length);
    if (number == 1) { /* another node */
        to[1 + 16 + 4 + offsetof(regx_shm_address_t, node)] ^= 1;
    }
    return 1 + published_length;
}
