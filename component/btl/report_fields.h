/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The report's keys besides the counters. One table; the report writes them in this order, and the
 * documentation is made from it. Plain C, for mca-params/describe.c. Scripts rely on the names.
 */
#ifndef REGX_BTL_REPORT_FIELDS_H
#define REGX_BTL_REPORT_FIELDS_H

/* Fields of the process: X(key, NUMBER or TEXT, help). */
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
    X(auto_choice, TEXT,                                                                           \
      "strategies that auto chose by size, in the form of btl_regx_auto_choice, or none")          \
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
