/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process publishes: header_t, and for each module record_t and the transport's own address.
 * Of a process that does not take part, for all that it was asked to: one byte, zero.
 */
#include "btl/address.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "btl/other_btls.h"
#include "btl/pairing.h"
#include "transport/catalog.h"

#define NONE_SIZE 1
#define VERSION 8

typedef struct header {
    uint8_t version;         /* of this: the first two bytes are the same in all builds */
    uint8_t control_version; /* of the control messages */
    uint8_t count;           /* of records */
    uint8_t flags;           /* of btl_flags: put and get */
    uint32_t zero;
    uint64_t process; /* what was filed under another one's name is not taken for its */
} header_t;

typedef struct record {
    uint16_t kind;   /* regx_transport_kind_t */
    uint16_t length; /* of the address that follows */
} record_t;

/* One module of another process. */
typedef struct address {
    const uint8_t *bytes;
    size_t length;
} address_t;

/* Those of one kind. */
typedef struct addresses {
    unsigned count;
    address_t list[REGX_DEVICES_MAX];
} addresses_t;

/* What a process published. */
typedef struct published {
    addresses_t of[REGX_TRANSPORT_KINDS];
} published_t;

_Static_assert(REGX_DEVICES_MAX <= REGX_PAIRING_MAX, "all ports are paired");

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
                             .count = (uint8_t)component->module_count,
                             .flags = own_flags(component),
                             .process = regx_compat_self()};
    uint8_t *at = bytes + sizeof(header);

    memcpy(bytes, &header, sizeof(header));
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];
        uint8_t *address = at + sizeof(record_t);
        const size_t length = module->transport->ops->address(module->transport, address);
        const record_t record = {(uint16_t)module->kind, (uint16_t)length};

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
static void parse(const uint8_t *bytes, size_t length, published_t *published)
{
    const uint8_t *at = bytes + sizeof(header_t), *const end = bytes + length;
    record_t record;

    *published = (published_t){0};
    for (; (size_t)(end - at) >= sizeof(record); at += record.length) {
        memcpy(&record, at, sizeof(record));
        at += sizeof(record);
        if (record.kind >= REGX_TRANSPORT_KINDS || record.length > (size_t)(end - at)) {
            return;
        }
        addresses_t *addresses = &published->of[record.kind];
        if (addresses->count < REGX_DEVICES_MAX) {
            addresses->list[addresses->count++] = (address_t){at, record.length};
        }
    }
}

static bool leads_to(const regx_module_t *module, const address_t *address)
{
    const regx_transport_t *transport = module->transport;

    return transport->ops->reaches == NULL ||
           transport->ops->reaches(transport, address->bytes, address->length);
}

/* For `reaches` of a pairing. */
typedef struct two {
    regx_module_t *const *ours;
    const addresses_t *theirs;
} two_t;

static bool reaches(void *context, unsigned ours, unsigned theirs)
{
    const two_t *two = context;

    return leads_to(two->ours[ours], &two->theirs->list[theirs]);
}

/* The modules of one kind stand together. */
static unsigned find_kind(const regx_component_t *component, regx_transport_kind_t kind,
                          unsigned *count)
{
    unsigned first = 0;

    while (first < component->module_count && component->modules[first]->kind != kind) {
        first++;
    }
    for (*count = 0; first + *count < component->module_count &&
                     component->modules[first + *count]->kind == kind;
         ++*count) {
    }
    return first;
}

/* What a peer is reached by: the transport of the node where it leads there, else ports, and if no
 * port does, nothing. Sets for each of the modules the address that it talks to, or NULL. */
static bool choose(const regx_component_t *component, const published_t *published,
                   const address_t *talks_to[REGX_MODULES_MAX])
{
    bool any = false;

    memset(talks_to, 0, REGX_MODULES_MAX * sizeof(talks_to[0]));
    for (unsigned kind = 0; kind < REGX_TRANSPORT_KINDS && !any; kind++) {
        const addresses_t *theirs = &published->of[kind];
        int pairs[REGX_PAIRING_MAX];
        unsigned count;
        const unsigned first = find_kind(component, kind, &count);
        two_t two = {&component->modules[first], theirs};

        regx_pair(&(regx_pairing_t){count, theirs->count, reaches, &two}, pairs);
        for (unsigned i = 0; i < count; i++) {
            if (pairs[i] != REGX_PAIRING_NONE) {
                talks_to[first + i] = &theirs->list[pairs[i]];
                any = true;
            }
        }
    }
    return any;
}

static void warn_mismatch(opal_proc_t *proc, const uint8_t *theirs)
{
    char line[256];

    snprintf(line, sizeof(line),
             "%s runs another build of regx (its addresses have version %d, its control messages "
             "%d; here %d and %d): the two do not talk; install the same one on all hosts",
             opal_get_proc_hostname(proc), theirs[0], theirs[1], VERSION, REGX_CONTROL_VERSION);
    regx_compat_output(line);
}

static const char *name_flags(unsigned flags)
{
    static const char *const names[] = {"send", "send,put", "send,get", "send,put,get"};

    return names[(flags & MCA_BTL_FLAGS_RDMA) / MCA_BTL_FLAGS_PUT];
}

static void warn_unlike(const regx_component_t *component, opal_proc_t *proc, uint64_t peer,
                        unsigned theirs)
{
    char line[512];

    snprintf(line, sizeof(line),
             "rank %u on %s has other btl_regx_flags (%s) than are set here (%s): the two do not "
             "talk; set the same for all ranks",
             (unsigned)peer, opal_get_proc_hostname(proc), name_flags(theirs),
             name_flags(own_flags(component)));
    regx_compat_output(line);
}

static void say_unreachable(const char *who, const char *why)
{
    char line[1024];

    snprintf(line, sizeof(line),
             "%s cannot be reached: %s. Open MPI's own tcp can: --mca btl regx,tcp,self", who, why);
    regx_compat_output(line);
}

/* Why this process has no port open. */
static void explain_no_port(const regx_component_t *component, char *why, size_t size)
{
    const char *transport = component->params.settings.component.transport;

    if (strcmp(transport, "auto") == 0) {
        snprintf(why, size, "%s", component->transport_reason);
    } else {
        snprintf(why, size, "btl_regx_transport=%s is for the node alone", transport);
    }
}

void regx_address_warn_of_other_nodes(regx_component_t *component)
{
    char who[64], why[256];
    unsigned ports;

    find_kind(component, REGX_BETWEEN_NODES, &ports);
    component->far_unreachable = ports == 0 &&
                                 regx_compat_processes() > regx_compat_local_processes() &&
                                 !regx_other_btl_leads(false);
    if (component->far_unreachable &&
        regx_compat_falls_here(&component->super.btl_version, "regx: no way to other nodes")) {
        explain_no_port(component, why, sizeof(why));
        snprintf(who, sizeof(who), "rank %u, which is on another node than %s,",
                 (unsigned)regx_compat_far_rank(), regx_compat_host());
        say_unreachable(who, why);
    }
}

/* If no other BTL takes it either, Open MPI's own message does not say why. Once in a process: it
 * is about to end. */
static void warn_unreachable(regx_component_t *component, const published_t *published,
                             opal_proc_t *proc, uint64_t peer)
{
    const bool same_node = regx_compat_same_node(proc);
    char who[320], why[512];
    unsigned count;
    const unsigned first = find_kind(component, REGX_BETWEEN_NODES, &count);

    if ((component->far_unreachable && !same_node) || regx_other_btl_leads(same_node) ||
        atomic_exchange(&component->said_unreachable, true)) {
        return;
    }
    if (same_node) {
        snprintf(why, sizeof(why), "it is on this node, but no memory can be shared with it");
    } else if (count == 0) {
        explain_no_port(component, why, sizeof(why));
    } else if (published->of[REGX_BETWEEN_NODES].count == 0) {
        snprintf(why, sizeof(why), "it has opened no %s",
                 regx_catalog[REGX_BETWEEN_NODES]->devices);
    } else {
        snprintf(why, sizeof(why), "no port that is open here (%s) leads to one of its: %s",
                 component->modules[first]->transport->wires,
                 regx_catalog[REGX_BETWEEN_NODES]->remedy);
    }
    snprintf(who, sizeof(who), "rank %u on %s", (unsigned)peer, opal_get_proc_hostname(proc));
    say_unreachable(who, why);
}

static void warn_another(const opal_proc_t *proc, uint64_t peer)
{
    char line[512];

    snprintf(line, sizeof(line),
             "rank %u on %s cannot be reached: what Open MPI fetched as its address is another "
             "process's",
             (unsigned)peer, opal_get_proc_hostname(proc));
    regx_compat_output(line);
}

/* The peer, and what of this module's wires comes of it. */
static void trace_connection(const regx_module_t *module, opal_proc_t *proc,
                             const regx_peer_t *peer, const char *wire, const char *why)
{
    if (regx_traces(module->trace, REGX_TRACE_CONNECTION)) { /* the host's name may be asked for */
        regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u on %s: %s (%s): %s",
                   (unsigned)peer->id, opal_get_proc_hostname(proc), wire, module->transport->wires,
                   why);
    }
}

static bool connect_module(regx_module_t *module, opal_proc_t *proc, const published_t *published,
                           regx_peer_t *peer)
{
    regx_transport_t *transport = module->transport;
    const address_t *talks_to[REGX_MODULES_MAX];
    const bool any = choose(module->component, published, talks_to);
    const address_t *address = talks_to[module->place];

    if (address == NULL) {
        trace_connection(module, proc, peer, "not used",
                         any ? "another transport takes it" : "does not lead there");
        if (!any && module->place == 0) { /* once for all */
            warn_unreachable(module->component, published, proc, peer->id);
        }
        return false;
    }
    const regx_status_t status =
        transport->ops->connect(transport, peer->id, address->bytes, address->length, &peer->conn);
    if (status == REGX_OK) {
        trace_connection(module, proc, peer, peer->conn->wire,
                         module->kind == REGX_ON_NODE ? "on this node" : "on another node");
        return true;
    }
    trace_connection(module, proc, peer, "not used", "the peer's address is refused");
    if (status == REGX_NO_MEMORY) {
        regx_compat_output("no memory for another peer");
    } else {
        warn_unreachable(module->component, published, proc, peer->id);
    }
    return false;
}

bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer)
{
    uint8_t *bytes = NULL;
    header_t header = {0};
    size_t length = 0;
    bool connected = false;
    published_t published;

    if (regx_compat_fetch(&module->component->super.btl_version, proc, (void **)&bytes, &length) !=
        OPAL_SUCCESS) {
        trace_connection(module, proc, peer, "not used", "that process does not use regx");
        return false;
    }
    memcpy(&header, bytes, length < sizeof(header) ? length : sizeof(header));
    if (length == NONE_SIZE && header.version == 0) {
        trace_connection(module, proc, peer, "not used", "regx is refused or not usable there");
    } else if (length < sizeof(header) || header.version != VERSION ||
               header.control_version != REGX_CONTROL_VERSION) {
        trace_connection(module, proc, peer, "not used", "it runs another build of regx");
        if (length >= 4 && module->place == 0) {
            warn_mismatch(proc, bytes);
        }
    } else if (header.process != peer->id) {
        trace_connection(module, proc, peer, "not used", "its address is another process's");
        warn_another(proc, peer->id);
    } else if (header.flags != own_flags(module->component)) {
        trace_connection(module, proc, peer, "not used", "its btl_regx_flags are others");
        if (module->place == 0) {
            warn_unlike(module->component, proc, peer->id, header.flags);
        }
    } else {
        parse(bytes, length, &published);
        connected = connect_module(module, proc, &published, peer);
    }
    free(bytes);
    return connected;
}
