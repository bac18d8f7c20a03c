/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The object regx_transport_uct.so: shared memory where Open MPI says "same node"; tcp for
 * everybody else, and for neighbours with whom shared memory is refused.
 */
#include <string.h>

#include "base/util.h"
#include "transport/mux/mux.h"
#include "transport/rkey_table.h"
#include "transport/shm/shm.h"
#include "transport/tcp/tcp.h"

/* In the order of preference. A new transport of this object is one line here. */
static const regx_mux_wire_t wires[] = {
    {.ops = &regx_shm_ops, .words = "shared memory", .tls = "posix,sysv"},
    {.ops = &regx_tcp_ops, .words = "tcp", .tls = "tcp"},
};

_Static_assert(sizeof(wires) / sizeof(wires[0]) <= REGX_MUX_WIRES_MAX,
               "the address has a bit for each");

/* The object's face; regx_transport_load looks it up. */
__attribute__((visibility("default"))) extern const regx_transport_ops_t regx_transport_ops;

static regx_status_t open_all(const regx_transport_config_t *config, char *error, size_t error_size,
                              regx_transport_t **transport)
{
    const regx_status_t status =
        regx_mux_open(&regx_transport_ops, wires, sizeof(wires) / sizeof(wires[0]), config, error,
                      error_size, transport);
    if (status == REGX_OK) { /* the same whichever of them are open */
        (*transport)->max_frame = regx_min((*transport)->max_frame, REGX_SHM_MAX_FRAME);
    }
    return status;
}

const regx_transport_ops_t regx_transport_ops = {.abi = REGX_TRANSPORT_ABI,
                                                 .name = "uct",
                                                 .open = open_all,
                                                 .close = regx_mux_close,
                                                 .address = regx_mux_address,
                                                 .connect = regx_mux_connect,
                                                 .disconnect = regx_mux_disconnect,
                                                 .warm = regx_mux_warm,
                                                 .reachable = regx_mux_reachable,
                                                 .send = regx_mux_send,
                                                 .send_zcopy = regx_mux_send_zcopy,
                                                 .put = regx_mux_put,
                                                 .get = regx_mux_get,
                                                 .copies = true,
                                                 .copy = regx_mux_copy,
                                                 .expose = regx_key_expose,
                                                 .stage = regx_mux_stage,
                                                 .unstage = regx_mux_unstage,
                                                 .allocate = regx_mux_allocate,
                                                 .release = regx_mux_release,
                                                 .reg = regx_mux_reg,
                                                 .dereg = regx_mux_dereg,
                                                 .progress = regx_mux_progress};
