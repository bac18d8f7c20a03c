/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/module.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/hwloc/base/base.h"

/* The transport may deliver while it closes, when there is no rendezvous any more. */
static void handle_immediate(void *context, uint64_t sender, uint32_t value)
{
    const regx_module_t *module = context;

    if (module->rndv != NULL) {
        regx_rndv_immediate(module->rndv, sender, value);
    }
}

/* What is not for a PML. */
static __attribute__((noinline)) void deliver_other(regx_module_t *module, uint64_t sender,
                                                    uint8_t tag, const void *data, size_t length)
{
    regx_endpoint_t *from = NULL;

    if (tag == REGX_TAG_CONTROL) {
        if (module->rndv != NULL) {
            regx_rndv_control(module->rndv, sender, data, length);
        }
        return;
    }
    if (tag == REGX_TAG_ONESIDED) {
        if (module->onesided != NULL) {
            regx_onesided_deliver(module->onesided, sender, data, length);
        }
        return;
    }
    /* Frames of Open MPI itself (5.0 on: emulated puts, gets and atomics; detection of failures). It
     * answers to an endpoint, which may not exist yet: only the sender may have asked for one. */
    if (module->ending) {
        return;
    }
    if (regx_compat_answers(tag)) {
        from = regx_endpoint_find(module, sender);
        from = from != NULL ? from : regx_endpoint_new_unasked(module, sender);
    }
    if (from == NULL) {
        regx_count_malformed(module->counters); /* another BTL's, or none */
    } else {
        regx_compat_receive_from(&module->super, from, tag, data, length);
    }
}

static void deliver(void *context, uint64_t sender, uint8_t tag, const void *data, size_t length)
{
    const unsigned above = (unsigned)tag - MCA_BTL_TAG_PML; /* what is below goes round */
    regx_module_t *module = context;

    if (above >= MCA_BTL_TAG_MAX - MCA_BTL_TAG_PML) {
        deliver_other(module, sender, tag, data, length);
    } else if (!module->ending) {
        regx_compat_receive(&module->super, sender, tag, data, length);
    }
}

_Static_assert(REGX_TAG_CONTROL < MCA_BTL_TAG_PML && REGX_TAG_ONESIDED < MCA_BTL_TAG_PML,
               "regx's own tags are not a PML's");

static regx_status_t open_pool(regx_module_t *module)
{
    const regx_transport_t *transport = module->transport;
    size_t locked = transport->pool_size;

    /* Places the pool's memory near the process, and locks it. A port has done both by registering: its
     * pages cannot be moved any more, and locking them would count them twice against the limit of
     * locked memory. */
    if (module->kind == REGX_ON_NODE) {
        regx_place_bind(opal_hwloc_topology, transport->pool_memory, transport->pool_size);
        locked = regx_place_lock(transport->pool_memory, transport->pool_size);
    }
    regx_count(module->counters, &module->counters->pool_pinned_bytes, locked);
    return regx_pool_init(&module->pool, transport->pool_memory, transport->pool_size,
                          module->params->settings.pool.slot_size, module->threads,
                          module->counters);
}

static void unanswered(void *context, uint64_t peer)
{
    regx_lost_connection(context, peer, false, "no memory to answer its one-sided operations");
}

regx_status_t regx_module_open(regx_component_t *component, regx_transport_kind_t kind,
                               const regx_transport_ops_t *ops, const char *device,
                               size_t pool_size, regx_error_t error)
{
    const regx_params_t *params = &component->params;
    regx_module_t *module = calloc(1, sizeof(*module));
    regx_status_t status = regx_refuse(error, REGX_NO_MEMORY, "out of memory");

    if (module == NULL) {
        return status;
    }
    module->super = *component->face;
    module->index = component->module_count;
    module->kind = kind;
    module->component = component;
    module->params = params;
    module->counters = &component->counters;
    module->flow = &component->flows[kind];
    component->counters.flows[kind] = module->flow;
    module->flow->threads = component->threads;
    module->trace = &component->trace;
    module->threads = component->threads;
    module->guarded = component->threads;
    regx_list_init(&module->blocked);
    regx_lock_init(&module->lock, module->threads);
    regx_onesided_declare(&module->super, component->windows);
    const regx_transport_events_t events = {.context = module,
                                            .deliver = deliver,
                                            .immediate = handle_immediate,
                                            .broken = regx_lost_connection,
                                            .silent = regx_no_answer};
    const regx_transport_config_t config = {
        .self = regx_compat_self(),
        .pool_size = pool_size,
        .pool_min = 2 * params->settings.pool.slot_size,
        .owned_size = params->settings.pool.alloc_mem_size,
        .neighbours = regx_compat_local_processes() - 1,
        .device = device,
        /* On the node pinned alone has any. */
        .settings = kind == REGX_BETWEEN_NODES
                        ? (const void *)&params->settings.transports.between_nodes
                        : &params->settings.transports.pinned,
        .threads = module->threads,
        .counters = module->counters,
        .trace = module->trace,
        .events = events};
    const regx_onesided_config_t onesided = {.threads = module->threads,
                                             .counters = module->counters,
                                             .waiting = &module->due.queued,
                                             .ended = &module->due.ended,
                                             .unanswered = unanswered,
                                             .context = module};
    module->onesided = regx_onesided_create(&onesided);
    if (module->onesided != NULL) {
        status = ops->open(&config, error, &module->transport);
    }
    if (status == REGX_OK && open_pool(module) != REGX_OK) {
        status = regx_refuse(error, REGX_NO_MEMORY, "no memory for the bounce pool");
        module->transport->ops->close(module->transport);
    }
    if (status != REGX_OK) {
        regx_onesided_destroy(module->onesided);
        regx_lock_fini(&module->lock);
        free(module);
        return status;
    }
    /* ob1 divides large messages among modules by their bandwidths, and sends small ones by those of
     * the lowest latency. Fragments of non-contiguous ones are as long as the transport takes. */
    if (!regx_param_given("bandwidth") && module->transport->megabits > 0) {
        module->super.btl_bandwidth = module->transport->megabits;
    }
    if (!regx_param_given("latency") && module->transport->latency > 0) {
        module->super.btl_latency = module->transport->latency;
    }
    module->super.btl_max_send_size =
        regx_min(module->super.btl_max_send_size, module->transport->max_zcopy);
    module->super.btl_eager_limit =
        regx_min(module->super.btl_eager_limit, module->transport->max_frame);
    assert(component->module_count < REGX_MODULES_MAX);
    pthread_mutex_lock(&component->closing);
    component->modules[component->module_count++] = module;
    pthread_mutex_unlock(&component->closing);
    component->ports += module->transport->registers;
    return REGX_OK;
}

bool regx_module_start(regx_module_t *module)
{
    const regx_params_t *params = module->params;
    /* Whether messages may be exposed to be read. Not without btl_get: ob1 would put to the exposure.
     * Not with several ports: ob1 reads a message by one port, but writes it by all. */
    const bool may_expose = (module->super.btl_flags & MCA_BTL_FLAGS_GET) != 0 &&
                            (!module->transport->registers || module->component->ports == 1);
    const regx_rndv_config_t config = {.strategy = params->strategy,
                                       .chunk_size = params->settings.rendezvous.chunk_size,
                                       .chunk_depth = params->settings.rendezvous.chunk_depth,
                                       .threads = module->threads,
                                       .may_expose = may_expose,
                                       .grant = params->settings.rendezvous.grant,
                                       .verify = params->settings.rendezvous.verify,
                                       .lost = regx_lost_data,
                                       .changes = regx_registry_changes,
                                       .context = module,
                                       .flow = module->flow,
                                       .trace = module->trace};

    /* Whether the user leaves it to regx up to which length messages go eagerly, and how above. */
    const bool may_choose = !regx_param_given("eager_limit") && !params->rts_contiguous &&
                            !params->settings.rendezvous.verify &&
                            strcmp(params->settings.rendezvous.rendezvous, "auto") == 0;

    if (!regx_registry_start(module)) {
        return false;
    }
    regx_eager_init(&module->eager, &module->super.btl_eager_limit,
                    may_choose && may_expose && module->transport->ops->node.expose != NULL &&
                        !module->threads);
    module->rndv = regx_rndv_create(&config, &module->pool, &module->registry, module->counters);
    if (module->rndv == NULL) {
        regx_compat_output("no memory for large messages");
    }
    return module->rndv != NULL;
}

/* A callback's frame lies above that of the progress that it calls (stacks grow downwards). If it does
 * not, the callback is no more: the program has left it by siglongjmp. */
static __attribute__((noinline)) bool has_left_call(void)
{
    const uintptr_t calling = atomic_load_explicit(&regx_compat_calling, memory_order_relaxed);

    if ((uintptr_t)__builtin_frame_address(0) < calling) {
        return false;
    }
    regx_callback_end(0);
    return true;
}

/* Whether advance would find nothing to do, as nearly always. */
static bool nothing_waits(const regx_module_t *module)
{
    return regx_rndv_is_idle(module->rndv) &&
           atomic_load_explicit(&module->due.queued, memory_order_relaxed) == 0;
}

/* Goes on with what waits here. */
static int advance(regx_module_t *module)
{
    const int events = regx_rndv_progress(module->rndv);

    return atomic_load_explicit(&module->due.queued, memory_order_relaxed) > 0
               ? events + regx_btl_send_queued(module) + regx_onesided_progress(module->onesided)
               : events;
}

/* In one round of so many the transport may look whether peers live. */
#define LOOK_ROUNDS 1024u

/* One round in ALL_ROUNDS: also does what can wait, in the registry and for endpoints that Open MPI
 * has deleted. */
static __attribute__((noinline)) int progress_all(regx_module_t *module)
{
    const int events = module->transport->ops->progress(module->transport);

    regx_registry_progress(&module->registry);
    if (module->rounds % LOOK_ROUNDS == 0 && module->transport->ops->look != NULL) {
        module->transport->ops->look(module->transport);
    }
    if (atomic_load_explicit(&module->due.leaving, memory_order_relaxed) > 0) {
        regx_endpoints_delete_leaving(module);
    }
    return events + advance(module);
}

/* While rounds find events (frames, or copies to go on with), advance is called in one of so many. */
#define EVENT_ROUNDS 4u
/* One round of so many is progress_all. */
#define ALL_ROUNDS 16u

/* The usual round: takes the frames that have arrived and goes on with copies or, if there are none, does
 * what waits in this module. Most rounds find neither, and take few instructions. */
static inline int progress_transport(regx_module_t *module, unsigned round)
{
    const int events = module->transport->ops->progress(module->transport);

    if ((events == 0 && nothing_waits(module)) || (events > 0 && round % EVENT_ROUNDS != 0)) {
        return events;
    }
    return events + advance(module);
}

static inline int progress_round(regx_module_t *module)
{
    const unsigned round = atomic_load_explicit(&module->rounds, memory_order_relaxed) + 1;

    atomic_store_explicit(&module->rounds, round, memory_order_relaxed);
    return round % ALL_ROUNDS == 0 ? progress_all(module) : progress_transport(module, round);
}

/* While a window is offered peers read its memory, perhaps right after MPI_Win_sync, which in Open MPI 4.1 does
 * nothing but call progress: what this thread stored past the caches (movnt) must be seen by then. */
static __attribute__((noinline)) int complete(regx_module_t *module, int events)
{
    regx_fence_stores();
    regx_onesided_complete(module->onesided, NULL); /* osc/rdma calls progress from there */
    return events;
}

static inline int complete_ended(regx_module_t *module, int events)
{
    return atomic_load_explicit(&module->due.ended, memory_order_relaxed) > 0
               ? complete(module, events)
               : events;
}

/* One thread at a time: the others find that there is somebody who does what there is to do. An
 * interlocked exchange is a tenth of an 8-byte message's time. */
static __attribute__((noinline)) int progress_alone(regx_module_t *module)
{
    if (atomic_load_explicit(&module->inside, memory_order_relaxed) ||
        atomic_exchange_explicit(&module->inside, true, memory_order_acquire)) {
        regx_fence_stores(); /* as in complete: the other thread does so for its own stores only */
        return 0;
    }
    const int events = progress_round(module);

    atomic_store_explicit(&module->inside, false, memory_order_release);
    return complete_ended(module, events);
}

/* Without threads only what Open MPI does inside a callback of its own is refused. */
int regx_module_progress(regx_module_t *module)
{
    if (module->guarded) {
        return progress_alone(module);
    }
    if (atomic_load_explicit(&regx_compat_calling, memory_order_relaxed) != 0 && !has_left_call()) {
        return 0;
    }
    return complete_ended(module, progress_round(module));
}

void regx_module_end(regx_module_t *module)
{
    const struct timespec pause = {.tv_nsec = 10000};

    module->error = NULL; /* at once: from now on peers may be gone */
    module->ending = true;
    if (!module->threads) { /* this very one may be in progress: a callback has ended the program */
        module->guarded = true;
    }
    while (atomic_exchange_explicit(&module->inside, true, memory_order_acquire) &&
           module->threads) {
        nanosleep(&pause, NULL); /* the other thread may have a lower priority and the same core */
    }
    regx_endpoints_delete_leaving(module);
}

bool regx_module_send_rest(regx_module_t *module)
{
    bool more = false;

    assert(module->ending);
    for (regx_endpoint_t *endpoint = module->endpoints.first; endpoint != NULL && !more;
         endpoint = endpoint->next) {
        more = regx_endpoint_has_reader(endpoint);
    }
    module->transport->ops->progress(module->transport);
    regx_btl_send_queued(module);
    return more;
}

void regx_module_close(regx_module_t *module)
{
    regx_endpoints_delete_all(module);
    assert(module->endpoints.count == 0 && module->due.queued == 0 &&
           regx_list_empty(&module->blocked));
    if (module->rndv != NULL) {
        regx_rndv_destroy(module->rndv);
        module->rndv = NULL;
    }
    regx_onesided_destroy(module->onesided);
    module->onesided = NULL;
    regx_fragments_free(module);
    regx_registry_stop(module);
    regx_pool_fini(&module->pool);
    module->transport->ops->close(module->transport);
    regx_lock_fini(&module->lock);
    free(module);
}
