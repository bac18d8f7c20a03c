/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The report's keys besides the counters. One table; the report writes them in this order, and the
 * documentation is made from it. Plain C, for mca-params/describe.c. Scripts rely on the names.
 */
#ifndef REGX_BTL_REPORT_FIELDS_H
#define REGX_BTL_REPORT_FIELDS_H

/* What is said of the process: X(key, NUMBER or TEXT, help). */
#define REGX_REPORT_FIELDS(X)                                                                      \
    X(rank, NUMBER, "of the process in its job")                                                   \
    X(host, TEXT, "the name of its node")                                                          \
    X(version, TEXT, "of regx")                                                                    \
    X(openmpi, TEXT, "the version of the Open MPI that runs")                                      \
    X(transport, TEXT, "the transports that were opened (btl_regx_transport), comma-separated")    \
    X(transport_reason, TEXT, "why these: asked for, or what auto found")                          \
    X(backend, TEXT, "how registrations were kept true (btl_regx_backend)")                        \
    X(backend_reason, TEXT, "why that one: asked for, or what auto found")                         \
    X(rendezvous, TEXT, "the strategy asked for (btl_regx_rendezvous)")                            \
    X(auto_choice, TEXT,                                                                           \
      "what auto found out by the end, as btl_regx_auto_choice takes it, or none")                 \
    X(peers, NUMBER,                                                                               \
      "most processes at once, itself perhaps among them, to which it could send: a "              \
      "connection was prepared, used or not")

/* Objects of counts by name, which are known at run time: X(key, row of the table, help). */
#define REGX_REPORT_TALLIES(X)                                                                     \
    X(decisions, "decision", "messages by what btl_regx_rendezvous auto decided, and why")         \
    X(fallbacks, "fallback", "what could not go as asked for, by reason")                          \
    X(ports, "bytes by port", "payload bytes sent, by the port of an RDMA device")

#endif
