/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Together: as get, but each get asks the transport to have the sender copy a part of it
 * (regx_get_t.assisted). How the two divide a get between them is the transport's. For two
 * processes of one node between which the kernel copies.
 */
#include "rendezvous/get.h"
#include "rendezvous/strategy.h"

static const char *obstacle(const regx_peer_t *peer)
{
    return peer->conn->single_copy ? regx_get_obstacle(peer)
                                   : "together: the kernel does not copy to this peer";
}

static const regx_protocol_t protocol = {
    .assisted = true, .obstacle = obstacle, REGX_GET_OPERATIONS};

const regx_strategy_t regx_strategy_together = {
    .name = "together",
    .path = REGX_PATH_together,
    .protocol = &protocol,
    .exposes = true,
    .copies = true,
    .help = "on a node: as read, and the sender has the kernel copy a part of the message if it "
            "has nothing else to do",
    .more = "Where the kernel copies between the processes (process_vm_readv, process_vm_writev). "
            "Both take pieces of the message until all are taken. What the sender takes depends "
            "on when it calls MPI."};
