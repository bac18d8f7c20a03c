/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What regx tells of itself. The report: what this process did, one JSON object on one line, or
 * a table for people; the keys are promised to scripts. Written with printf: the names are
 * regx's own, and the few strings from outside are escaped here. The same counters for tools
 * (MPI_T). And the trace of what was chosen.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opal/mca/base/mca_base_pvar.h"
#include "opal/runtime/opal.h"

#include "base/memlock.h"
#include "btl/module.h"

/* ---- what there is to tell ---- */

/* Ports of one kind of transport lead to the same processes, different kinds to different ones. */
static unsigned count_peers(const regx_component_t *component)
{
    unsigned all = 0, max = 0;

    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        if (i > 0 && module->transport->ops != component->modules[i - 1]->transport->ops) {
            all += max;
            max = 0;
        }
        max = (unsigned)regx_max(max, module->endpoints.high);
    }
    return all + max;
}

typedef uint64_t number_field_t;
typedef const char *text_field_t;
typedef struct fields {
#define FIELD(key, type, help) type##_field_t key;
    REGX_REPORT_FIELDS(FIELD)
#undef FIELD
} fields_t;

/* Of the first module that found something: that of the node, if there is one. */
static const char *auto_choice(const regx_component_t *component, char text[REGX_AUTO_CHOICE])
{
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_rndv_t *rndv = component->modules[i]->rndv;

        if (rndv != NULL && regx_auto_choice_write(rndv, text)) {
            return text;
        }
    }
    return "none";
}

/* `choice` is used as long as the fields are. */
static fields_t find_fields(const regx_component_t *component, char choice[REGX_AUTO_CHOICE])
{
    return (fields_t){.rank = regx_compat_rank(),
                      .host = regx_compat_host(),
                      .version = REGX_VERSION,
                      .openmpi = opal_version_string,
                      .transport = component->transports,
                      .transport_reason = component->transport_reason,
                      .backend = component->choice.backend->name,
                      .backend_reason = component->choice.reason,
                      .rendezvous = component->params.strategy->name,
                      .auto_choice = auto_choice(component, choice),
                      .eager_limit = component->modules[0]->super.btl_eager_limit,
                      .peers = count_peers(component)};
}

/* ---- as JSON ---- */

static void write_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fprintf(out, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20) {
            fprintf(out, "\\u%04x", (unsigned char)*text);
        } else {
            fputc(*text, out);
        }
    }
    fputc('"', out);
}

static void write_key(FILE *out, const char *key)
{
    fprintf(out, "%s\"%s\": ", ftell(out) == 0 ? "{" : ", ", key);
}

static void write_number(FILE *out, const char *key, uint64_t number)
{
    write_key(out, key);
    fprintf(out, "%" PRIu64, number);
}

static void write_text(FILE *out, const char *key, const char *text)
{
    write_key(out, key);
    write_string(out, text);
}

static void write_counter(void *out, const char *name, const char *help, regx_counter_kind_t kind,
                          _Atomic uint64_t *counter)
{
    (void)help, (void)kind;
    write_number(out, name, *counter);
}

static void write_tallies(FILE *out, const char *key, const regx_tally_t *tallies)
{
    write_key(out, key);
    fputc('{', out);
    for (int i = 0; i < REGX_REASONS_MAX && tallies[i].reason[0] != '\0'; i++) {
        fputs(i > 0 ? ", " : "", out);
        write_string(out, tallies[i].reason);
        fprintf(out, ": %" PRIu64, tallies[i].count);
    }
    fputc('}', out);
}

static void write_json(FILE *out, regx_counters_t *counters, const fields_t *fields)
{
#define WRITE_FIELD(key, type, help) write_##type(out, #key, fields->key);
    REGX_REPORT_FIELDS(WRITE_FIELD)
#undef WRITE_FIELD
    regx_settings_each_counter(counters, write_counter, out);
#define WRITE_TALLIES(key, row, help) write_tallies(out, #key, counters->key);
    REGX_REPORT_TALLIES(WRITE_TALLIES)
#undef WRITE_TALLIES
    fputs("}\n", out);
}

/* ---- as a table, without what is zero ---- */

static void write_row(FILE *out, const char *name, uint64_t value, const char *help)
{
    if (value > 0) {
        fprintf(out, "  %-24s %14" PRIu64 "  %s\n", name, value, help);
    }
}

static void write_counter_row(void *out, const char *name, const char *help,
                              regx_counter_kind_t kind, _Atomic uint64_t *counter)
{
    (void)kind;
    write_row(out, name, *counter, help);
}

static void write_tally_rows(FILE *out, const char *name, const regx_tally_t *tallies)
{
    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        write_row(out, name, tallies[i].count, tallies[i].reason);
    }
}

static void write_table(FILE *out, regx_component_t *component, const fields_t *fields)
{
    regx_counters_t *counters = &component->counters;

    fprintf(out, "regx %s, rank %" PRIu64 " on %s: transport %s (", fields->version, fields->rank,
            fields->host, fields->transport);
    for (unsigned i = 0; i < component->module_count; i++) {
        fprintf(out, "%s%s", i > 0 ? ", " : "", component->modules[i]->transport->wires);
    }
    fprintf(out, "; %s), rendezvous %s (auto found: %s), backend %s (%s)\n",
            fields->transport_reason, fields->rendezvous, fields->auto_choice, fields->backend,
            fields->backend_reason);
    regx_settings_each_counter(counters, write_counter_row, out);
#define WRITE_ROWS(key, row, help) write_tally_rows(out, row, counters->key);
    REGX_REPORT_TALLIES(WRITE_ROWS)
#undef WRITE_ROWS
}

/* ---- where it goes ---- */

/* Replaces %h, %r and %p. */
static void expand(const char *pattern, char *name, size_t size)
{
    size_t used = 0;

    for (; *pattern != '\0' && used + 1 < size; pattern++) {
        int n = 1;

        if (*pattern == '%' && strchr("hrp", pattern[1]) != NULL && pattern[1] != '\0') {
            pattern++;
            n = *pattern == 'h'   ? snprintf(name + used, size - used, "%s", regx_compat_host())
                : *pattern == 'r' ? snprintf(name + used, size - used, "%u", regx_compat_rank())
                                  : snprintf(name + used, size - used, "%d", (int)getpid());
        } else {
            name[used] = *pattern;
        }
        used += (size_t)n;
    }
    name[used < size ? used : size - 1] = '\0';
}

/* One write, so that the lines of several processes do not mix. */
static void append(const char *pattern, const char *line, size_t length)
{
    char name[4096];

    expand(pattern, name, sizeof(name));
    const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const ssize_t written = fd < 0 ? -1 : write(fd, line, length);
    if (written != (ssize_t)length) {
        regx_compat_output_for_node("btl_regx_report=%s: %s", name,
                                    written < 0 ? strerror(errno) : "no space for the whole line");
    }
    if (fd >= 0) {
        close(fd);
    }
}

void regx_report(regx_component_t *component)
{
    const char *where = component->params.settings.component.report;
    const bool table = strcmp(where, "stderr") == 0;
    char *text = NULL, choice[REGX_AUTO_CHOICE];
    size_t length;
    FILE *out;

    regx_trace(&component->trace, REGX_TRACE_CHOICE, "auto found %s",
               auto_choice(component, choice));
    if (where[0] == '\0' || (table && regx_compat_rank() != 0) ||
        (out = open_memstream(&text, &length)) == NULL) {
        return;
    }
    regx_registry_count_all(component);
    const fields_t fields = find_fields(component, choice);
    if (table) {
        write_table(out, component, &fields);
    } else {
        write_json(out, &component->counters, &fields);
    }
    fclose(out);
    if (table) {
        fputs(text, stderr);
    } else {
        append(where, text, length);
    }
    free(text);
}

/* ---- the trace ---- */

static void trace_backend(const regx_component_t *component)
{
    const regx_backend_choice_t *choice = &component->choice;
    const regx_registration_settings_t *settings = &component->params.settings.registration;

    const bool keeps = choice->backend->start != NULL;

    regx_trace(&component->trace, REGX_TRACE_CHOICE,
               "backend %s (%s), keeping at most %" PRIu64 " bytes in %u registrations",
               choice->backend->name, choice->reason, keeps ? settings->cache_bytes : 0,
               keeps ? REGX_CACHE_COUNT : 0);
}

/* What each module offers ob1, keeps, and may register that it does not keep. */
static void trace_modules(const regx_component_t *component)
{
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];
        const mca_btl_base_module_t *face = &module->super;

        regx_trace(&component->trace, REGX_TRACE_CHOICE,
                   "module %s (%s): eager to %zu bytes, fragments of %zu, bandwidth %u Mbit/s, "
                   "latency %u us, exclusivity %u%s",
                   module->transport->ops->name, module->transport->wires, face->btl_eager_limit,
                   face->btl_max_send_size, (unsigned)face->btl_bandwidth,
                   (unsigned)face->btl_latency, (unsigned)face->btl_exclusivity,
                   regx_registry_keeps(module) ? "" : ", keeps no registrations");
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

    regx_trace(&component->trace, REGX_TRACE_CHOICE, "transport=%s is %s (%s)",
               params->settings.component.transport, component->transports,
               component->transport_reason);
    regx_trace(&component->trace, REGX_TRACE_CHOICE,
               "rendezvous %s, chunks of %zu bytes, %u at once%s%s", params->strategy->name,
               params->settings.rendezvous.chunk_size, params->settings.rendezvous.chunk_depth,
               params->settings.rendezvous.verify ? ", verified" : "",
               component->threads ? ", with threads" : "");
    trace_modules(component);
    trace_backend(component);
    trace_limit(component);
}

/* ---- for tools ---- */

static regx_component_t *counted;

/* Open MPI holds its own lock. A count begins at zero in each handle; Open MPI subtracts. What is
 * found in the caches is added up when it is asked for. */
static int read_counter(const struct mca_base_pvar_t *variable, void *value, void *object)
{
    const _Atomic uint64_t *counter = variable->ctx;

    (void)object;
    if (counter == &counted->counters.hits) {
        regx_registry_count_all(counted);
    }
    *(unsigned long long *)value = atomic_load_explicit(counter, memory_order_relaxed);
    return OPAL_SUCCESS;
}

static void register_counter(void *context, const char *name, const char *help,
                             regx_counter_kind_t kind, _Atomic uint64_t *counter)
{
    const regx_component_t *component = context;

    mca_base_component_pvar_register(
        &component->super.btl_version, name, help, OPAL_INFO_LVL_4,
        kind == REGX_LEVEL ? MCA_BASE_PVAR_CLASS_LEVEL : MCA_BASE_PVAR_CLASS_COUNTER,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
        MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_counter, NULL, NULL,
        counter);
}

void regx_variables_register(regx_component_t *component)
{
    counted = component;
    regx_settings_each_counter(&component->counters, register_counter, component);
}
