/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The UCT transport: the node wire where Open MPI says "same node", tcp for everybody else, and
 * for neighbours with whom shared memory is refused.
 *
 * Address: one byte of version, one of which wires follow, two of zero; then per wire, node first,
 * a 32-bit length and the wire's own address.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h> /* for its version alone */
#include <uct/api/version.h>

#include "base/option.h"
#include "transport/pace.h"
#include "transport/transport.h"
#include "transport/shm/shm.h"
#include "transport/uct/log.h"
#include "transport/tcp/tcp.h"
#include "transport/rkey_table.h"

#define ADDRESS_VERSION 2
enum { WIRE_NODE = 1, WIRE_TCP = 2 };

/* While nobody uses tcp it is looked at for newcomers alone. A look makes a message on the node
 * wait for microseconds, so in a process that talks on the node it happens once in 10 ms. */
#define NEWCOMERS_BUSY_NS 10000000
#define NEWCOMERS_QUIET_NS 1000000

typedef struct regx_uct {
    regx_transport_t super;
    regx_transport_config_t config;
    regx_rkey_table_t rkeys;
    regx_shm_t *node; /* NULL: refused, or not allowed */
    regx_tcp_t *tcp;   /* likewise */
    void *own_pool;    /* where there is no node segment to hold it */
    char wires[32];
    unsigned rounds;       /* of progress that found something on the node */
    regx_pace_t newcomers; /* looks at tcp while nobody uses it */
    regx_lock_t lock;      /* of the list of lost connections */
    struct regx_uct_conn *lost;
    _Atomic unsigned lost_count;
} regx_uct_t;

typedef struct regx_uct_conn {
    regx_conn_t super;
    regx_shm_conn_t *node; /* NULL: other host, or refused */
    regx_tcp_conn_t *tcp;   /* NULL until it is needed */
    regx_lock_t turning;    /* from the one to the other */
    bool lost;              /* neither can be had: in the list until that is told */
    struct regx_uct_conn *next;
    size_t address_length; /* of the peer's tcp address, which follows */
    uint8_t address[REGX_ADDRESS_MAX];
} regx_uct_conn_t;

/* The object's face; regx_transport_load looks it up. */
__attribute__((visibility("default"))) extern const regx_transport_ops_t regx_transport_ops;

static regx_uct_t *uct_of(regx_transport_t *transport)
{
    return (regx_uct_t *)transport;
}

static bool wanted(const char *tls, const char *name)
{
    return tls == NULL || regx_option_listed(tls, name);
}

static regx_status_t open_pool(regx_uct_t *uct)
{
    if (uct->node != NULL) {
        uct->super.pool_memory = regx_shm_pool(uct->node, &uct->super.pool_size);
        return REGX_OK;
    }
    uct->super.pool_size = uct->config.pool_size;
    uct->own_pool = mmap(NULL, uct->super.pool_size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (uct->own_pool == MAP_FAILED) {
        uct->own_pool = NULL;
        return REGX_NO_MEMORY;
    }
    uct->super.pool_memory = uct->own_pool;
    return REGX_OK;
}

static void uct_close(regx_transport_t *transport)
{
    regx_uct_t *uct = uct_of(transport);

    regx_tcp_close(uct->tcp);
    if (uct->node != NULL) {
        regx_shm_close(uct->node);
    }
    if (uct->own_pool != NULL) {
        munmap(uct->own_pool, uct->super.pool_size);
    }
    regx_rkey_table_fini(&uct->rkeys);
    regx_lock_fini(&uct->lock);
    free(uct);
}

/* Opens tcp. Only a wrong device list is an error: a machine without a network still has its
 * node. */
static regx_status_t open_tcp(regx_uct_t *uct, char *error, size_t error_size)
{
    if (!wanted(uct->config.tls, "tcp")) {
        return REGX_OK;
    }
    const regx_status_t status =
        regx_tcp_open(&uct->config, &uct->rkeys, error, error_size, &uct->tcp);
    if (status != REGX_OK) {
        uct->tcp = NULL;
        if (status == REGX_INVALID) {
            return status;
        }
        regx_tally(uct->config.counters->fallbacks, "tcp: cannot be opened");
    }
    return REGX_OK;
}

/* UCT promises nothing between minor versions, and half of it is inline: what was compiled here
 * reads the structures of that version (the elements of the callback queue that
 * uct_worker_progress walks have 24 bytes in 1.13, and 16 in 1.18). */
static regx_status_t check_version(char *error, size_t error_size)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if (major == UCT_VERNO_MAJOR && minor == UCT_VERNO_MINOR) {
        return REGX_OK;
    }
    snprintf(error, error_size,
             "built for UCX %d.%d, but this is UCX %u.%u.%u: not used; build it for this one",
             UCT_VERNO_MAJOR, UCT_VERNO_MINOR, major, minor, release);
    return REGX_UNREACHABLE;
}

static regx_status_t uct_open(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_transport_t **transport)
{
    regx_status_t status = check_version(error, error_size);

    if (status != REGX_OK) {
        return status;
    }
    regx_uct_t *uct = calloc(1, sizeof(*uct));
    snprintf(error, error_size, "out of memory");
    if (uct == NULL) {
        return REGX_NO_MEMORY;
    }
    regx_uct_log_to_stderr();
    regx_lock_init(&uct->lock, config->threads);
    uct->super.ops = &regx_transport_ops;
    uct->config = *config;
    uct->newcomers = (regx_pace_t){.quiet_ns = NEWCOMERS_QUIET_NS, .busy_ns = NEWCOMERS_BUSY_NS};
    regx_rkey_table_init(&uct->rkeys, config->threads);
    status = open_tcp(uct, error, error_size);
    if (status != REGX_OK) {
        uct_close(&uct->super);
        return status;
    }
    if (regx_shm_open(config, &uct->node) != REGX_OK) {
        uct->node = NULL;
    }
    if (uct->node == NULL && uct->tcp == NULL) {
        snprintf(error, error_size,
                 "UCX offers neither shared memory (posix, sysv) nor tcp to this process%s%s",
                 config->tls == NULL ? "" : " within ", config->tls == NULL ? "" : config->tls);
        uct_close(&uct->super);
        return REGX_UNREACHABLE;
    }
    status = open_pool(uct);
    if (status != REGX_OK) {
        uct_close(&uct->super);
        return status;
    }
    uct->super.max_frame = REGX_SHM_MAX_FRAME;
    if (uct->tcp != NULL) {
        const size_t most = regx_tcp_max_frame(uct->tcp);

        regx_tcp_set_pool(uct->tcp, uct->super.pool_memory, uct->super.pool_size);
        uct->super.max_frame = most < REGX_SHM_MAX_FRAME ? most : REGX_SHM_MAX_FRAME;
    }
    snprintf(uct->wires, sizeof(uct->wires), "%s%s%s",
             uct->node != NULL ? regx_shm_domain(uct->node) : "",
             uct->node != NULL && uct->tcp != NULL ? "," : "", uct->tcp != NULL ? "tcp" : "");
    uct->super.wires = uct->wires;
    *transport = &uct->super;
    return REGX_OK;
}

static size_t uct_address(regx_transport_t *transport, void *buffer)
{
    regx_uct_t *uct = uct_of(transport);
    uint8_t *start = buffer, *at = start + 4;

    memcpy(start, (uint8_t[]){ADDRESS_VERSION, 0, 0, 0}, 4);
    for (int wire = WIRE_NODE; wire <= WIRE_TCP; wire++) {
        const size_t room = REGX_ADDRESS_MAX - (size_t)(at + 4 - start);
        const size_t length =
            wire == WIRE_NODE  ? uct->node == NULL ? 0 : regx_shm_address(uct->node, at + 4, room)
             : uct->tcp == NULL ? 0
                               : regx_tcp_address(uct->tcp, at + 4, room);

        if (length > 0) {
            const uint32_t size = (uint32_t)length;

            memcpy(at, &size, sizeof(size));
            at += 4 + length;
            start[1] = (uint8_t)(start[1] | wire);
        }
    }
    return (size_t)(at - start);
}

/* Finds a wire's part of an address. NULL: not there (length 0) or malformed (length SIZE_MAX). */
static const uint8_t *address_part(const uint8_t *address, size_t size, int wanted_wire,
                                   size_t *length)
{
    const uint8_t *at = address + 4, *end = address + size;

    *length = SIZE_MAX;
    if (size < 4 || address[0] != ADDRESS_VERSION) {
        return NULL;
    }
    for (int wire = WIRE_NODE; wire <= WIRE_TCP; wire++) {
        uint32_t part;

        if ((address[1] & wire) == 0) {
            continue;
        }
        if (end - at < 4) {
            return NULL;
        }
        memcpy(&part, at, sizeof(part));
        if ((size_t)(end - at) - 4 < part) {
            return NULL;
        }
        if (wire == wanted_wire) {
            *length = part;
            return at + 4;
        }
        at += 4 + part;
    }
    *length = 0;
    return NULL;
}

static regx_status_t use_tcp(regx_uct_t *uct, regx_uct_conn_t *conn)
{
    if (uct->tcp == NULL || conn->address_length == 0) {
        return REGX_UNREACHABLE;
    }
    const regx_status_t status = regx_tcp_connect(uct->tcp, conn->super.peer, conn->address,
                                                  conn->address_length, &conn->tcp);
    if (status == REGX_OK) {
        conn->super.wire = "tcp";
        conn->super.shares_pool = conn->super.single_copy = false;
    } else {
        conn->tcp = NULL;
    }
    return status;
}

static regx_status_t uct_connect(regx_transport_t *transport, uint64_t peer, bool same_node,
                                 const void *address, size_t size, regx_conn_t **out)
{
    regx_uct_t *uct = uct_of(transport);
    size_t node_length, tcp_length;
    const uint8_t *node_part = address_part(address, size, WIRE_NODE, &node_length);
    const uint8_t *tcp_part = address_part(address, size, WIRE_TCP, &tcp_length);
    regx_status_t status = REGX_UNREACHABLE;

    if (node_length == SIZE_MAX || tcp_length == SIZE_MAX || tcp_length > REGX_ADDRESS_MAX) {
        return REGX_INVALID;
    }
    regx_uct_conn_t *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return REGX_NO_MEMORY;
    }
    regx_lock_init(&conn->turning, uct->config.threads);
    conn->super.transport = transport;
    conn->super.peer = peer;
    conn->super.wire = "shm";
    conn->super.shares_pool = true;
    conn->address_length = tcp_length;
    if (tcp_length > 0) {
        memcpy(conn->address, tcp_part, tcp_length);
    }
    if (same_node && uct->node != NULL && node_length > 0) {
        status = regx_shm_connect(uct->node, peer, node_part, node_length, &conn->node);
        conn->super.single_copy = status == REGX_OK && regx_shm_may_copy(conn->node);
    } else {
        if (same_node && (wanted(uct->config.tls, "posix") || wanted(uct->config.tls, "sysv"))) {
            regx_tally(uct->config.counters->fallbacks, "shm: not available at both ends");
        }
        status = use_tcp(uct, conn);
    }
    if (status != REGX_OK) {
        regx_lock_fini(&conn->turning);
        free(conn);
        return status;
    }
    *out = &conn->super;
    return REGX_OK;
}

/* Nothing leads to this peer: progress will tell. The connection's lock is held. */
static void lose(regx_uct_t *uct, regx_uct_conn_t *conn)
{
    if (conn->lost) {
        return;
    }
    conn->lost = true;
    regx_lock(&uct->lock);
    conn->next = uct->lost;
    uct->lost = conn;
    regx_unlock(&uct->lock);
    atomic_fetch_add(&uct->lost_count, 1);
}

/* The wire to use now; tcp takes over from a node wire that was refused before its first frame. */
static regx_status_t turn_to_tcp(regx_uct_conn_t *conn)
{
    regx_uct_t *uct = uct_of(conn->super.transport);

    regx_lock(&conn->turning);
    const regx_status_t status = conn->tcp != NULL ? REGX_OK : use_tcp(uct, conn);
    if (status != REGX_OK) {
        lose(uct, conn);
    }
    regx_unlock(&conn->turning);
    return status;
}

static __attribute__((noinline)) void tell_lost(regx_uct_t *uct)
{
    regx_lock(&uct->lock);
    regx_uct_conn_t *conn = uct->lost;
    uct->lost = conn != NULL ? conn->next : NULL;
    regx_unlock(&uct->lock);
    if (conn != NULL) {
        atomic_fetch_sub(&uct->lost_count, 1);
        uct->config.events.broken(uct->config.events.context, conn->super.peer,
                                  "shared memory is refused and tcp does not lead there");
    }
}

/* Takes a connection that ends off the list. */
static void forget_lost(regx_uct_t *uct, regx_uct_conn_t *conn)
{
    regx_lock(&uct->lock);
    for (regx_uct_conn_t **at = &uct->lost; *at != NULL; at = &(*at)->next) {
        if (*at == conn) {
            *at = conn->next;
            atomic_fetch_sub(&uct->lost_count, 1);
            break;
        }
    }
    regx_unlock(&uct->lock);
}

static void uct_disconnect(regx_conn_t *super)
{
    regx_uct_conn_t *conn = (regx_uct_conn_t *)super;

    if (conn->lost) {
        forget_lost(uct_of(super->transport), conn);
    }
    if (conn->node != NULL) {
        regx_shm_disconnect(conn->node);
    }
    if (conn->tcp != NULL) {
        regx_tcp_disconnect(conn->tcp);
    }
    regx_lock_fini(&conn->turning);
    free(conn);
}

static void uct_warm(regx_conn_t *super)
{
    const regx_uct_conn_t *conn = (const regx_uct_conn_t *)super;

    if (conn->node != NULL) {
        regx_shm_warm(conn->node);
    }
}

static bool uct_reachable(regx_conn_t *super)
{
    regx_uct_conn_t *conn = (regx_uct_conn_t *)super;

    return !conn->lost &&
           (conn->tcp != NULL ? regx_tcp_reachable(conn->tcp) : regx_shm_reachable(conn->node));
}

static regx_status_t uct_send(regx_conn_t *super, uint8_t tag, const void *header,
                              size_t header_length, regx_pack_t pack, void *pack_context,
                              size_t payload_length)
{
    regx_uct_conn_t *conn = (regx_uct_conn_t *)super;
    regx_status_t status = REGX_UNREACHABLE;

    if (conn->node != NULL) {
        status = regx_shm_send(conn->node, tag, header, header_length, pack, pack_context,
                                payload_length);
    }
    if (status == REGX_UNREACHABLE && turn_to_tcp(conn) == REGX_OK) {
        status = regx_tcp_send(conn->tcp, tag, header, header_length, pack, pack_context,
                               payload_length);
    }
    return status;
}

static regx_status_t uct_lend(regx_conn_t *super, regx_lend_t *lend)
{
    regx_uct_conn_t *conn = (regx_uct_conn_t *)super;
    regx_status_t status = REGX_UNREACHABLE;

    if (conn->node != NULL) {
        status = regx_shm_lend(conn->node, lend);
    }
    if (status == REGX_UNREACHABLE && turn_to_tcp(conn) == REGX_OK) {
        status = regx_tcp_lend(conn->tcp, lend);
    }
    return status;
}

static regx_status_t uct_put(regx_conn_t *super, regx_put_t *put)
{
    regx_uct_conn_t *conn = (regx_uct_conn_t *)super;
    regx_status_t status = REGX_UNREACHABLE;

    if (conn->node != NULL) {
        status = regx_shm_put(conn->node, put);
    }
    if (status == REGX_UNREACHABLE && turn_to_tcp(conn) == REGX_OK) {
        status = regx_tcp_put(conn->tcp, put);
    }
    return status;
}

/* tcp has none; a peer that it leads to cannot be read. */
static regx_status_t uct_get(regx_conn_t *super, regx_get_t *get)
{
    regx_uct_conn_t *conn = (regx_uct_conn_t *)super;

    return conn->super.single_copy ? regx_shm_get(conn->node, get) : REGX_DENIED;
}

/* Costs nothing on these wires, but goes through the rkeys, so that over tcp a key that was
 * given back opens nothing. On the node the kernel's copy asks no key: there the peer is trusted
 * as far as the kernel trusts a process of the same user. */
static regx_status_t uct_reg(regx_transport_t *transport, void *base, size_t length,
                             unsigned access, regx_mr_t *mr)
{
    mr->base = base;
    mr->length = length;
    mr->access = access;
    return regx_rkey_table_add(&uct_of(transport)->rkeys, base, length, access, &mr->key,
                            &mr->handle);
}

static void uct_dereg(regx_transport_t *transport, regx_mr_t *mr)
{
    regx_rkey_table_remove(&uct_of(transport)->rkeys, mr->handle);
}

/* Rounds in which the node had something and tcp was not looked at, at most. */
#define NODE_ROUNDS 16u

static int uct_progress(regx_transport_t *transport)
{
    regx_uct_t *uct = uct_of(transport);
    int events = 0;

    if (uct->node != NULL) {
        events = regx_shm_progress(uct->node);
        if (events > 0) {
            regx_pace_note_traffic(&uct->newcomers);
            if (++uct->rounds % NODE_ROUNDS != 0) {
                return events; /* somebody waits for what was just delivered */
            }
        }
    }
    if (uct->tcp != NULL && (regx_tcp_in_use(uct->tcp) || regx_pace_due(&uct->newcomers))) {
        events += regx_tcp_progress(uct->tcp);
    }
    if (atomic_load_explicit(&uct->lost_count, memory_order_relaxed) > 0) {
        tell_lost(uct);
    }
    return events;
}

const regx_transport_ops_t regx_transport_ops = {.abi = REGX_TRANSPORT_ABI,
                                                 .name = "uct",
                                                 .open = uct_open,
                                                 .close = uct_close,
                                                 .address = uct_address,
                                                 .connect = uct_connect,
                                                 .disconnect = uct_disconnect,
                                                 .warm = uct_warm,
                                                 .reachable = uct_reachable,
                                                 .send = uct_send,
                                                 .lend = uct_lend,
                                                 .put = uct_put,
                                                 .get = uct_get,
                                                 .copies = true,
                                                 .reg = uct_reg,
                                                 .dereg = uct_dereg,
                                                 .progress = uct_progress};
