/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the user is told where no module leads to a process: which parameters of the transport that
 * is open may be wrong. This process meets itself, as another.
 */
#include "../unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "btl/address.h"
#include "btl/component.h"

enum { SELF = 7 };

/* ---- what address.c uses of Open MPI ---- */

static uint8_t published[256];
static size_t published_length;
static unsigned said;
static char line[1024];

int regx_compat_publish(const mca_base_component_t *component, const void *bytes, size_t length)
{
    (void)component;
    assert_true(length <= sizeof(published));
    memcpy(published, bytes, length);
    published_length = length;
    return OPAL_SUCCESS;
}

int regx_compat_fetch(const mca_base_component_t *component, opal_proc_t *proc, void **bytes,
                      size_t *length)
{
    (void)component, (void)proc;
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
    (void)proc;
    return false;
}

static char *host_of(const opal_proc_t *proc)
{
    static char host[] = "node7";

    (void)proc;
    return host;
}

#if OPAL_MAJOR_VERSION >= 5
char *(*opal_get_proc_hostname)(const opal_proc_t *proc) = host_of;
#else
char *opal_get_proc_hostname(const opal_proc_t *proc)
{
    return host_of(proc);
}
#endif

void regx_compat_output(const char *text)
{
    said++;
    snprintf(line, sizeof(line), "%s", text);
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

uint32_t regx_compat_far_rank(void)
{
    return 3;
}

static bool falls_here = true;

bool regx_compat_falls_here(const mca_base_component_t *component, const char *key)
{
    (void)component, (void)key;
    return falls_here;
}

static bool other_leads;

bool regx_other_btl_leads(bool same_node)
{
    assert_false(same_node);
    return other_leads;
}

/* ---- a transport that leads nowhere ---- */

static size_t address(regx_transport_t *transport, void *buffer)
{
    (void)transport;
    memset(buffer, 1, 8);
    return 8;
}

static bool is_alike;

static bool reaches(const regx_transport_t *transport, const void *bytes, size_t length)
{
    (void)transport, (void)bytes;
    assert_int_equal(length, 8);
    return is_alike;
}

static regx_status_t no_connection(regx_transport_t *transport, uint64_t peer, const void *bytes,
                                   size_t length, regx_conn_t **conn)
{
    (void)transport, (void)peer, (void)bytes, (void)length, (void)conn;
    return REGX_UNREACHABLE;
}

/* A process that has one transport, of that kind, meets itself: it says so many lines. */
static void meet(regx_transport_kind_t kind, const char *transport_word, const char *wires,
                 unsigned lines)
{
    const regx_transport_ops_t ops = {
        .name = "it", .address = address, .reaches = reaches, .connect = no_connection};
    regx_transport_t transport = {.ops = &ops, .wires = wires};
    regx_component_t component = {.module_count = 1,
                                  .transport_reason = "no RDMA device here",
                                  .params.settings.component.transport = transport_word};
    regx_module_t module = {.component = &component, .transport = &transport, .kind = kind};
    regx_peer_t peer = {.id = SELF};
    opal_proc_t proc;

    component.modules[0] = &module;
    memset(&proc, 0, sizeof(proc));
    said = 0;
    line[0] = '\0';
    assert_true(regx_address_publish(&component));
    regx_address_warn_of_other_nodes(&component);
    assert_false(regx_address_connect(&module, &proc, &peer));
    assert_int_equal(said, lines);
}

/* Also where that is seen only on connecting. */
static void ports_of_other_subnets_are_named_with_the_remedy(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        is_alike = i == 1;
        meet(REGX_BETWEEN_NODES, "auto", "verbs:mlx5_0:1", 1);
        assert_string_equal(
            line,
            "rank 7 on node7 cannot be reached: no port that is open here (verbs:mlx5_0:1) leads "
            "to one of its: btl_regx_if_include and btl_regx_if_exclude must leave two ports that "
            "share a subnet (InfiniBand prefix, RoCE network; or set btl_regx_verbs_any_subnet=1), "
            "a partition (btl_regx_verbs_pkey) and a kind of GID (btl_regx_verbs_gid_index). Open "
            "MPI's own tcp can: --mca btl regx,tcp,self");
    }
}

static void why_there_is_no_port_is_said(void **state)
{
    (void)state;
    is_alike = false;
    meet(REGX_ON_NODE, "auto", "posix", 1);
    assert_string_equal(line, "rank 7 on node7 cannot be reached: no RDMA device here. Open MPI's "
                              "own tcp can: --mca btl regx,tcp,self");
    meet(REGX_ON_NODE, "shm", "posix", 1);
    assert_string_equal(line, "rank 7 on node7 cannot be reached: btl_regx_transport=shm is for "
                              "the node alone. Open MPI's own tcp can: --mca btl regx,tcp,self");
}

/* By one process of the job, at its start, where all of them know it. */
static void other_nodes_are_said_to_be_out_of_reach(void **state)
{
    (void)state;
    is_alike = false;
    processes = 4;
    meet(REGX_ON_NODE, "auto", "posix", 1);
    assert_string_equal(line, "rank 3, which is on another node than node0, cannot be reached: no "
                              "RDMA device here. Open MPI's own tcp can: --mca btl regx,tcp,self");
    falls_here = false;
    meet(REGX_ON_NODE, "auto", "posix", 0);
    meet(REGX_BETWEEN_NODES, "auto", "verbs:mlx5_0:1", 1); /* only on meeting it */
    falls_here = true;
    processes = 1;
}

static void nothing_is_said_where_another_btl_leads(void **state)
{
    (void)state;
    is_alike = false;
    other_leads = true;
    meet(REGX_ON_NODE, "auto", "posix", 0);
    meet(REGX_BETWEEN_NODES, "auto", "verbs:mlx5_0:1", 0);
    other_leads = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_of_other_subnets_are_named_with_the_remedy),
        cmocka_unit_test(why_there_is_no_port_is_said),
        cmocka_unit_test(other_nodes_are_said_to_be_out_of_reach),
        cmocka_unit_test(nothing_is_said_where_another_btl_leads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
