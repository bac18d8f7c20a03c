/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which modules of two processes talk to each other, and what the user is told where none does:
 * which parameters of the transport that is open may be wrong.
 */
#include "../unit.h"

#include "btl/component.h"
#include "btl/module.h"
#include "host.h"

enum { SELF = 7 };

/* ---- what address.c uses of Open MPI ---- */

static uint8_t published[256];
static size_t published_length;
static unsigned said;
static char line[1024];

int regx_compat_publish(const mca_base_component_t *component, const void *bytes, size_t length)
{
    assert_true(length <= sizeof(published));
    memcpy(published, bytes, length);
    published_length = length;
    return OPAL_SUCCESS;
}

int regx_compat_fetch(const mca_base_component_t *component, opal_proc_t *proc, void **bytes,
                      size_t *length)
{
    *bytes = malloc(published_length);
    assert_non_null(*bytes);
    memcpy(*bytes, published, published_length);
    *length = published_length;
    return OPAL_SUCCESS;
}

uint64_t regx_compat_self(void)
{
    return SELF;
}

bool regx_compat_same_node(const opal_proc_t *proc)
{
    return false;
}

void regx_compat_output(const char *format, ...)
{
    va_list arguments;

    said++;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
}

const char *regx_compat_host(void)
{
    return "node0";
}

static uint32_t processes = 1;

uint32_t regx_compat_processes(void)
{
    return processes;
}

uint32_t regx_compat_local_processes(void)
{
    return 1;
}

static bool falls_here = true;

bool regx_compat_has_to_print(const mca_base_component_t *component, const char *key)
{
    return falls_here;
}

static bool other_leads;

bool regx_other_btl_leads(bool same_node)
{
    assert_false(same_node);
    return other_leads;
}

/* ---- ports ---- */

enum { PORTS = 5 };

/* Those of one fabric reach each other. */
typedef struct port {
    regx_transport_t transport; /* first */
    uint8_t fabric, index;
} port_t;

typedef struct process {
    regx_component_t component;
    regx_module_t modules[PORTS];
    port_t ports[PORTS];
    uint8_t published[sizeof(published)];
    size_t length;
} process_t;

static int peer_port; /* that was connected to */
static bool leads_nowhere, refuses;

static size_t port_address(regx_transport_t *transport, void *buffer)
{
    const port_t *port = (const port_t *)transport;

    ((uint8_t *)buffer)[0] = port->fabric;
    ((uint8_t *)buffer)[1] = port->index;
    return 2;
}

static bool port_reaches(const regx_transport_t *transport, const void *bytes, size_t length,
                         bool same_node)
{
    assert_int_equal(length, 2);
    return !leads_nowhere && ((const uint8_t *)bytes)[0] == ((const port_t *)transport)->fabric;
}

static regx_status_t port_connect(regx_transport_t *transport, uint64_t peer, const void *bytes,
                                  size_t length, regx_conn_t **conn)
{
    static regx_conn_t connection;

    if (refuses) {
        return REGX_UNREACHABLE;
    }
    peer_port = ((const uint8_t *)bytes)[1];
    *conn = &connection;
    return REGX_OK;
}

static const regx_transport_ops_t port_ops = {
    .name = "it", .address = port_address, .reaches = port_reaches, .connect = port_connect};

static void open_far_ports(process_t *process, unsigned count, const uint8_t *fabrics,
                           unsigned near)
{
    memset(process, 0, sizeof(*process));
    process->component.module_count = count;
    for (unsigned i = 0; i < count; i++) {
        process->ports[i] = (port_t){.transport = {.ops = &port_ops, .wires = "it"},
                                     .fabric = fabrics[i],
                                     .index = (uint8_t)i};
        process->modules[i] = (regx_module_t){.component = &process->component,
                                              .transport = &process->ports[i].transport,
                                              .kind = REGX_BETWEEN_NODES,
                                              .index = i,
                                              .far = i >= near};
        process->component.modules[i] = &process->modules[i];
    }
    assert_true(regx_address_publish(&process->component));
    memcpy(process->published, published, published_length);
    process->length = published_length;
}

static void open_ports(process_t *process, unsigned count, const uint8_t *fabrics)
{
    open_far_ports(process, count, fabrics, count);
}

/* To which of the other's ports each of ours is connected; -1: none. */
static void connect_ports(process_t *ours, const process_t *theirs, int talks_to[PORTS])
{
    opal_proc_t proc;

    memset(&proc, 0, sizeof(proc));
    memcpy(published, theirs->published, theirs->length);
    published_length = theirs->length;
    for (unsigned i = 0; i < ours->component.module_count; i++) {
        regx_peer_t peer = {.id = SELF};

        peer_port = -1;
        const bool connected = regx_address_connect(&ours->modules[i], &proc, &peer);
        assert_int_equal(connected, peer_port >= 0);
        talks_to[i] = peer_port;
    }
}

/* ---- what is said ---- */

/* A process that has one transport, of that kind, meets itself in vain: it says so many lines. */
static void meet(regx_transport_kind_t kind, const char *transport_word, const char *wires,
                 unsigned lines)
{
    static process_t process;
    regx_peer_t peer = {.id = SELF};
    opal_proc_t proc;

    memset(&proc, 0, sizeof(proc));
    open_ports(&process, 1, (const uint8_t[]){1});
    process.ports[0].transport.wires = wires;
    process.modules[0].kind = kind;
    process.component.params.settings.component.transport = transport_word;
    strcpy(process.component.transport_reason, "no RDMA device here");
    leads_nowhere = !refuses;
    said = 0;
    line[0] = '\0';
    assert_true(regx_address_publish(&process.component));
    regx_address_warn_of_other_nodes(&process.component);
    assert_false(regx_address_connect(&process.modules[0], &proc, &peer));
    assert_int_equal(said, lines);
    leads_nowhere = false;
}

/* Also where that is seen only on connecting. */
UNIT_TEST(ports_of_other_subnets_are_named_with_the_remedy)
{
    for (unsigned i = 0; i < 2; i++) {
        refuses = i == 0;
        meet(REGX_BETWEEN_NODES, "auto", "verbs:mlx5_0:1", 1);
        assert_string_equal(
            line,
            "rank 7 on node7 cannot be reached: no port that is open here (verbs:mlx5_0:1) leads "
            "to one of its: btl_regx_if_include and btl_regx_if_exclude must leave two ports that "
            "share a subnet (InfiniBand prefix; RoCE network, or set btl_regx_verbs_any_subnet=1), "
            "a partition (btl_regx_verbs_pkey) and a kind of GID (btl_regx_verbs_gid_index). Open "
            "MPI's own tcp can: --mca btl regx,tcp,self");
    }
}

UNIT_TEST(why_there_is_no_port_is_said)
{
    meet(REGX_ON_NODE, "auto", "posix", 1);
    assert_string_equal(line, "rank 7 on node7 cannot be reached: no RDMA device here. Open MPI's "
                              "own tcp can: --mca btl regx,tcp,self");
    meet(REGX_ON_NODE, "shm", "posix", 1);
    assert_string_equal(line, "rank 7 on node7 cannot be reached: btl_regx_transport=shm is for "
                              "the node alone. Open MPI's own tcp can: --mca btl regx,tcp,self");
}

/* By one process of the job, at its start, where all of them know it. */
UNIT_TEST(other_nodes_are_said_to_be_out_of_reach)
{
    processes = 4;
    meet(REGX_ON_NODE, "auto", "posix", 1);
    assert_string_equal(line, "ranks on other nodes than node0 cannot be reached: no "
                              "RDMA device here. Open MPI's own tcp can: --mca btl regx,tcp,self");
    falls_here = false;
    meet(REGX_ON_NODE, "auto", "posix", 0);
    meet(REGX_BETWEEN_NODES, "auto", "verbs:mlx5_0:1", 1); /* only on meeting it */
    falls_here = true;
    processes = 1;
}

UNIT_TEST(nothing_is_said_where_another_btl_leads)
{
    other_leads = true;
    meet(REGX_ON_NODE, "auto", "posix", 0);
    meet(REGX_BETWEEN_NODES, "auto", "verbs:mlx5_0:1", 0);
    other_leads = false;
}

/* ---- which ports meet ---- */

UNIT_TEST(ports_at_the_same_place_meet)
{
    static process_t rails, other;
    int talks_to[PORTS];

    open_ports(&rails, 2, (const uint8_t[]){1, 1});
    open_ports(&other, 3, (const uint8_t[]){2, 1, 1});
    connect_ports(&rails, &other, talks_to);
    assert_true(talks_to[0] == 2 && talks_to[1] == 1);
}

/* The far end of a pair is on another socket than its process. */
UNIT_TEST(far_ports_are_used_only_where_no_near_ones_meet)
{
    static const struct {
        uint8_t ours[2], theirs[2]; /* fabrics, the near port first */
        int talks_to[2];
    } cases[] = {{{1, 2}, {1, 2}, {0, -1}},
                 {{1, 2}, {2, 1}, {1, 0}},
                 {{1, 2}, {3, 2}, {-1, 1}},
                 {{1, 2}, {2, 3}, {-1, 0}}};
    static process_t one, other;
    int talks_to[PORTS];

    other_leads = true;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int back[PORTS];

        open_far_ports(&one, 2, cases[i].ours, 1);
        open_far_ports(&other, 2, cases[i].theirs, 1);
        connect_ports(&one, &other, talks_to);
        connect_ports(&other, &one, back);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(talks_to[k], cases[i].talks_to[k]);
            assert_true(talks_to[k] < 0 || back[talks_to[k]] == k);
        }
    }
    other_leads = false;
}

/* Ours talks to theirs where theirs talks to ours, and as many as can be. */
UNIT_TEST(both_ends_decide_alike)
{
    static process_t one, other;
    uint64_t chance = 1;

    other_leads = true;
    for (int round = 0; round < 2000; round++) {
        uint8_t fabrics[2][PORTS];
        int ours[PORTS], theirs[PORTS];
        const unsigned counts[2] = {(unsigned)(1 + chance_next(&chance) % PORTS),
                                    (unsigned)(1 + chance_next(&chance) % PORTS)};

        for (unsigned i = 0; i < 2 * PORTS; i++) {
            fabrics[i % 2][i / 2] = (uint8_t)(1 + chance_next(&chance) % 3);
        }
        open_ports(&one, counts[0], fabrics[0]);
        open_ports(&other, counts[1], fabrics[1]);
        connect_ports(&one, &other, ours);
        connect_ports(&other, &one, theirs);
        for (unsigned i = 0; i < counts[0]; i++) {
            assert_true(ours[i] < 0 || theirs[ours[i]] == (int)i);
            for (unsigned j = 0; j < counts[1]; j++) { /* two that are free do not match */
                assert_false(ours[i] < 0 && theirs[j] < 0 && fabrics[0][i] == fabrics[1][j]);
            }
        }
        for (unsigned j = 0; j < counts[1]; j++) {
            assert_true(theirs[j] < 0 || ours[theirs[j]] == (int)j);
        }
    }
    other_leads = false;
}
