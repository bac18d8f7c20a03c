/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process publishes about how it is reached, and which of its modules talks to a peer.
 *
 * Per peer one kind of transport carries all messages: shared memory if the peer is on this node,
 * else the ports of RDMA devices, if one leads there; else regx does not reach it, and Open MPI
 * asks its other BTLs. Open MPI would stripe over all kinds, and expects an answer from the module
 * that asked. Both ends come to the same result, since each decides by what both have published.
 * Several ports are paired (pairing.h), and messages are striped over them on purpose.
 */
#ifndef REGX_BTL_ADDRESS_H
#define REGX_BTL_ADDRESS_H

#include "btl/component.h"
#include "btl/module.h"
#include "btl/types.h"

/* Publishes how all modules are reached. false: Open MPI refuses. */
bool regx_address_publish(regx_component_t *component);

/* Says, in one process of the job, that no process of another node can be reached, if that is so
 * and is known at the start: no port is open here, and no other BTL may lead there. To be called
 * before addresses are exchanged. */
void regx_address_warn_of_other_nodes(regx_component_t *component);

/* Publishes that this process, which was asked to use regx, does not: others may wait for
 * something. */
void regx_address_publish_none(const regx_component_t *component);

/* Connects the module to that process, if it is the module that talks to it: sets peer->conn;
 * peer->id is set already. false: another module does, or none reaches it. If no module does, and
 * no other BTL of the job may, a warning was printed. Any thread. */
bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer);

#endif
