/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/settings.h"

#include <string.h>

static const regx_param_t component_params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_component_settings_t, "", type, field, __VA_ARGS__)
#include "btl/params.def"
#undef REGX_PARAM
};

static const regx_param_table_t component_table = {.title = "The component",
                                                   .params = component_params,
                                                   .count = sizeof(component_params) /
                                                            sizeof(component_params[0])};

static const regx_settings_room_t rooms[] = {
    {&component_table, offsetof(regx_settings_t, component)},
    {&regx_rndv_params, offsetof(regx_settings_t, rendezvous)},
    {&regx_pool_params, offsetof(regx_settings_t, pool)},
    {&regx_registration_params, offsetof(regx_settings_t, registration)},
    {&regx_transport_params, offsetof(regx_settings_t, transports.all)},
};

enum { ROOMS = sizeof(rooms) / sizeof(rooms[0]) };

bool regx_settings_room(unsigned index, regx_settings_room_t *room)
{
    if (index < ROOMS) {
        *room = rooms[index];
    } else if (index == ROOMS) {
        *room = (regx_settings_room_t){regx_catalog[REGX_BETWEEN_NODES]->params,
                                       offsetof(regx_settings_t, transports.between_nodes)};
    }
    return index <= ROOMS;
}

const regx_param_t *regx_settings_find(const char *name)
{
    regx_settings_room_t room;

    for (unsigned r = 0; regx_settings_room(r, &room); r++) {
        for (size_t i = 0; i < room.table->count; i++) {
            if (strcmp(room.table->params[i].name, name) == 0) {
                return &room.table->params[i];
            }
        }
    }
    return NULL;
}

/* The defaults are Open MPI's, or those of the face (component.c). */
static const regx_param_t inherited[] = {
    {.name = "eager_limit",
     .initial = "16448",
     .help = "Largest message that is sent at once, with its header: 256 to 16448, which is 16 KiB "
             "of the user's data. Unless it is set, regx lowers it between processes of a node, to "
             "8 or 4 KiB of data, if it measures that the program's messages are faster by "
             "rendezvous; not with MPI_THREAD_MULTIPLE, nor if btl_regx_rndv_eager_limit, "
             "btl_regx_auto_choice, btl_regx_verify or another btl_regx_rendezvous than auto is "
             "set."},
    {.name = "rndv_eager_limit",
     .initial = "4096",
     .help = "Bytes of a larger message that are sent with its RTS: 0 to btl_regx_eager_limit. "
             "Unless it is set, they are 4096 (or btl_regx_eager_limit, if that is less) of data "
             "that is packed or buffered, and 0 of contiguous data: so the chunks of the pipeline "
             "begin where the user's buffer begins."},
    {.name = "max_send_size",
     .initial = "65536",
     .help = "Size of fragments of non-contiguous messages, with their header: 1024 to "
             "btl_regx_slot_size, but the maximum is at least 16448 and at most 65536."},
    {.name = "exclusivity",
     .initial = "1024",
     .help = "If several BTLs reach a peer, the one with the highest exclusivity is used. On a "
             "node, vader's (sm's) is 65536, so that `--mca btl regx,vader,self` uses vader within "
             "the node; set more than 65536 to use regx there. But beside a vader with puts, gets "
             "and atomics Open MPI sends large messages in fragments: leave vader out of btl, or "
             "add btl_vader_flags = send. The same applies to MPI windows, see btl_regx_flags. "
             "Between nodes, tcp's is 100."},
    {.name = "latency",
     .initial = "1",
     .help = "Latency in microseconds and bandwidth in Mbit/s, by which Open MPI chooses between "
             "BTLs and stripes over several."},
    {.name = "bandwidth", .initial = "100000"},
    {.name = "min_rdma_pipeline_size",
     .initial = "16448",
     .help = "Open MPI's own pipeline: a message above btl_regx_min_rdma_pipeline_size (default: "
             "whatever does not go eagerly) is sent as btl_regx_rdma_pipeline_send_length bytes of "
             "fragments, then put in parts of btl_regx_rdma_pipeline_frag_size: by default no "
             "fragments, and one put of the whole. Only for comparison with regx's pipeline; each "
             "part costs Open MPI two messages."},
    {.name = "rdma_pipeline_send_length", .initial = "0"},
    {.name = "rdma_pipeline_frag_size", .initial = "18446744073709551615"},
    {.name = "flags",
     .initial = "send,put,get,fetching-atomics",
     .help =
         "Capabilities of regx. With fetching-atomics it is used for MPI windows. Unless "
         "btl_regx_flags is set, fetching-atomics is omitted beside a BTL of higher exclusivity "
         "(other than self), and with Open MPI 5.0 and later."},
    {.name = "atomic_flags", .help = "Not to be set: follows from btl_regx_flags."},
    {.name = "put_alignment", .initial = "0"},
    {.name = "put_limit",
     .initial = "18446744073709551615",
     .help = "Refused if set: Open MPI puts a message as a whole and ignores this limit. Use "
             "btl_regx_chunk_size."},
    {.name = "get_alignment", .initial = "0"},
    {.name = "get_limit",
     .initial = "18446744073709551615",
     .help = "Refused if set: Open MPI gets a message as a whole, and regx splits it itself."},
};

const regx_param_table_t regx_inherited_params = {
    .title = "Open MPI's own parameters of a BTL",
    .intro =
        "They have Open MPI's meaning. Open MPI reads them, so sizes are plain numbers of bytes.",
    .params = inherited,
    .count = sizeof(inherited) / sizeof(inherited[0])};
