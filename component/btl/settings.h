/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set, of all rooms, and the keys of the report. Plain C, without Open MPI's
 * headers: mca-params/describe.c reads the tables, too.
 */
#ifndef REGX_BTL_SETTINGS_H
#define REGX_BTL_SETTINGS_H

#include "pool/pool.h"
#include "registration/registration.h"
#include "rendezvous/rendezvous.h"
#include "transport/catalog.h"

typedef enum { REGX_ENABLE_AUTO, REGX_ENABLE_NEVER, REGX_ENABLE_ALWAYS } regx_enable_t;
typedef char regx_report_name_t[1024]; /* "": none */

typedef struct regx_component_settings {
#define REGX_PARAM(type, ctype, field, ...) REGX_PARAM_FIELD(ctype, field)
#include "btl/params.def"
#undef REGX_PARAM
} regx_component_settings_t;

typedef struct regx_settings {
    regx_component_settings_t component;
    regx_rndv_settings_t rendezvous;
    regx_pool_settings_t pool;
    regx_registration_settings_t registration;
    regx_transports_settings_t transports;
} regx_settings_t;

/* A room's parameters, and where its settings lie in regx_settings_t. */
typedef struct regx_settings_room {
    const regx_param_table_t *table;
    size_t offset;
} regx_settings_room_t;

/* All rooms and transports, in the order of the documentation. false: there are no more. */
bool regx_settings_room(unsigned index, regx_settings_room_t *room);

/* The report's keys besides the counters, in its order. Scripts rely on the names. Fields of the
 * process: X(key, NUMBER or TEXT, help). */
#define REGX_REPORT_FIELDS(X)                                                                      \
    X(rank, NUMBER, "rank of the process in MPI_COMM_WORLD of its job")                            \
    X(host, TEXT, "host name of the node")                                                         \
    X(version, TEXT, "version of regx")                                                            \
    X(openmpi, TEXT, "version of Open MPI at run time")                                            \
    X(transport, TEXT, "transports in use (btl_regx_transport), comma-separated")                  \
    X(transport_reason, TEXT, "why these: asked for, or auto's reason")                            \
    X(backend, TEXT, "registration cache backend in use (btl_regx_backend)")                       \
    X(backend_reason, TEXT, "why that one: asked for, or auto's reason")                           \
    X(rendezvous, TEXT, "strategy requested (btl_regx_rendezvous)")                                \
    X(auto_choice, TEXT, "strategies that auto chose by size, as 32K:together,1M:read, or none")   \
    X(eager_limit, NUMBER,                                                                         \
      "btl_regx_eager_limit at the end of the job; lower than at the start if a rendezvous was "   \
      "faster")                                                                                    \
    X(peers, NUMBER,                                                                               \
      "maximum number of processes it had an endpoint for, possibly including itself")

/* Objects of counts by name, which are known at run time: X(key, row of the table, help). */
#define REGX_REPORT_TALLIES(X)                                                                     \
    X(decisions, "decision",                                                                       \
      "messages by the decision of btl_regx_rendezvous auto, with its reason")                     \
    X(fallbacks, "fallback", "fallbacks from what was requested, by reason")                       \
    X(ports, "bytes by port", "payload bytes sent, by RDMA device port")

#endif
