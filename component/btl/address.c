/* SPDX-License-Identifier: BSD-3-Clause
 *
 *      0 u8  version (7)                  1 u8  version of the control messages
 *      2 u8  number of addresses          3 u8  of btl_flags: put and get
 *      4 u64 the node's identity, little-endian as all that follows
 *     12 u64 the process, so that what was filed under another one's name is not taken for its
 *     20 for each address: u8 length of the transport's name, the name,
 *        u16 length of the transport's address, the address
 *
 * Of a process that does not take part, for all that it was asked to: one byte, zero.
 */
#include "btl/address.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/little_endian.h"
#include "btl/pairing.h"
#include "transport/catalog.h"

#define HEADER 20
#define NONE_SIZE 1
#define VERSION 7
#define NAME_MAX_LENGTH 15 /* of a transport */

typedef struct span {
    const uint8_t *bytes;
    size_t length;
} span_t;

/* What a process published: its transports, and the address of each. */
typedef struct published {
    unsigned count;
    uint64_t node;
    regx_candidate_t transports[REGX_MODULES_MAX];
    span_t addresses[REGX_MODULES_MAX];
} published_t;

_Static_assert(REGX_MODULES_MAX <= REGX_PAIRING_MAX, "all modules are paired");

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

/* What of btl_regx_flags has to be alike at both ends: ob1 puts to and gets from any peer. */
static uint8_t own_flags(const regx_component_t *component)
{
    return (uint8_t)(component->modules[0]->super.btl_flags & MCA_BTL_FLAGS_RDMA);
}

bool regx_address_publish(regx_component_t *component)
{
    uint8_t bytes[HEADER + REGX_MODULES_MAX * (1 + NAME_MAX_LENGTH + 2 + REGX_ADDRESS_MAX)] = {
        VERSION, REGX_CONTROL_VERSION, (uint8_t)component->module_count, own_flags(component)};
    uint8_t *at = bytes + HEADER;

    component->node = identify_node();
    regx_le_put(bytes + 4, component->node, 8);
    regx_le_put(bytes + 12, regx_compat_self(), 8);
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_transport_t *transport = component->modules[i]->transport;
        const size_t name_length = strlen(transport->ops->name);

        assert(name_length <= NAME_MAX_LENGTH);
        *at++ = (uint8_t)name_length;
        memcpy(at, transport->ops->name, name_length);
        at += name_length;
        const size_t length = transport->ops->address(transport, at + 2);
        assert(length <= REGX_ADDRESS_MAX);
        regx_le_put(at, length, 2);
        at += 2 + length;
    }
    return regx_compat_publish(&component->super.btl_version, bytes, (size_t)(at - bytes)) ==
           OPAL_SUCCESS;
}

void regx_address_publish_none(const regx_component_t *component)
{
    const uint8_t none[NONE_SIZE] = {0};

    (void)regx_compat_publish(&component->super.btl_version, none, sizeof(none));
}

/* Reads a length of `size` bytes and that many bytes. false: they are not there. */
static bool parse_span(span_t *rest, unsigned size, span_t *span)
{
    if (rest->length < size) {
        return false;
    }
    *span = (span_t){rest->bytes + size, regx_le_get(rest->bytes, size)};
    if (rest->length - size < span->length) {
        return false;
    }
    rest->bytes += size + span->length;
    rest->length -= size + span->length;
    return true;
}

static void parse(const uint8_t *bytes, size_t length, published_t *published)
{
    const unsigned count = bytes[2] < REGX_MODULES_MAX ? bytes[2] : REGX_MODULES_MAX;
    span_t rest = {bytes + HEADER, length - HEADER}, kind;
    unsigned i = 0;

    while (i < count && parse_span(&rest, 1, &kind) &&
           parse_span(&rest, 2, &published->addresses[i])) {
        published->transports[i++] =
            (regx_candidate_t){.kind = (const char *)kind.bytes, .kind_length = kind.length};
    }
    published->count = i;
    published->node = regx_le_get(bytes + 4, 8);
}

/* For `reaches` of a pairing. */
typedef struct two {
    const regx_component_t *component;
    const published_t *published;
} two_t;

static bool reaches(void *context, unsigned ours, unsigned theirs)
{
    const two_t *two = context;
    const regx_transport_t *transport = two->component->modules[ours]->transport;
    const span_t *address = &two->published->addresses[theirs];

    return transport->ops->reaches == NULL ||
           transport->ops->reaches(transport, address->bytes, address->length);
}

/* Which of their addresses each of the modules talks to. */
static void pair(const regx_component_t *component, const published_t *published,
                 int talks_to[REGX_PAIRING_MAX])
{
    regx_candidate_t ours[REGX_MODULES_MAX];
    two_t two = {component, published};

    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_transport_ops_t *ops = component->modules[i]->transport->ops;

        ours[i] = (regx_candidate_t){
            .kind = ops->name, .kind_length = strlen(ops->name), .for_node = ops->copies};
    }
    const regx_pairing_t pairing = {.ours = ours,
                                    .theirs = published->transports,
                                    .our_count = component->module_count,
                                    .their_count = published->count,
                                    .same_node = published->node == component->node,
                                    .reaches = reaches,
                                    .context = &two};
    regx_pair(&pairing, talks_to);
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
                        const uint8_t *theirs)
{
    char line[512];

    snprintf(line, sizeof(line),
             "rank %u on %s has other btl_regx_flags (%s) than are set here (%s): the two do not "
             "talk; set the same for all ranks",
             (unsigned)peer, opal_get_proc_hostname(proc), name_flags(theirs[3]),
             name_flags(own_flags(component)));
    regx_compat_output(line);
}

static const char *remedy_of(const regx_transport_t *transport)
{
    const regx_catalog_row_t *row = regx_catalog_find(transport->ops->name);

    return row != NULL ? row->entry->remedy : "";
}

/* Another BTL may reach it; if none does, Open MPI's message is vague, so this line is needed. */
static void warn_unreachable(const regx_module_t *module, opal_proc_t *proc, uint64_t peer)
{
    char line[768];

    snprintf(line, sizeof(line), "rank %u on %s cannot be reached (open here: %s); %s",
             (unsigned)peer, opal_get_proc_hostname(proc), module->transport->wires,
             remedy_of(module->transport));
    regx_compat_output(line);
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

/* Why this wire and no better one. */
static const char *why_this(bool same_node, const regx_conn_t *conn)
{
    if (same_node && !conn->shares_pool) {
        return "on this node, but not by shared memory";
    }
    return same_node ? "on this node" : "on another node";
}

/* Whether no module leads to the peer. */
static bool is_out_of_reach(const regx_component_t *component, const int talks_to[REGX_PAIRING_MAX])
{
    for (unsigned i = 0; i < component->module_count; i++) {
        if (talks_to[i] != REGX_PAIRING_NONE) {
            return false;
        }
    }
    return true;
}

static bool connect_module(regx_module_t *module, opal_proc_t *proc, const published_t *published,
                           regx_peer_t *peer)
{
    const regx_component_t *component = module->component;
    regx_transport_t *transport = module->transport;
    int talks_to[REGX_PAIRING_MAX];

    pair(component, published, talks_to);
    const int which = talks_to[module->place];
    if (which < 0) {
        trace_connection(module, proc, peer, "not used",
                         which == REGX_PAIRING_OTHERS ? "another transport takes it"
                                                      : "does not lead there");
        if (module->place == 0 && is_out_of_reach(component, talks_to)) { /* once for all */
            warn_unreachable(module, proc, peer->id);
        }
        return false;
    }
    const span_t *address = &published->addresses[which];
    const regx_status_t status =
        transport->ops->connect(transport, peer->id, regx_compat_same_node(proc), address->bytes,
                                address->length, &peer->conn);
    if (status == REGX_OK) {
        trace_connection(module, proc, peer, peer->conn->wire,
                         why_this(published->node == component->node, peer->conn));
        return true;
    }
    trace_connection(module, proc, peer, "not used", "the peer's address is refused");
    if (status == REGX_NO_MEMORY) {
        regx_compat_output("no memory for another peer");
    } else {
        warn_unreachable(module, proc, peer->id);
    }
    return false;
}

bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    bool connected = false;
    published_t published;

    if (regx_compat_fetch(&module->component->super.btl_version, proc, (void **)&bytes, &length) !=
        OPAL_SUCCESS) {
        trace_connection(module, proc, peer, "not used", "that process does not use regx");
        return false;
    }
    if (length == NONE_SIZE && bytes[0] == 0) {
        trace_connection(module, proc, peer, "not used", "regx is refused or not usable there");
    } else if (length < HEADER || bytes[0] != VERSION || bytes[1] != REGX_CONTROL_VERSION) {
        trace_connection(module, proc, peer, "not used", "it runs another build of regx");
        if (length >= 4 && module->place == 0) {
            warn_mismatch(proc, bytes);
        }
    } else if (regx_le_get(bytes + 12, 8) != peer->id) {
        trace_connection(module, proc, peer, "not used", "its address is another process's");
        warn_another(proc, peer->id);
    } else if (bytes[3] != own_flags(module->component)) {
        trace_connection(module, proc, peer, "not used", "its btl_regx_flags are others");
        if (module->place == 0) {
            warn_unlike(module->component, proc, peer->id, bytes);
        }
    } else {
        parse(bytes, length, &published);
        connected = connect_module(module, proc, &published, peer);
    }
    free(bytes);
    return connected;
}
