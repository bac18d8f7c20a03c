/* SPDX-License-Identifier: BSD-3-Clause
 *
 *      0 u8  version (4)                  1 u8  version of the control messages
 *      2 u8  number of addresses          3 u8  zero
 *      4 u64 the node's identity, little-endian as all that follows
 *     12 for each address: u8 length of the transport's name, the name,
 *        u16 length of the transport's address, the address
 */
#include "btl/address.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define HEADER 12
#define VERSION 4
#define NAME_MAX_LENGTH 15 /* of a transport */

typedef struct span {
    const uint8_t *bytes;
    size_t length;
} span_t;

/* How a process is reached by one of its modules. */
typedef struct address {
    span_t transport; /* its name */
    span_t address;
} address_t;

/* FNV-1a. */
static uint64_t hash(uint64_t value, const char *text)
{
    for (; *text != '\0'; text++) {
        value = (value ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return value;
}

/* What two processes have in common if they are on one node: the host's name, and when its kernel
 * was started. Open MPI also knows who is on this node, but what is decided by that must come out
 * alike at both ends. */
static uint64_t identify_node(void)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    struct utsname names = {0};
    char boot[64] = "";

    if (file != NULL) {
        if (fgets(boot, sizeof(boot), file) == NULL) {
            boot[0] = '\0';
        }
        fclose(file);
    }
    uname(&names);
    return hash(hash(UINT64_C(0xcbf29ce484222325), boot), names.nodename);
}

static void put_little_endian(uint8_t *to, uint64_t value, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get_little_endian(const uint8_t *from, unsigned size)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < size; i++) {
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

bool regx_address_publish(regx_component_t *component)
{
    uint8_t bytes[HEADER + REGX_MODULES_MAX * (1 + NAME_MAX_LENGTH + 2 + REGX_ADDRESS_MAX)] = {
        VERSION, REGX_CONTROL_VERSION, (uint8_t)component->module_count, 0};
    uint8_t *at = bytes + HEADER;

    component->node = identify_node();
    put_little_endian(bytes + 4, component->node, 8);
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_transport_t *transport = component->modules[i]->transport;
        const size_t name_length = strlen(transport->ops->name);

        assert(name_length <= NAME_MAX_LENGTH);
        *at++ = (uint8_t)name_length;
        memcpy(at, transport->ops->name, name_length);
        at += name_length;
        const size_t length = transport->ops->address(transport, at + 2);
        assert(length <= REGX_ADDRESS_MAX);
        put_little_endian(at, length, 2);
        at += 2 + length;
    }
    return regx_compat_publish(&component->super.btl_version, bytes, (size_t)(at - bytes)) ==
           OPAL_SUCCESS;
}

/* Reads a length of `size` bytes and that many bytes. false: they are not there. */
static bool parse_span(span_t *rest, unsigned size, span_t *span)
{
    if (rest->length < size) {
        return false;
    }
    *span = (span_t){rest->bytes + size, get_little_endian(rest->bytes, size)};
    if (rest->length - size < span->length) {
        return false;
    }
    rest->bytes += size + span->length;
    rest->length -= size + span->length;
    return true;
}

/* The addresses that somebody published; how many. */
static unsigned parse(const uint8_t *bytes, size_t length, address_t addresses[REGX_MODULES_MAX])
{
    const unsigned published = bytes[2] < REGX_MODULES_MAX ? bytes[2] : REGX_MODULES_MAX;
    span_t rest = {bytes + HEADER, length - HEADER};
    unsigned count = 0;

    while (count < published && parse_span(&rest, 1, &addresses[count].transport) &&
           parse_span(&rest, 2, &addresses[count].address)) {
        count++;
    }
    return count;
}

static bool is_of_kind(const address_t *address, const regx_transport_ops_t *ops)
{
    return strlen(ops->name) == address->transport.length &&
           memcmp(ops->name, address->transport.bytes, address->transport.length) == 0;
}

static bool reaches(const regx_transport_t *transport, const address_t *address)
{
    return transport->ops->reaches == NULL ||
           transport->ops->reaches(transport, address->address.bytes, address->address.length);
}

/* The places of one kind of transport among the modules, or among what a peer published. */
typedef struct places {
    unsigned count;
    unsigned at[REGX_MODULES_MAX];
} places_t;

/* Pairs the modules of one kind with addresses of that kind: as many as can be, those at the same
 * place in both lists first, then by how far apart their places are. The other end, for which the
 * lists are exchanged, finds the same pairs. */
static void pair_up_kind(const regx_component_t *component, const address_t *addresses,
                         const places_t *ours, const places_t *others, int theirs[REGX_MODULES_MAX])
{
    const unsigned most = ours->count > others->count ? ours->count : others->count;
    bool taken[REGX_MODULES_MAX] = {false};

    for (unsigned apart = 0; apart < most; apart++) {
        for (unsigned k = 0; k < 2 * most; k++) {
            const unsigned i = k / 2 + (k % 2 == 0 ? 0 : apart);
            const unsigned j = k / 2 + (k % 2 == 0 ? apart : 0);

            if (i < ours->count && j < others->count && theirs[ours->at[i]] < 0 && !taken[j] &&
                reaches(component->modules[ours->at[i]]->transport, &addresses[others->at[j]])) {
                theirs[ours->at[i]] = (int)others->at[j];
                taken[j] = true;
            }
        }
    }
}

/* Which of their addresses each of the modules could talk to; -1: none. */
static void pair_up(const regx_component_t *component, const address_t *addresses, unsigned count,
                    int theirs[REGX_MODULES_MAX])
{
    const regx_transport_ops_t *last = NULL;

    for (unsigned i = 0; i < REGX_MODULES_MAX; i++) {
        theirs[i] = -1;
    }
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_transport_ops_t *ops = component->modules[i]->transport->ops;
        places_t ours = {0}, others = {0};

        if (ops == last) { /* modules of one kind stand together */
            continue;
        }
        last = ops;
        for (unsigned j = i; j < component->module_count; j++) {
            if (component->modules[j]->transport->ops == ops) {
                ours.at[ours.count++] = j;
            }
        }
        for (unsigned j = 0; j < count; j++) {
            if (is_of_kind(&addresses[j], ops)) {
                others.at[others.count++] = j;
            }
        }
        pair_up_kind(component, addresses, &ours, &others, theirs);
    }
}

/* Whether a module that is paired up is of the kind that is for the node (or is not). */
static bool has_pair(const regx_component_t *component, const int theirs[REGX_MODULES_MAX],
                     bool for_node)
{
    for (unsigned i = 0; i < component->module_count; i++) {
        if (theirs[i] >= 0 && component->modules[i]->transport->ops->copies == for_node) {
            return true;
        }
    }
    return false;
}

/* Leaves the pairs of one kind of transport: on one node of that which shares memory, else of the
 * other, if there are some. */
static void leave_one_kind(const regx_component_t *component, bool same_node,
                           int theirs[REGX_MODULES_MAX])
{
    const bool for_node = has_pair(component, theirs, same_node) ? same_node : !same_node;

    for (unsigned i = 0; i < component->module_count; i++) {
        if (component->modules[i]->transport->ops->copies != for_node) {
            theirs[i] = -1;
        }
    }
}

static void say_mismatch(opal_proc_t *proc, const uint8_t *theirs)
{
    char line[256];

    snprintf(line, sizeof(line),
             "%s runs another regx: its address is of version %d, its control messages of %d; "
             "here %d and %d",
             opal_get_proc_hostname(proc), theirs[0], theirs[1], VERSION, REGX_CONTROL_VERSION);
    regx_compat_say(line);
}

/* Another BTL may reach it; if none does, Open MPI says little, so this line is needed. */
static void say_unreachable(const regx_module_t *module, opal_proc_t *proc, uint64_t peer)
{
    char line[512];

    snprintf(line, sizeof(line),
             "no wire leads to rank %u on %s (here: %s); btl_regx_if_include, btl_regx_if_exclude "
             "and btl_regx_uct_tls must leave one that does",
             (unsigned)peer, opal_get_proc_hostname(proc), module->transport->wires);
    regx_compat_say(line);
}

/* The peer, and what of this module's wires comes of it. */
static void trace_connection(const regx_module_t *module, opal_proc_t *proc,
                             const regx_peer_t *peer, const char *wire, const char *why)
{
    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u on %s: %s (%s): %s",
               (unsigned)peer->id, opal_get_proc_hostname(proc), wire, module->transport->wires,
               why);
}

/* Why this wire and no better one. */
static const char *why_this(bool same_node, const regx_conn_t *conn)
{
    if (same_node && !conn->shares_pool) {
        return "on this node, but not by shared memory";
    }
    return same_node ? "on this node" : "on another node";
}

/* Whether any module claims the peer. */
static bool is_claimed(const int theirs[REGX_MODULES_MAX])
{
    for (unsigned i = 0; i < REGX_MODULES_MAX; i++) {
        if (theirs[i] >= 0) {
            return true;
        }
    }
    return false;
}

static bool connect_module(regx_module_t *module, opal_proc_t *proc, const uint8_t *bytes,
                           size_t length, regx_peer_t *peer)
{
    const regx_component_t *component = module->component;
    const bool same_node = get_little_endian(bytes + 4, 8) == component->node;
    regx_transport_t *transport = module->transport;
    address_t addresses[REGX_MODULES_MAX];
    int theirs[REGX_MODULES_MAX];

    pair_up(component, addresses, parse(bytes, length, addresses), theirs);
    const bool could = theirs[module->place] >= 0;
    leave_one_kind(component, same_node, theirs);
    const int which = theirs[module->place];
    if (which < 0) {
        trace_connection(module, proc, peer, "not used",
                         could ? "another transport takes it" : "does not lead there");
        if (module->place == 0 && !is_claimed(theirs)) { /* said by the first of several */
            say_unreachable(module, proc, peer->id);
        }
        return false;
    }
    const regx_status_t status = transport->ops->connect(
        transport, peer->id, regx_compat_same_node(proc), addresses[which].address.bytes,
        addresses[which].address.length, &peer->conn);
    if (status == REGX_OK) {
        trace_connection(module, proc, peer, peer->conn->wire, why_this(same_node, peer->conn));
        return true;
    }
    trace_connection(module, proc, peer, "not used", "the peer's address is refused");
    if (status == REGX_NO_MEMORY) {
        regx_compat_say("no memory for another peer");
    } else {
        say_unreachable(module, proc, peer->id);
    }
    return false;
}

bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    bool connected = false;

    if (regx_compat_fetch(&module->component->super.btl_version, proc, (void **)&bytes, &length) !=
        OPAL_SUCCESS) {
        trace_connection(module, proc, peer, "not used", "that process does not use regx");
        return false;
    }
    if (length < HEADER || bytes[0] != VERSION || bytes[1] != REGX_CONTROL_VERSION) {
        if (length >= 4 && module->place == 0) {
            say_mismatch(proc, bytes);
        }
    } else {
        connected = connect_module(module, proc, bytes, length, peer);
    }
    free(bytes);
    return connected;
}
