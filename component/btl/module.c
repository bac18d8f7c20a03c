/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/btl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opal/class/opal_bitmap.h"

#include "btl/params.h"
#include "pool/place.h"

static int add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable);
static int del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints);
static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t callback);

/* What measured best on shared memory. rndv_eager_limit is not of contiguous data, unless the user
 * says so: the base of a rendezvous is where the user's buffer begins. */
mca_btl_base_module_t regx_template = {.btl_component = &mca_btl_regx_component.super,
                                       .btl_eager_limit =
                                           16384 + 64, /* 16 KiB with Open MPI's header */
                                       .btl_rndv_eager_limit = 4096,
                                       .btl_max_send_size = 65536,
                                       .btl_rdma_pipeline_send_length = 0,
                                       .btl_rdma_pipeline_frag_size = SIZE_MAX,
                                       .btl_min_rdma_pipeline_size = 0,
                                       .btl_exclusivity = MCA_BTL_EXCLUSIVITY_DEFAULT,
                                       .btl_latency = 1,
                                       .btl_bandwidth = 100000,
                                       .btl_flags = MCA_BTL_FLAGS_SEND | MCA_BTL_FLAGS_PUT,
                                       .btl_registration_handle_size = REGX_CTS_SIZE,
                                       .btl_put_limit = SIZE_MAX,
                                       .btl_add_procs = add_procs,
                                       .btl_del_procs = del_procs,
                                       .btl_finalize = regx_module_finalize,
                                       .btl_alloc = regx_alloc,
                                       .btl_free = regx_free,
                                       .btl_prepare_src = regx_prepare_src,
                                       .btl_send = regx_send,
                                       .btl_sendi = regx_sendi,
                                       .btl_put = regx_put,
                                       .btl_register_mem = regx_register_mem,
                                       .btl_deregister_mem = regx_deregister_mem,
                                       .btl_register_error = register_error};

static void immediate(void *context, uint64_t sender, uint32_t value)
{
    const regx_module_t *module = context;

    if (module->rndv != NULL) {
        regx_rndv_immediate(module->rndv, sender, value);
    }
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    regx_module_t *module = context;

    if (tag == REGX_TAG_CONTROL) {
        if (module->rndv != NULL) { /* the transport outlives it, and may deliver while it closes */
            regx_rndv_control(module->rndv, sender, data, length);
        }
    } else if (!module->gone) {
        regx_compat_receive(&module->super, tag, data, length);
    }
}

static struct mca_btl_base_endpoint_t *find_endpoint(regx_module_t *module, uint64_t peer)
{
    struct mca_btl_base_endpoint_t *endpoint = module->endpoints;

    while (endpoint != NULL && (endpoint->peer.id != peer || endpoint->leaving)) {
        endpoint = endpoint->next;
    }
    return endpoint;
}

/* Says so and has Open MPI end the job; not at the end, when it hears no more. */
static void give_up(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint,
                    const char *line)
{
    regx_compat_say(line);
    if (module->error != NULL) {
        module->error(&module->super, MCA_BTL_ERROR_FLAGS_FATAL,
                      endpoint != NULL ? endpoint->proc : NULL, NULL);
    }
}

static const char *host_of(const struct mca_btl_base_endpoint_t *endpoint)
{
    return endpoint != NULL ? opal_get_proc_hostname(endpoint->proc) : "a host not yet met";
}

static void broken(void *context, uint64_t peer, const char *what)
{
    regx_module_t *module = context;
    struct mca_btl_base_endpoint_t *endpoint = find_endpoint(module, peer);
    char line[256];

    if (module->error != NULL) { /* else the others have gone before us, as they may */
        snprintf(line, sizeof(line), "connection to rank %u on %s lost (%s)", (unsigned)peer,
                 host_of(endpoint), what);
        give_up(module, endpoint, line);
    }
}

static void silent(void *context, uint64_t peer)
{
    const char *host = host_of(find_endpoint(context, peer));
    char line[256];

    snprintf(line, sizeof(line),
             "rank %u on %s has not answered for ten minutes, and is asked on: it may be outside "
             "MPI, or the way between the ports that btl_regx_if_include leaves does not work",
             (unsigned)peer, host);
    regx_compat_say(line);
}

/* Open MPI cannot be told of one message that its data is wrong. */
static void mismatch(void *context, const regx_peer_t *peer, const char *what)
{
    regx_module_t *module = context;
    struct mca_btl_base_endpoint_t *endpoint = find_endpoint(module, peer->id);
    char line[384];

    snprintf(line, sizeof(line), "from rank %u on %s: %s", (unsigned)peer->id, host_of(endpoint),
             what);
    give_up(module, endpoint, line);
}

void regx_module_lost(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint, size_t size,
                      const char *way, const char *why)
{
    char line[256];

    snprintf(line, sizeof(line), "%zu bytes %s rank %u on %s are lost: %s", size, way,
             (unsigned)endpoint->peer.id, host_of(endpoint), why);
    give_up(module, endpoint, line);
}

/* The share of a module in what the process may have, in whole pages. */
static size_t pool_size(const regx_params_t *params, unsigned share)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t size = params->settings.pool.pool_size / share & ~(page - 1),
                 least = 2 * params->settings.pool.slot_size;

    return size > least ? size : least;
}

static regx_status_t open_transport(regx_module_t *module, const regx_transport_ops_t *ops,
                                    const char *device, unsigned share, char *error,
                                    size_t error_size)
{
    const regx_params_t *params = module->params;
    const regx_transport_events_t events = {.context = module,
                                            .deliver = deliver,
                                            .immediate = immediate,
                                            .broken = broken,
                                            .silent = silent};
    const regx_transport_config_t config = {.self = regx_compat_self(),
                                            .pool_size = pool_size(params, share),
                                            .pool_least = 2 * params->settings.pool.slot_size,
                                            .if_include = params->settings.transport.if_include,
                                            .if_exclude = params->settings.transport.if_exclude,
                                            .device = device,
                                            .tls = params->settings.transport.uct_tls,
                                            .verbs = &params->settings.verbs,
                                            .threads = module->threads,
                                            .counters = module->counters,
                                            .trace = module->trace,
                                            .events = events};

    return ops->open(&config, error, error_size, &module->transport);
}

static regx_status_t open_pool(regx_module_t *module)
{
    regx_transport_t *transport = module->transport;

    regx_place_bind(regx_compat_topology(), transport->pool_memory, transport->pool_size);
    regx_count(module->counters, &module->counters->pool_pinned_bytes,
               regx_place_lock(transport->pool_memory, transport->pool_size));
    return regx_pool_init(&module->pool, transport->pool_memory, transport->pool_size,
                          module->params->settings.pool.slot_size, module->threads,
                          module->counters);
}

/* ob1 divides messages among modules by their bandwidths. */
static void set_bandwidth(regx_module_t *module)
{
    mca_base_var_source_t source;

    regx_param_stored("opal", "btl", "regx", "bandwidth", &source);
    if (source == MCA_BASE_VAR_SOURCE_DEFAULT && module->transport->megabits > 0) {
        module->super.btl_bandwidth = module->transport->megabits;
    }
}

regx_status_t regx_module_open(regx_component_t *component, const regx_transport_ops_t *ops,
                               const char *device, unsigned share, char *error, size_t error_size,
                               regx_module_t **out)
{
    regx_module_t *module = calloc(1, sizeof(*module));

    if (module == NULL) {
        snprintf(error, error_size, "out of memory");
        return REGX_NO_MEMORY;
    }
    module->super = regx_template;
    module->params = &component->params;
    module->counters = &component->counters;
    module->trace = &component->trace;
    module->threads = component->threads;
    regx_lock_init(&module->lock, module->threads);
    regx_status_t status = open_transport(module, ops, device, share, error, error_size);
    if (status == REGX_OK && open_pool(module) != REGX_OK) {
        status = REGX_NO_MEMORY;
        snprintf(error, error_size, "no memory for the bounce pool");
        module->transport->ops->close(module->transport);
    }
    if (status != REGX_OK) {
        regx_lock_fini(&module->lock);
        free(module);
        return status;
    }
    set_bandwidth(module);
    *out = module;
    return REGX_OK;
}

bool regx_module_start(regx_module_t *module)
{
    const regx_params_t *params = module->params;
    const regx_rndv_config_t config = {.strategy = params->strategy,
                                       .chunk_size = params->settings.rendezvous.chunk_size,
                                       .chunk_depth = params->settings.rendezvous.chunk_depth,
                                       .threads = module->threads,
                                       .verify = params->settings.rendezvous.verify,
                                       .mismatch = mismatch,
                                       .context = module};

    if (!regx_registry_start(module)) {
        return false;
    }
    module->rndv = regx_rndv_create(&config, &module->pool, &module->registry, module->counters);
    if (module->rndv == NULL) {
        regx_compat_say("no memory for large messages");
    }
    return module->rndv != NULL;
}

/* An interlocked exchange is a tenth of an 8-byte message's time: only where there are threads. */
static bool try_enter(regx_module_t *module)
{
    if (atomic_load_explicit(&module->progressing, memory_order_relaxed)) {
        return false;
    }
    if (!module->threads) {
        atomic_store_explicit(&module->progressing, true, memory_order_relaxed);
        return true;
    }
    return !atomic_exchange_explicit(&module->progressing, true, memory_order_acquire);
}

/* Keeps progress out. For the end: no other thread is in MPI any more, or leaves it soon. */
static void enter(regx_module_t *module)
{
    while (atomic_exchange_explicit(&module->progressing, true, memory_order_acquire)) {
    }
}

static void leave(regx_module_t *module)
{
    atomic_store_explicit(&module->progressing, false, memory_order_release);
}

static struct mca_btl_base_endpoint_t *endpoint_new(regx_module_t *module, opal_proc_t *proc)
{
    struct mca_btl_base_endpoint_t *endpoint = calloc(1, sizeof(*endpoint));
    unsigned peers = 0;

    if (endpoint == NULL) {
        return NULL;
    }
    endpoint->proc = proc;
    endpoint->peer.id = regx_compat_process(proc);
    if (!regx_address_connect(module, proc, &endpoint->peer)) {
        free(endpoint);
        return NULL;
    }
    regx_lock_init(&endpoint->lock, module->threads);
    regx_lock(&module->lock);
    endpoint->next = module->endpoints;
    if (endpoint->next != NULL) {
        endpoint->next->previous = endpoint;
    }
    module->endpoints = endpoint;
    for (const struct mca_btl_base_endpoint_t *each = endpoint; each != NULL; each = each->next) {
        peers++;
    }
    module->peers = peers > module->peers ? peers : module->peers;
    regx_unlock(&module->lock);
    return endpoint;
}

/* Called at the start with all processes of the node, later with one at a time, also from inside
 * a receive callback; `reachable` is then NULL. Answers success even if nobody can be reached:
 * otherwise Open MPI would never progress this module. */
static int add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable)
{
    regx_module_t *module = (regx_module_t *)btl;

    if (reachable != NULL && count > 1) {
        regx_say_what_hinders(btl);
    }
    for (size_t i = 0; i < count; i++) {
        endpoints[i] = endpoint_new(module, procs[i]);
        if (endpoints[i] != NULL && reachable != NULL) {
            opal_bitmap_set_bit(reachable, (int)i);
        }
    }
    return OPAL_SUCCESS;
}

static void endpoint_delete(regx_module_t *module, struct mca_btl_base_endpoint_t *endpoint)
{
    regx_trace(module->trace, REGX_TRACE_CONNECTION, "rank %u: connection over %s ends",
               (unsigned)endpoint->peer.id, endpoint->peer.conn->wire);
    regx_rndv_forget(module->rndv, &endpoint->peer);
    regx_fail_queued(module, endpoint);
    module->transport->ops->disconnect(endpoint->peer.conn);
    regx_lock(&module->lock);
    if (endpoint->previous != NULL) {
        endpoint->previous->next = endpoint->next;
    } else {
        module->endpoints = endpoint->next;
    }
    if (endpoint->next != NULL) {
        endpoint->next->previous = endpoint->previous;
    }
    regx_unlock(&module->lock);
    regx_lock_fini(&endpoint->lock);
    free(endpoint);
}

/* May be called from inside a receive callback, or under a lock that a receive callback on another
 * thread waits for: progress does the work, later. */
static int del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints)
{
    regx_module_t *module = (regx_module_t *)btl;

    (void)procs;
    for (size_t i = 0; i < count; i++) {
        if (endpoints[i] != NULL) {
            atomic_store(&endpoints[i]->leaving, true);
            atomic_fetch_add(&module->leaving, 1);
        }
    }
    return OPAL_SUCCESS;
}

static __attribute__((noinline)) void delete_leaving(regx_module_t *module)
{
    struct mca_btl_base_endpoint_t *endpoint = module->endpoints, *next;

    for (; endpoint != NULL; endpoint = next) {
        next = endpoint->next;
        if (atomic_load(&endpoint->leaving)) {
            endpoint_delete(module, endpoint);
            atomic_fetch_sub(&module->leaving, 1);
        }
    }
}

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t callback)
{
    ((regx_module_t *)btl)->error = callback;
    return OPAL_SUCCESS;
}

/* Rounds in which something was delivered, and nothing else looked at, at most. */
#define EVENT_ROUNDS 4u

static inline int progress(regx_module_t *module)
{
    int events = 0;

    /* One thread at a time, and not again from inside a callback; the others have nothing to do. */
    if (!try_enter(module)) {
        return 0;
    }
    events = module->transport->ops->progress(module->transport);
    if (events == 0 || ++module->rounds % EVENT_ROUNDS == 0) {
        events += regx_rndv_progress(module->rndv);
        regx_registry_progress(&module->registry);
        if (atomic_load_explicit(&module->queued, memory_order_relaxed) > 0) {
            events += regx_send_queued(module);
        }
        if (atomic_load_explicit(&module->leaving, memory_order_relaxed) > 0) {
            delete_leaving(module);
        }
    }
    leave(module);
    return events;
}

int regx_progress(void)
{
    const regx_component_t *component = &mca_btl_regx_component;
    int events = 0;

    for (unsigned i = 0; i < component->module_count; i++) {
        events += progress(component->modules[i]);
    }
    return events;
}

/* Whether a process that something waits for may still read it. */
static bool has_reader(const regx_module_t *module)
{
    struct mca_btl_base_endpoint_t *endpoint = module->endpoints;

    for (; endpoint != NULL; endpoint = endpoint->next) {
        if ((atomic_load(&endpoint->waiting) || atomic_load(&endpoint->lent) > 0) &&
            module->transport->ops->reachable(endpoint->peer.conn)) {
            return true;
        }
    }
    return false;
}

/* What Open MPI has been told is sent still waits here, or in memory that a peer has yet to read.
 */
static bool has_rest(const regx_module_t *module)
{
    return (atomic_load(&module->queued) > 0 || atomic_load(&module->lent) > 0) &&
           has_reader(module);
}

/* By all modules at once: a peer that waits for us at one may be waited for at another. */
static void send_rest(regx_component_t *component)
{
    bool more = true;

    while (more) {
        more = false;
        for (unsigned i = 0; i < component->module_count; i++) {
            regx_module_t *module = component->modules[i];

            if (has_rest(module)) {
                more = true;
            }
            module->transport->ops->progress(module->transport);
            regx_send_queued(module);
        }
    }
}

/* Once, before the first module is finalized. */
static void end_all(regx_component_t *component)
{
    if (component->ending) {
        return;
    }
    component->ending = true;
    for (unsigned i = 0; i < component->module_count; i++) {
        component->modules[i]->error = NULL;
        component->modules[i]->gone = true;
        enter(component->modules[i]);
        delete_leaving(component->modules[i]);
    }
    send_rest(component);
    regx_report(component);
}

static void take_out(regx_component_t *component, const regx_module_t *module)
{
    unsigned i = 0;

    while (component->modules[i] != module) {
        i++;
    }
    component->module_count--;
    memmove(&component->modules[i], &component->modules[i + 1],
            (component->module_count - i) * sizeof(component->modules[0]));
}

void regx_module_close(regx_module_t *module)
{
    take_out(&mca_btl_regx_component, module);
    while (module->endpoints != NULL) {
        endpoint_delete(module, module->endpoints);
    }
    if (module->rndv != NULL) {
        regx_rndv_destroy(module->rndv);
        module->rndv = NULL; /* the transport may still deliver */
    }
    regx_fragments_free(module);
    regx_registry_stop(module);
    regx_pool_fini(&module->pool);
    module->transport->ops->close(module->transport);
    regx_lock_fini(&module->lock);
    free(module);
}

int regx_module_finalize(mca_btl_base_module_t *btl)
{
    regx_component_t *component = &mca_btl_regx_component;

    end_all(component);
    regx_module_close((regx_module_t *)btl);
    if (component->module_count == 0) {
        regx_backend_stop(component);
    }
    return OPAL_SUCCESS;
}
