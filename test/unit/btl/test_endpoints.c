/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a peer costs that is not talked to: 4,096 endpoints over a transport that does nothing. All
 * memory that the program takes from the heap is counted.
 */
#include "../unit.h"

#include "base/util.h"
#include "btl/module.h"
#include "host.h"
#include "rendezvous/engine.h"
#include "transport/shm/shm_internal.h"

enum { PEERS = 4096 };

/* ---- the heap ---- */

static size_t taken; /* bytes, ever */

UNIT_WRAP(void *, malloc, size_t size)
{
    taken += size;
    return __real_malloc(size);
}

UNIT_WRAP(void *, calloc, size_t count, size_t size)
{
    taken += count * size;
    return __real_calloc(count, size);
}

UNIT_WRAP(void *, realloc, void *old, size_t size)
{
    taken += size;
    return __real_realloc(old, size);
}

/* ---- what endpoint.c uses of the BTL and of Open MPI ---- */

atomic_uintptr_t regx_compat_calling;
static regx_conn_t conns[PEERS];
static unsigned connected, disconnected;
static bool reads = true;       /* whether peers live */
static regx_endpoint_t *unread; /* its peer has not read all */

/* It fails what the peer has not read. */
static void disconnect(regx_conn_t *conn)
{
    disconnected++;
    if (unread != NULL) {
        unread->zcopy_bytes = 0;
    }
}

static bool reachable(regx_conn_t *conn)
{
    return reads;
}

static const regx_transport_ops_t ops = {
    .abi = REGX_TRANSPORT_ABI, .name = "idle", .disconnect = disconnect, .reachable = reachable};
static regx_transport_t transport = {.ops = &ops};

/* What another thread does meanwhile, once. */
static regx_endpoint_t *(*interrupt)(regx_module_t *module, opal_proc_t *proc);
static regx_endpoint_t *interrupted;

bool regx_address_connect(regx_module_t *module, opal_proc_t *proc, regx_peer_t *peer)
{
    if (interrupt != NULL) {
        regx_endpoint_t *(*const act)(regx_module_t *, opal_proc_t *) = interrupt;

        interrupt = NULL;
        interrupted = act(module, proc);
    }
    conns[connected] = (regx_conn_t){.transport = &transport, .peer = peer->id};
    peer->conn = &conns[connected++];
    return true;
}

void regx_fail_queued(regx_module_t *module, regx_endpoint_t *endpoint)
{
    assert_false(regx_endpoint_is_blocked(endpoint));
}

void regx_compat_output(const char *format, ...)
{
}

static unsigned ends; /* of the job */
static const opal_proc_t *lost;

static void end_job(mca_btl_base_module_t *btl, int32_t flags, opal_proc_t *proc, char *info)
{
    ends++;
    lost = proc;
}

uint64_t regx_compat_self(void)
{
    return 0;
}

uint64_t regx_compat_process(const opal_proc_t *proc)
{
    return (uintptr_t)proc;
}

opal_proc_t *regx_compat_proc(uint64_t process)
{
    return (opal_proc_t *)(uintptr_t)process;
}

/* ---- the process ---- */

static regx_counters_t counters;
static regx_component_t component;
static regx_module_t module;

static void open_module(void)
{
    static regx_pool_t pool;
    static char memory[8192];
    static regx_registry_t registry = {.transport = &transport};
    const regx_rndv_config_t rndv = {
        .strategy = regx_strategy_find("bounce"), .chunk_size = 65536, .chunk_depth = 4};
    const regx_onesided_config_t onesided = {
        .counters = &counters, .waiting = &module.due.queued, .ended = &module.due.ended};

    module =
        (regx_module_t){.component = &component, .counters = &counters, .transport = &transport};
    connected = disconnected = 0;
    regx_lock_init(&module.lock, false);
    regx_list_init(&module.blocked);
    assert_int_equal(regx_pool_init(&pool, memory, sizeof(memory), 4096, false, &counters),
                     REGX_OK);
    module.rndv = regx_rndv_create(&rndv, &pool, &registry, &counters);
    module.onesided = regx_onesided_create(&onesided);
    assert_non_null(module.rndv);
    assert_non_null(module.onesided);
    module.pool = pool;
}

static void close_module(void)
{
    regx_endpoints_delete_all(&module);
    regx_onesided_destroy(module.onesided);
    regx_rndv_destroy(module.rndv);
    regx_pool_fini(&module.pool);
    regx_lock_fini(&module.lock);
}

#define MODULE_TEST(name) UNIT_TEST_WITHIN(name, NULL, open_module(), close_module())

/* Every table but the endpoints themselves stays as long as it was. */
UNIT_TEST(an_idle_peer_costs_its_endpoint_and_nothing_else)
{
    open_module();
    const size_t before = taken;
    for (uintptr_t i = 1; i <= PEERS; i++) {
        assert_non_null(regx_endpoint_new(&module, (opal_proc_t *)i));
    }
    assert_int_equal(module.endpoints.count, PEERS);
    assert_int_equal(taken - before, PEERS * sizeof(regx_endpoint_t));
#ifdef __x86_64__
    assert_int_equal(sizeof(regx_endpoint_t), 208); /* "Many ranks" of component/README.md */
    assert_int_equal(sizeof(regx_shm_conn_t), 1016);
    assert_int_equal(sizeof(regx_shm_inbound_t), 456);
#endif
    assert_int_equal(module.rndv->recvs.count + module.rndv->sends.count, 0);
    const size_t with_all = taken;
    for (uintptr_t i = 1; i <= PEERS; i += 2) {
        regx_endpoint_leave(&module, regx_endpoint_find(&module, i));
    }
    regx_endpoints_delete_leaving(&module);
    assert_int_equal(module.endpoints.count, PEERS / 2);
    assert_null(regx_endpoint_find(&module, 1));
    assert_non_null(regx_endpoint_find(&module, PEERS));
    close_module();
    assert_int_equal(disconnected, PEERS);
    assert_int_equal(taken, with_all); /* to end takes no memory */
}

/* It sends before Open MPI has asked for it: then Open MPI gets the same, once. */
MODULE_TEST(a_peer_that_was_met_is_connected_once)
{
    opal_proc_t *const proc = (opal_proc_t *)7;

    regx_endpoint_t *met = regx_endpoint_new_unasked(&module, 7);
    assert_non_null(met);
    assert_ptr_equal(regx_endpoint_new_unasked(&module, 7), met);
    assert_ptr_equal(regx_endpoint_find(&module, 7), met);
    assert_ptr_not_equal(regx_endpoint_new(&module, (opal_proc_t *)8), met);
    assert_ptr_equal(regx_endpoint_new(&module, proc), met);
    assert_ptr_equal(regx_endpoint_new_unasked(&module, 7), met);
    assert_int_equal(connected, 2);
    regx_endpoint_leave(&module, met);
    regx_endpoint_t *again = regx_endpoint_new(&module, proc);
    assert_ptr_not_equal(again, met);
    assert_ptr_equal(regx_endpoint_new_unasked(&module, 7), again);
    regx_endpoints_delete_leaving(&module);
    assert_int_equal(connected, 3);
    assert_int_equal(disconnected, 1);
}

/* Or what it reads would be the pool's next fragment. */
UNIT_TEST(a_peer_that_leaves_reads_to_the_end_if_it_lives)
{
    for (unsigned dies = 0; dies < 2; dies++) {
        open_module();
        unread = regx_endpoint_new(&module, (opal_proc_t *)7);
        unread->zcopy_bytes = 4096;
        regx_endpoint_leave(&module, unread);
        regx_endpoints_delete_leaving(&module);
        assert_int_equal(disconnected, 0);
        assert_int_equal(module.due.leaving, 1);
        if (dies) {
            reads = false;
        } else {
            unread->zcopy_bytes = 0;
        }
        regx_endpoints_delete_leaving(&module);
        assert_int_equal(disconnected, 1);
        assert_int_equal(module.due.leaving, 0);
        close_module();
        unread = NULL;
        reads = true;
    }
}

/* Open MPI goes on without a process if it is asked to (ULFM), but not with data that is wrong; where
 * that is a message which may just be longer than its buffer, only a line is printed. And what it has
 * given up may end before this process. */
MODULE_TEST(only_a_process_that_is_used_is_lost_to_open_mpi)
{
    module.error = end_job;
    regx_endpoint_t *endpoint = regx_endpoint_new(&module, (opal_proc_t *)7);
    regx_lost_data(&module, &endpoint->peer, "as of what was to be read", true);
    assert_int_equal(ends, 0);
    regx_lost_data(&module, &endpoint->peer, "as by verify", false);
    assert_null(lost);
    assert_int_equal(ends, 1);
    regx_lost_connection(&module, 7, false, "as by its transport");
    assert_ptr_equal(lost, endpoint->proc);
    assert_int_equal(ends, 2);
    regx_endpoint_leave(&module, endpoint);
    regx_lost_connection(&module, 7, false, "as by its transport");
    assert_int_equal(ends, 2);
    /* Of another job: one that has ended is mourned; one that lives would be waited for. */
    const uint64_t other = UINT64_C(1) << 32 | 7;
    endpoint = regx_endpoint_new(&module, (opal_proc_t *)(uintptr_t)other);
    regx_lost_connection(&module, other, true, "as by its transport");
    assert_int_equal(ends, 2);
    assert_false(regx_endpoint_expects_callbacks(&module, endpoint));
    regx_endpoint_leave(&module, endpoint);
    regx_lost_connection(&module, other + 1, false, "as by its transport");
    assert_int_equal(ends, 3);
}

static regx_endpoint_t *meet(regx_module_t *of, opal_proc_t *proc)
{
    return regx_endpoint_new_unasked(of, (uintptr_t)proc);
}

/* As by another thread, while this one connects. */
UNIT_TEST(of_two_that_connect_at_once_one_serves)
{
    regx_endpoint_t *(*const ways[])(regx_module_t *, opal_proc_t *) = {regx_endpoint_new, meet};

    for (unsigned first = 0; first < 2; first++) {
        opal_proc_t *const proc = (opal_proc_t *)7;

        open_module();
        interrupt = ways[1 - first];
        regx_endpoint_t *endpoint = ways[first](&module, proc);
        assert_non_null(interrupted);
        assert_ptr_equal(endpoint, interrupted);
        regx_endpoints_delete_leaving(&module);
        assert_int_equal(connected, 2);
        assert_int_equal(disconnected, 1);
        assert_ptr_equal(regx_endpoint_find(&module, 7), endpoint);
        close_module();
    }
}
