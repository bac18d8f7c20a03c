/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What users may set, of all layers, and the keys of the report. Plain C, without Open MPI's
 * headers: mca-params/describe.c reads the tables, too.
 */
#ifndef REGX_BTL_SETTINGS_H
#define REGX_BTL_SETTINGS_H

#include "rendezvous/rendezvous.h"
#include "transport/catalog.h"

typedef char regx_file_name_t[1024]; /* "": none */

typedef struct regx_component_settings {
    int enable;
    const char *transport;
    regx_file_name_t report;
    bool explain;
} regx_component_settings_t;

typedef struct regx_settings {
    regx_component_settings_t component;
    regx_rndv_settings_t rendezvous;
    regx_pool_settings_t pool;
    regx_registration_settings_t registration;
    regx_transports_settings_t transports;
} regx_settings_t;

/* The parameters of all layers and transports, in the order of the documentation, and where the
 * settings of the layer lie in regx_settings_t. NULL: there are no more. */
const regx_param_t *regx_settings_param(unsigned number, size_t *layer);

/* The report's keys besides the counters, in its order. Scripts rely on the names. Fields of the
 * process: X(key, number or text, help). */
#define REGX_REPORT_FIELDS(X)                                                                      \
    X(rank, number, "rank of the process in MPI_COMM_WORLD of its job")                            \
    X(host, text, "host name of the node")                                                         \
    X(version, text, "version of regx")                                                            \
    X(openmpi, text, "version of Open MPI at run time")                                            \
    X(transport, text, "transports in use (btl_regx_transport), comma-separated")                  \
    X(transport_reason, text, "why these: asked for, or auto's reason")                            \
    X(backend, text, "registration cache backend in use (btl_regx_backend)")                       \
    X(backend_reason, text, "why that one: asked for, or auto's reason")                           \
    X(rendezvous, text, "strategy requested (btl_regx_rendezvous)")                                \
    X(eager_limit, number,                                                                         \
      "btl_regx_eager_limit at the end of the job; lower if a rendezvous was faster, or if the "   \
      "transport takes less")                                                                      \
    X(peers, number,                                                                               \
      "maximum number of processes it had an endpoint for, possibly including itself")

/* The last keys: objects of counts by name, which are known at run time, and what explains the job. */
#define REGX_REPORT_FALLBACKS "fallbacks from what was requested, by reason"
#define REGX_REPORT_PORTS "payload bytes sent, by RDMA device port"
#define REGX_REPORT_EXPLAIN                                                                        \
    "which way messages went, by kind of peers and size, and why; MB/s: what auto measured as "    \
    "the receiver, or 0"

#endif
