/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process publishes: header_t, and for each module record_t and the transport's own address.
 * Of a process that does not take part, for all that it was asked to: one byte, zero.
 */
#include "btl/module.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE_SIZE 1
#define VERSION 17

typedef struct header {
    uint8_t version;         /* of this: the first two bytes are the same in all builds */
    uint8_t control_version; /* of the control messages */
    uint8_t flags;           /* of btl_flags: put and get */
    uint8_t zero[5];
    uint64_t process; /* what was filed under another one's name is not taken for its */
} header_t;

typedef struct record {
    uint8_t kind;    /* regx_transport_kind_t */
    uint8_t far;     /* 1: it is for peers that are not reached by others; else 0 */
    uint16_t length; /* of the address that follows */
} record_t;

/* One module of another process. */
typedef struct address {
    const uint8_t *bytes;
    size_t length;
    bool far;
} address_t;

/* Those of one kind. An array of these, one of each kind, is what a process published. */
typedef struct addresses {
    unsigned count;
    address_t list[REGX_DEVICES_MAX];
} addresses_t;

/* What of btl_regx_flags has to be alike at both ends: ob1 puts to and gets from any peer. */
static uint8_t own_flags(const regx_component_t *component)
{
    return (uint8_t)(component->modules[0]->super.btl_flags & MCA_BTL_FLAGS_RDMA);
}

bool regx_address_publish(regx_component_t *component)
{
    uint8_t bytes[sizeof(header_t) + REGX_MODULES_MAX * (sizeof(record_t) + REGX_ADDRESS_MAX)];
    const header_t header = {.version = VERSION,
                             .control_version = REGX_CONTROL_VERSION,
                             .flags = own_flags(component),
                             .process = regx_compat_self()};
    uint8_t *at = bytes + sizeof(header);

    memcpy(bytes, &header, sizeof(header));
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];
        uint8_t *address = at + sizeof(record_t);
        const size_t length = module->transport->ops->address(module->transport, address);
        const record_t record = {(uint8_t)module->kind, module->far, (uint16_t)length};

        assert(length <= REGX_ADDRESS_MAX);
        memcpy(at, &record, sizeof(record));
        at = address + length;
    }
    return regx_compat_publish(&component->super.btl_version, bytes, (size_t)(at - bytes)) ==
           OPAL_SUCCESS;
}

void regx_address_publish_none(const regx_component_t *component)
{
    const uint8_t none[NONE_SIZE] = {0};

    (void)regx_compat_publish(&component->super.btl_version, none, sizeof(none));
}

/* What is malformed ends the list. */
static void parse(const uint8_t *bytes, size_t length, addresses_t published[REGX_TRANSPORT_KINDS])
{
    const uint8_t *at = bytes + sizeof(header_t), *const end = bytes + length;
    record_t record;

    memset(published, 0, REGX_TRANSPORT_KINDS * sizeof(published[0]));
    for (; (size_t)(end - at) >= sizeof(record); at += record.length) {
        memcpy(&record, at, sizeof(record));
        at += sizeof(record);
        if (record.kind >= REGX_TRANSPORT_KINDS || record.length > (size_t)(end - at)) {
            return;
        }
        addresses_t *addresses = &published[record.kind];
        if (addresses->count < REGX_DEVICES_MAX) {
            addresses->list[addresses->count++] = (address_t){at, record.length, record.far != 0};
        }
    }
}

static bool leads_to(const regx_module_t *module, const address_t *address, bool same_node)
{
    const regx_transport_t *transport = module->transport;

    return transport->ops->reaches == NULL ||
           transport->ops->reaches(transport, address->bytes, address->length, same_node);
}

/* For each of `count` modules the address that it talks to, which is NULL before: by near ports, or
 * where no two lead to each other by pairs of which one end is far, or both. As many as can be: those at
 * the same place in both lists first, then by how far apart their places are. Both processes come to
 * the same result, since each decides by what both have published: Open MPI answers a large message
 * over the module on which it arrived. Whether there are any. */
static bool pair(regx_module_t *const modules[], unsigned count, const addresses_t *theirs,
                 bool same_node, const address_t *talks_to[])
{
    const unsigned longer = count > theirs->count ? count : theirs->count;
    bool taken[REGX_DEVICES_MAX] = {false}, any = false;

    for (int far_ends = 0; far_ends <= 2 && !any; far_ends++) {
        for (unsigned apart = 0; apart < longer; apart++) {
            for (unsigned k = 0; k < 2 * longer; k++) {
                const unsigned i = k / 2 + (k % 2 == 0 ? 0 : apart);
                const unsigned j = k / 2 + (k % 2 == 0 ? apart : 0);

                if (i < count && j < theirs->count && talks_to[i] == NULL && !taken[j] &&
                    modules[i]->far + theirs->list[j].far == far_ends &&
                    leads_to(modules[i], &theirs->list[j], same_node)) {
                    talks_to[i] = &theirs->list[j];
                    taken[j] = true;
                    any = true;
                }
            }
        }
    }
    return any;
}

/* One module at most is of the node, and it is the first; the others are ports. */
static unsigned find_kind(const regx_component_t *component, regx_transport_kind_t kind,
                          unsigned *count)
{
    const unsigned of_node = component->modules[0]->kind == REGX_ON_NODE;

    *count = kind == REGX_ON_NODE ? of_node : component->module_count - of_node;
    return kind == REGX_ON_NODE ? 0 : of_node;
}

static const char *name_flags(unsigned flags)
{
    static const char *const names[] = {"send", "send,put", "send,get", "send,put,get"};

    return names[(flags & MCA_BTL_FLAGS_RDMA) / MCA_BTL_FLAGS_PUT];
}

#define TCP_CAN "Open MPI's own tcp can: --mca btl regx,tcp,self"

/* Why this process has no port open. */
static void explain_no_port(const regx_component_t *component, regx_error_t why)
{
    const char *transport = component->params.settings.component.transport;

    if (strcmp(transport, "auto") == 0) {
        memcpy(why, component->transport_reason, REGX_ERROR);
    } else {
        snprintf(why, REGX_ERROR, "btl_regx_transport=%s is for the node alone", transport);
    }
}

void regx_address_warn_of_other_nodes(regx_component_t *component)
{
    regx_error_t why;
    unsigned ports;

    find_kind(component, REGX_BETWEEN_NODES, &ports);
    component->far_unreachable = ports == 0 &&
                                 regx_compat_processes() > regx_compat_local_processes() &&
                                 !regx_other_btl_leads(false);
    if (component->far_unreachable &&
        regx_compat_has_to_print(&component->super.btl_version, "regx: no way to other nodes")) {
        explain_no_port(component, why);
        regx_compat_output("ranks on other nodes than %s cannot be reached: %s. " TCP_CAN,
                           regx_compat_host(), why);
    }
}

/* If no other BTL takes it either, Open MPI's own message does not say why. Once in a process: it
 * is about to end. */
static void warn_unreachable(regx_component_t *component, const addresses_t *published,
                             opal_proc_t *proc, uint64_t peer)
{
    const bool same_node = regx_compat_same_node(proc);
    regx_error_t why;
    unsigned count;
    const unsigned first = find_kind(component, REGX_BETWEEN_NODES, &count);

    if (regx_other_btl_leads(same_node)) {
        if (same_node) {
            regx_tally(component->counters.fallbacks, "a process of this node: by another BTL");
        }
        return;
    }
    if ((component->far_unreachable && !same_node) ||
        atomic_exchange(&component->said_unreachable, true)) {
        return;
    }
    if (same_node) {
        snprintf(why, sizeof(why),
                 "it is on this node, but no memory can be shared with it, or its "
                 "btl_regx_transport is another (here %s)",
                 component->params.settings.component.transport);
    } else if (count == 0) {
        explain_no_port(component, why);
    } else if (published[REGX_BETWEEN_NODES].count == 0) {
        snprintf(why, sizeof(why), "it has opened no %s",
                 regx_catalog[REGX_BETWEEN_NODES]->devices);
    } else {
        snprintf(why, sizeof(why), "no port that is open here (%s) leads to one of its: %s",
                 component->modules[first]->transport->wires,
                 regx_catalog[REGX_BETWEEN_NODES]->remedy);
    }
    regx_compat_output("rank %u on %s cannot be reached: %s. " TCP_CAN, (unsigned)peer,
                       opal_get_proc_hostname(proc), why);
}

/* The peer, and what of this module's wires comes of it. */
static void trace_connection(const regx_module_t *module, opal_proc_t *proc,
                             const regx_peer_t *peer, const char *wire, const char *why)
{
    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u on %s: %s (%s): %s",
               (unsigned)peer->id, opal_get_proc_hostname(proc), wire, module->transport->wires,
               why);
}

static bool connect_module(regx_module_t *module, opal_proc_t *proc, const addresses_t *published,
                           regx_peer_t *peer)
{
    regx_transport_t *transport = module->transport;
    const bool same_node = regx_compat_same_node(proc);
    const address_t *talks_to[REGX_MODULES_MAX] = {NULL}; /* by the component's modules */
    bool any = false;

    /* What a peer is reached by: the transport of the node where it leads there, else ports, and if no
     * port does, nothing. */
    for (unsigned kind = 0; kind < REGX_TRANSPORT_KINDS && !any; kind++) {
        unsigned count;
        const unsigned first = find_kind(module->component, kind, &count);

        any = pair(&module->component->modules[first], count, &published[kind], same_node,
                   &talks_to[first]);
    }
    const address_t *address = talks_to[module->index];
    if (address == NULL) {
        trace_connection(module, proc, peer, "not used",
                         any ? "another transport takes it" : "does not lead there");
        if (!any && module->index == 0) { /* once for all */
            warn_unreachable(module->component, published, proc, peer->id);
        }
        return false;
    }
    const regx_status_t status =
        transport->ops->connect(transport, peer->id, address->bytes, address->length, &peer->conn);
    if (status == REGX_OK) {
        trace_connection(module, proc, peer, transport->ops->name,
                         module->kind == REGX_ON_NODE ? "on this node" : "on another node");
        return true;
    }
    trace_connection(module, proc, peer, "not used", "the peer's address is refused");
    if (status == REGX_NO_MEMORY) {
        regx_compat_output("no memory, or no addresses (ulimit -v), for another peer");
    } else {
        warn_unreachable(module->component, published, proc, peer->id);
    }
    return false;
}

/* Whether what the process has published is as it is to be. Why it is not is traced by each module,
 * and said by one if the process is to use regx. */
static bool fits(const regx_module_t *module, opal_proc_t *proc, const regx_peer_t *peer,
                 const uint8_t *bytes, size_t length)
{
    const uint8_t flags = own_flags(module->component);
    header_t header = {0};
    regx_error_t why;

    memcpy(&header, bytes, regx_min(length, sizeof(header)));
    if (length == NONE_SIZE && header.version == 0) {
        snprintf(why, sizeof(why), "is not to use regx, or cannot");
    } else if (length < sizeof(header) || header.version != VERSION ||
               header.control_version != REGX_CONTROL_VERSION) {
        snprintf(why, sizeof(why),
                 "runs another build of regx (its addresses have version %d, its control messages "
                 "%d; here %d and %d): the two do not talk; install the same one on all hosts",
                 header.version, header.control_version, VERSION, REGX_CONTROL_VERSION);
    } else if (header.process != peer->id) {
        snprintf(why, sizeof(why),
                 "cannot be reached: what Open MPI fetched as its address is another process's");
    } else if (header.flags != flags) {
        snprintf(why, sizeof(why),
                 "has other btl_regx_flags (%s) than are set here (%s): the two do not talk; set "
                 "the same for all ranks",
                 name_flags(header.flags), name_flags(flags));
    } else {
        return true;
    }
    trace_connection(module, proc, peer, "not used", why);
    if (length > NONE_SIZE && module->index == 0 &&
        !atomic_exchange(&module->component->said_unfit, true)) {
        regx_compat_output("rank %u on %s %s", (unsigned)peer->id, opal_get_proc_hostname(proc),
                           why);
    }
    return false;
}

bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    bool connected = false;
    addresses_t published[REGX_TRANSPORT_KINDS];

    if (regx_compat_fetch(&module->component->super.btl_version, proc, (void **)&bytes, &length) !=
        OPAL_SUCCESS) {
        trace_connection(module, proc, peer, "not used", "that process does not use regx");
        return false;
    }
    if (fits(module, proc, peer, bytes, length)) {
        parse(bytes, length, published);
        connected = connect_module(module, proc, published, peer);
    }
    free(bytes);
    return connected;
}
