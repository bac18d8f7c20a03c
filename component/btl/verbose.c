/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "btl/verbose.h"

#include <inttypes.h>

#include "base/memlock.h"
#include "btl/module.h"
#include "btl/registry.h"
#include "btl/report.h"
#include "btl/transports.h"

void regx_verbose_start(regx_component_t *component)
{
    component->trace = (regx_trace_t){.level = regx_compat_verbose(), .write = regx_compat_trace};
}

static void trace_backend(const regx_component_t *component)
{
    const regx_backend_choice_t *choice = &component->choice;
    const regx_registration_settings_t *settings = &component->params.settings.registration;

    if (choice->backend->start == NULL) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "backend %s (%s), keeping nothing",
                   choice->backend->name, choice->reason);
        return;
    }
    regx_trace(&component->trace, REGX_TRACE_CHOICE,
               "backend %s (%s), keeping at most %" PRIu64 " bytes in %u registrations",
               choice->backend->name, choice->reason, settings->cache_bytes, REGX_CACHE_COUNT);
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        if (!regx_registry_keeps(module)) {
            regx_trace(&component->trace, REGX_TRACE_CHOICE,
                       "transport %s keeps no registrations: they are free",
                       module->transport->ops->name);
        }
    }
}

/* What each module offers ob1. */
static void trace_modules(const regx_component_t *component)
{
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];
        const mca_btl_base_module_t *face = &module->super;

        regx_trace(&component->trace, REGX_TRACE_CHOICE,
                   "module %s (%s): eager to %zu bytes, fragments of %zu, bandwidth %u Mbit/s, "
                   "latency %u us, exclusivity %u",
                   module->transport->ops->name, module->transport->wires, face->btl_eager_limit,
                   face->btl_max_send_size, (unsigned)face->btl_bandwidth,
                   (unsigned)face->btl_latency, (unsigned)face->btl_exclusivity);
    }
}

/* What is longer than that and not kept is not registered. */
static void trace_once(const regx_component_t *component)
{
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        if (module->registry.once_max != REGX_UNLIMITED) {
            regx_trace(&component->trace, REGX_TRACE_CHOICE,
                       "module %s (%s): registrations for one use each pin at most %" PRIu64
                       " bytes at a time to send from, and as many to receive into "
                       "(btl_regx_once_bytes)",
                       module->transport->ops->name, module->transport->wires,
                       module->registry.once_max);
        }
    }
}

static void trace_limit(const regx_component_t *component)
{
    const uint64_t limit = regx_memlock_limit();

    if (limit == REGX_MEMLOCK_NONE) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "no limit of locked memory");
    } else {
        regx_trace(&component->trace, REGX_TRACE_CHOICE,
                   "limit of locked memory: %" PRIu64 " bytes", limit);
    }
}

void regx_verbose_choice(const regx_component_t *component)
{
    const regx_params_t *params = &component->params;
    char transports[64];

    if (!regx_traces(&component->trace, REGX_TRACE_CHOICE)) {
        return;
    }
    regx_transports_name(component, transports, sizeof(transports));
    regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport=%s is %s (%s)",
               params->settings.component.transport, transports, component->transport_reason);
    regx_trace(&component->trace, REGX_TRACE_CHOICE,
               "rendezvous %s, chunks of %zu bytes, %u at once%s%s",
               regx_strategy_name(params->strategy), params->settings.rendezvous.chunk_size,
               params->settings.rendezvous.chunk_depth,
               params->settings.rendezvous.verify ? ", verified" : "",
               component->threads ? ", with threads" : "");
    trace_modules(component);
    trace_backend(component);
    trace_once(component);
    trace_limit(component);
}

void regx_verbose_outcome(const regx_component_t *component)
{
    char text[REGX_AUTO_CHOICE];

    if (regx_traces(&component->trace, REGX_TRACE_CHOICE)) {
        regx_trace(&component->trace, REGX_TRACE_CHOICE, "auto found auto_choice=%s",
                   regx_report_auto_choice(component, text));
    }
}
