/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process publishes about how it is reached, and which of its modules talks to a peer.
 *
 * Of two processes that have several transports in common, one kind of transport carries all of
 * their messages: on the node the one that shares memory, between nodes the other, where it reaches
 * the peer. Open MPI would stripe over all, and expects an answer from the module that asked. Both
 * ends come to the same result, since each decides by what both have published. Several ports of
 * one kind are paired, and messages are striped over them on purpose.
 */
#ifndef REGX_BTL_ADDRESS_H
#define REGX_BTL_ADDRESS_H

#include "btl/component.h"
#include "btl/module.h"
#include "btl/types.h"

/* Publishes how all modules are reached; sets component->node. false: Open MPI refuses. */
bool regx_address_publish(regx_component_t *component);

/* Publishes that this process, which was asked to use regx, does not: others may wait for
 * something. */
void regx_address_publish_none(const regx_component_t *component);

/* Connects the module to that process, if it is the module that talks to it: sets peer->conn;
 * peer->id is set already. false: another module does, or none reaches it. If no module does, a
 * warning was printed. Any thread. */
bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer);

#endif
