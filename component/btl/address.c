/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process publishes: where each of its modules is reached.
 *
 *      0 u8  version (2)                  1 u8  version of the control messages
 *      2 u8  number of addresses          3 u8  zero
 *      4 for each address: u16 length, little-endian, then that many bytes, the transport's
 */
#include "btl/btl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 4
#define VERSION 3

typedef struct span {
    const uint8_t *bytes;
    size_t length;
} span_t;

bool regx_address_publish(const regx_component_t *component)
{
    uint8_t bytes[HEADER + REGX_DEVICES_MAX * (2 + REGX_ADDRESS_MAX)] = {
        VERSION, REGX_CONTROL_VERSION, (uint8_t)component->module_count, 0};
    size_t length = HEADER;

    for (unsigned i = 0; i < component->module_count; i++) {
        regx_transport_t *transport = component->modules[i]->transport;
        const size_t size = transport->ops->address(transport, bytes + length + 2);

        bytes[length] = (uint8_t)size;
        bytes[length + 1] = (uint8_t)(size >> 8);
        length += 2 + size;
    }
    return regx_compat_publish(&component->super.btl_version, bytes, length) == OPAL_SUCCESS;
}

/* The addresses that somebody published; how many. */
static unsigned parse(const uint8_t *bytes, size_t length, span_t spans[REGX_DEVICES_MAX])
{
    const unsigned told = bytes[2] < REGX_DEVICES_MAX ? bytes[2] : REGX_DEVICES_MAX;
    size_t at = HEADER;
    unsigned count = 0;

    while (count < told && length - at >= 2) {
        const size_t size = bytes[at] | (size_t)bytes[at + 1] << 8;

        at += 2;
        if (size > length - at) {
            break;
        }
        spans[count++] = (span_t){bytes + at, size};
        at += size;
    }
    return count;
}

static bool reaches(const regx_transport_t *transport, const span_t *address)
{
    return transport->ops->reaches == NULL ||
           transport->ops->reaches(transport, address->bytes, address->length);
}

/* Which of their addresses each of the modules talks to: as many pairs as there are, those at the
 * same place in both lists first, then by how far apart their places are. The other end, for whom
 * the lists are exchanged, finds the same pairs. `theirs[i]` is -1 where there is none. */
static void pair_up(const regx_component_t *component, const span_t *addresses, unsigned count,
                    int theirs[REGX_DEVICES_MAX])
{
    const unsigned mine = component->module_count;
    bool taken[REGX_DEVICES_MAX] = {false};

    for (unsigned i = 0; i < REGX_DEVICES_MAX; i++) {
        theirs[i] = -1;
    }
    for (unsigned apart = 0; apart < REGX_DEVICES_MAX; apart++) {
        for (unsigned k = 0; k < 2 * REGX_DEVICES_MAX; k++) {
            const unsigned i = k / 2 + (k % 2 == 0 ? 0 : apart);
            const unsigned j = k / 2 + (k % 2 == 0 ? apart : 0);

            if (i < mine && j < count && theirs[i] < 0 && !taken[j] &&
                reaches(component->modules[i]->transport, &addresses[j])) {
                theirs[i] = (int)j;
                taken[j] = true;
            }
        }
    }
}

static bool is_met(const int theirs[REGX_DEVICES_MAX])
{
    for (unsigned i = 0; i < REGX_DEVICES_MAX; i++) {
        if (theirs[i] >= 0) {
            return true;
        }
    }
    return false;
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

/* Of several modules that reach nobody, the first says so. */
static bool connect_module(regx_module_t *module, opal_proc_t *proc, const uint8_t *bytes,
                           size_t length, regx_peer_t *peer)
{
    const regx_component_t *component = &mca_btl_regx_component;
    regx_transport_t *transport = module->transport;
    span_t addresses[REGX_DEVICES_MAX];
    int theirs[REGX_DEVICES_MAX];

    pair_up(component, addresses, parse(bytes, length, addresses), theirs);
    const int which = theirs[module->place];
    const regx_status_t status =
        which < 0
            ? REGX_UNREACHABLE
            : transport->ops->connect(transport, peer->id, regx_compat_same_node(proc),
                                      addresses[which].bytes, addresses[which].length, &peer->conn);
    if (status == REGX_OK) {
        regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u on %s: over %s, by %s",
                   (unsigned)peer->id, opal_get_proc_hostname(proc), peer->conn->wire,
                   transport->wires);
        return true;
    }
    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u on %s: not over %s",
               (unsigned)peer->id, opal_get_proc_hostname(proc), transport->wires);
    if (status == REGX_NO_MEMORY) {
        regx_compat_say("no memory for another peer");
    } else if (which >= 0 || (module->place == 0 && !is_met(theirs))) {
        say_unreachable(module, proc, peer->id);
    }
    return false;
}

bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    bool connected = false;

    if (regx_compat_fetch(&mca_btl_regx_component.super.btl_version, proc, (void **)&bytes,
                          &length) != OPAL_SUCCESS) {
        regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u on %s does not use regx",
                   (unsigned)peer->id, opal_get_proc_hostname(proc));
        return false;
    }
    if (length < HEADER || bytes[0] != VERSION || bytes[1] != REGX_CONTROL_VERSION) {
        if (length >= HEADER && module->place == 0) {
            say_mismatch(proc, bytes);
        }
    } else {
        connected = connect_module(module, proc, bytes, length, peer);
    }
    free(bytes);
    return connected;
}
