/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/btl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/class/opal_bitmap.h"

#include "pool/place.h"
#include "transport/load.h"

/* What a process publishes: two bytes of version, two of zero, the transport's address. */
#define MODEX_HEADER 4
#define MODEX_VERSION 1

static int add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints, opal_bitmap_t *reachable);
static int del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                     struct mca_btl_base_endpoint_t **endpoints);
static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t callback);

/* Eager limit and fragment size are what measured best on shared memory; rndv_eager_limit 0 keeps
 * the base of a rendezvous where the user's buffer begins. */
regx_module_t regx_module = {
    .super = {.btl_component = &mca_btl_regx_component.super,
              .btl_eager_limit = 16384 + 64, /* 16 KiB with Open MPI's header */
              .btl_rndv_eager_limit = 0,
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
              .btl_register_error = register_error}};

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

static bool open_transport(regx_module_t *module)
{
    char error[256], line[320];
    const regx_transport_config_t config = {
        .self = regx_compat_self(),
        .pool_size = module->params.pool_size,
        .pool_least = 2 * module->params.slot_size,
        .if_include = module->params.if_include,
        .if_exclude = module->params.if_exclude,
        .tls = module->params.uct_tls,
        .verbs = &module->params.verbs,
        .threads = module->threads,
        .counters = &module->counters,
        .events = {.context = module, .deliver = deliver, .broken = broken}};
    const regx_transport_ops_t *ops =
        regx_transport_load(module->params.transport, error, sizeof(error));

    regx_status_t status = REGX_UNREACHABLE;

    if (ops != NULL && ops->get == NULL && regx_strategy_reads(module->params.strategy)) {
        snprintf(error, sizeof(error),
                 "rendezvous=%s: transport %s does not read peers' memory; allowed: another "
                 "rendezvous, or transport verbs",
                 regx_strategy_name(module->params.strategy), ops->name);
        status = REGX_INVALID;
    } else if (ops != NULL) {
        status = ops->open(&config, error, sizeof(error), &module->transport);
    }
    if (status == REGX_OK) {
        return true;
    }
    if (regx_compat_speaker()) {
        if (status == REGX_INVALID) { /* the error begins with the name of a parameter */
            snprintf(line, sizeof(line), "btl_regx_%s", error);
        } else {
            snprintf(line, sizeof(line), "btl_regx_transport=%s: %s", module->params.transport,
                     error);
        }
        regx_compat_say(line);
    }
    return false;
}

static bool open_pool(regx_module_t *module)
{
    regx_transport_t *transport = module->transport;

    regx_place_bind(regx_compat_topology(), transport->pool_memory, transport->pool_size);
    module->counters.pool_pinned_bytes =
        regx_place_lock(transport->pool_memory, transport->pool_size);
    return regx_pool_init(&module->pool, transport->pool_memory, transport->pool_size,
                          module->params.slot_size, module->threads, &module->counters) == REGX_OK;
}

static bool publish_address(regx_module_t *module)
{
    uint8_t bytes[MODEX_HEADER + REGX_ADDRESS_MAX] = {MODEX_VERSION, REGX_CONTROL_VERSION, 0, 0};
    const size_t length = module->transport->ops->address(module->transport, bytes + MODEX_HEADER);

    return regx_compat_publish(&mca_btl_regx_component.super.btl_version, bytes,
                               MODEX_HEADER + length) == OPAL_SUCCESS;
}

bool regx_module_open(regx_module_t *module, bool threads)
{
    const regx_rndv_config_t config = {.strategy = module->params.strategy,
                                       .chunk_size = module->params.chunk_size,
                                       .chunk_depth = module->params.chunk_depth,
                                       .threads = threads,
                                       .verify = module->params.verify,
                                       .mismatch = mismatch,
                                       .context = module};

    memset(&module->counters, 0, sizeof(module->counters));
    module->counters.threads = threads;
    module->threads = threads;
    module->gone = false;
    regx_lock_init(&module->lock, threads);
    if (!open_transport(module)) {
        return false;
    }
    if (!open_pool(module)) {
        regx_compat_say("no memory for the bounce pool");
        module->transport->ops->close(module->transport);
        return false;
    }
    if (!regx_registry_start(module)) {
        regx_pool_fini(&module->pool);
        module->transport->ops->close(module->transport);
        return false;
    }
    module->rndv = regx_rndv_create(&config, &module->pool, &module->registry, &module->counters);
    if (module->rndv == NULL || !publish_address(module)) {
        regx_compat_say("cannot publish its address");
        regx_module_finalize(&module->super);
        return false;
    }
    return true;
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

static void say_mismatch(opal_proc_t *proc, const uint8_t *theirs)
{
    char line[256];

    snprintf(line, sizeof(line),
             "%s runs another regx: its address is of version %d, its control messages of %d; "
             "here %d and %d",
             opal_get_proc_hostname(proc), theirs[0], theirs[1], MODEX_VERSION,
             REGX_CONTROL_VERSION);
    regx_compat_say(line);
}

/* Another BTL may reach it; if none does, Open MPI says little, so this line is needed. */
static void say_unreachable(opal_proc_t *proc, uint64_t peer)
{
    char line[320];

    snprintf(line, sizeof(line), "no wire leads to rank %u on %s (here: %s)", (unsigned)peer,
             opal_get_proc_hostname(proc), regx_module.transport->wires);
    regx_compat_say(line);
}

static bool connect_to(regx_module_t *module, opal_proc_t *proc,
                       struct mca_btl_base_endpoint_t *endpoint)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    bool connected = false;

    if (regx_compat_fetch(&mca_btl_regx_component.super.btl_version, proc, (void **)&bytes,
                          &length) != OPAL_SUCCESS) {
        return false; /* that process does not use regx */
    }
    if (length < MODEX_HEADER || bytes[0] != MODEX_VERSION || bytes[1] != REGX_CONTROL_VERSION) {
        if (length >= MODEX_HEADER) {
            say_mismatch(proc, bytes);
        }
    } else {
        connected =
            module->transport->ops->connect(module->transport, endpoint->peer.id,
                                            regx_compat_same_node(proc), bytes + MODEX_HEADER,
                                            length - MODEX_HEADER, &endpoint->peer.conn) == REGX_OK;
        if (!connected) {
            say_unreachable(proc, endpoint->peer.id);
        }
    }
    free(bytes);
    return connected;
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
    if (!connect_to(module, proc, endpoint)) {
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

int regx_progress(void)
{
    regx_module_t *module = &regx_module;
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
static void send_rest(regx_module_t *module)
{
    while ((atomic_load(&module->queued) > 0 || atomic_load(&module->lent) > 0) &&
           has_reader(module)) {
        module->transport->ops->progress(module->transport);
        regx_send_queued(module);
    }
}

int regx_module_finalize(mca_btl_base_module_t *btl)
{
    regx_module_t *module = (regx_module_t *)btl;

    module->error = NULL;
    module->gone = true;
    enter(module);
    send_rest(module);
    regx_report(module);
    while (module->endpoints != NULL) {
        endpoint_delete(module, module->endpoints);
    }
    if (module->rndv != NULL) {
        regx_rndv_destroy(module->rndv);
        module->rndv = NULL;
    }
    regx_fragments_free(module);
    regx_registry_stop(module);
    regx_pool_fini(&module->pool);
    module->transport->ops->close(module->transport);
    module->transport = NULL;
    regx_lock_fini(&module->lock);
    leave(module);
    return OPAL_SUCCESS;
}
