/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What regx tells of itself. The report: what this process did, one JSON object on one line, or
 * a table for people; the keys are promised to scripts. Written with printf: the names are
 * regx's own, and the few strings from outside are escaped here. What explains the job: which way
 * its messages went, and why. The same counters for tools (MPI_T). And the trace of what was
 * chosen.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_pvar.h"
#include "opal/runtime/opal.h"

#include "base/file.h"
#include "btl/module.h"

/* ---- what there is to tell ---- */

typedef uint64_t number_field_t;
typedef const char *text_field_t;
typedef struct fields {
#define FIELD(key, type, help) type##_field_t key;
    REGX_REPORT_FIELDS(FIELD)
#undef FIELD
} fields_t;

static fields_t find_fields(const regx_component_t *component)
{
    unsigned peers = 0, most = 0;

    /* Ports of one kind of transport lead to the same processes, different kinds to different ones. */
    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        if (i > 0 && module->transport->ops != component->modules[i - 1]->transport->ops) {
            peers += most;
            most = 0;
        }
        most = (unsigned)regx_max(most, module->endpoints.high);
    }
    return (fields_t){.rank = regx_compat_rank(),
                      .host = regx_compat_host(),
                      .version = REGX_VERSION,
                      .openmpi = opal_version_string,
                      .transport = component->transports,
                      .transport_reason = component->transport_reason,
                      .backend = component->choice.backend->name,
                      .backend_reason = component->choice.reason,
                      .rendezvous = component->params.settings.rendezvous.rendezvous,
                      .eager_limit = component->modules[0]->super.btl_eager_limit,
                      .peers = peers + most};
}

/* ---- which way messages went ---- */

/* The least length of a size. */
static uint64_t from(unsigned size)
{
    return size > 0 ? REGX_FLOW_SECOND / 2 << size : 0;
}

static uint64_t speed_of(const regx_module_t *module, unsigned way, unsigned size)
{
    return regx_auto_speed(module->rndv, way / REGX_WHY_COUNT, from(size));
}

/* Whether that way messages of this size, and of the one before, went as fast, as far as auto has
 * measured it: then they are of one row. */
static bool joins(const regx_module_t *module, unsigned way, unsigned size)
{
    return size > 0 && size < REGX_FLOW_SIZES && module->flow->bytes[way][size - 1] > 0 &&
           module->flow->bytes[way][size] > 0 &&
           speed_of(module, way, size - 1) == speed_of(module, way, size);
}

#define JSON_ROW                                                                                   \
    "%s{\"peers\": \"%s\", \"from\": %" PRIu64 ", \"to\": %" PRIu64                                \
    ", \"way\": \"%s\", \"wire\": \"%s\", \"backend\": \"%s\", \"messages\": %" PRIu64             \
    ", \"bytes\": %" PRIu64 ", \"MB/s\": %" PRIu64 ", \"why\": \"%s%s\"}"
#define TABLE_TITLES                                                                               \
    "peers     from bytes         to  way      wire  backend          messages          bytes "    \
    "    MB/s  why"
#define TABLE_ROW                                                                                  \
    "%s%-9s %10" PRIu64 " %10" PRIu64 "  %-8s %-5s %-14s %10" PRIu64 " %14" PRIu64 " %8" PRIu64    \
    "  %s%s"

/* A row for each way, and sizes that it joins, in the order of peers and sizes. */
static void write_rows(FILE *out, const regx_component_t *component, bool json)
{
    const char *separator = json ? "" : "\n";

    for (unsigned i = 0; i < component->module_count * REGX_FLOW_SIZES * REGX_WAYS; i++) {
        const unsigned way = i % REGX_WAYS, first = i / REGX_WAYS % REGX_FLOW_SIZES;
        const unsigned place = i / REGX_WAYS / REGX_FLOW_SIZES;
        const regx_module_t *module = component->modules[place];
        const bool told = place > 0 && component->modules[place - 1]->flow == module->flow;
        const regx_path_t path = way / REGX_WHY_COUNT;
        const regx_why_t why = way % REGX_WHY_COUNT;
        const bool reads =
            path == REGX_PATH_read || path == REGX_PATH_together || path == REGX_PATH_staged;
        const bool registers = path != REGX_PATH_eager && path != REGX_PATH_frag &&
                               path != REGX_PATH_bounce && regx_registry_keeps(module) &&
                               (module->transport->registers || !reads);
        const char *peers = "this node";
        uint64_t messages = 0, bytes = 0;
        unsigned size = first;

        if (told || module->flow->bytes[way][first] == 0 || joins(module, way, first)) {
            continue;
        }
        /* A device may be the way to processes of this node, too. */
        if (module->kind != REGX_ON_NODE) {
            peers = component->modules[0]->kind == REGX_ON_NODE ? "others" : "all";
        }
        do {
            messages += module->flow->messages[way][size];
            bytes += module->flow->bytes[way][size];
        } while (joins(module, way, ++size));
        uint64_t to =
            size < REGX_FLOW_SIZES ? from(size) - 1 : UINT64_MAX; /* the last has no end */
        if (path == REGX_PATH_eager) {
            to = module->eager.configured;
        } else if (path == REGX_PATH_frag) {
            to = module->super.btl_max_send_size;
        }
        fprintf(out, json ? JSON_ROW : TABLE_ROW, separator, peers, from(first), to,
                regx_path_names[path], module->transport->ops->name,
                registers ? component->choice.backend->name : "none", messages, bytes,
                speed_of(module, way, first) / 1000, regx_why_is_fallback(why) ? "fallback: " : "",
                regx_why_texts[why]);
        separator = json ? ", " : "\n";
    }
}

/* ---- the writer ---- */

typedef enum form {
    HEAD,        /* what was chosen for this process, and why */
    TABLE,       /* the head, and counts above zero */
    EXPLANATION, /* the head, and which way messages went */
    JSON         /* all of it */
} form_t;

static void write_head(FILE *out, const regx_component_t *component)
{
    const fields_t fields = find_fields(component);
    const regx_module_t *last = component->modules[component->module_count - 1];

    fprintf(out, "regx %s for Open MPI %s, rank %" PRIu64 " on %s: transport %s (", fields.version,
            REGX_BUILT_FOR_OPENMPI, fields.rank, fields.host, fields.transport);
    for (unsigned i = 0; i < component->module_count; i++) {
        fprintf(out, "%s%s", i > 0 ? ", " : "", component->modules[i]->transport->wires);
    }
    fprintf(out, "; %s), rendezvous %s, backend %s (%s)", fields.transport_reason,
            fields.rendezvous, fields.backend, fields.backend_reason);
    if (last->registry.once_max != REGX_UNLIMITED) {
        fprintf(out, ", at most %" PRIu64 " bytes pinned for one use, to send and to receive each",
                last->registry.once_max);
    }
    if (component->counters.uses_owned > 0) {
        fprintf(out, ", MPI_Alloc_mem's memory registered once and used %" PRIu64 " times",
                component->counters.uses_owned);
    }
}

static void write_json_text(FILE *out, const char *text)
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

static void write_json_number(FILE *out, uint64_t number)
{
    fprintf(out, "%" PRIu64, number);
}

static void write_json_fields(FILE *out, const regx_component_t *component)
{
    const fields_t fields = find_fields(component);
    const char *separator = "{";

#define WRITE_FIELD(key, type, help)                                                               \
    fprintf(out, "%s\"" #key "\": ", separator);                                                   \
    write_json_##type(out, fields.key);                                                            \
    separator = ", ";
    REGX_REPORT_FIELDS(WRITE_FIELD)
#undef WRITE_FIELD
}

static void write_count(FILE *out, form_t form, const char *name, uint64_t value, const char *help)
{
    if (form == JSON) {
        fprintf(out, ", \"%s\": %" PRIu64, name, value);
    } else if (value > 0) {
        fprintf(out, "  %-24s %14" PRIu64 "  %s\n", name, value, help);
    }
}

static void write_tallies(FILE *out, form_t form, const char *name, const regx_tally_t *tallies)
{
    const char *separator = "{";

    if (form == JSON) {
        fprintf(out, ", \"%s\": ", name);
    }
    for (int i = 0; i < REGX_REASONS_MAX && tallies[i].reason[0] != '\0'; i++) {
        if (form == JSON) {
            fputs(separator, out);
            write_json_text(out, tallies[i].reason);
            fprintf(out, ": %" PRIu64, tallies[i].count);
            separator = ", ";
        } else {
            write_count(out, form, name, tallies[i].count, tallies[i].reason);
        }
    }
    if (form == JSON) {
        fputs(*separator == '{' ? "{}" : "}", out);
    }
}

/* The text; the caller frees it. NULL: no memory. */
static char *write_all(const regx_component_t *component, form_t form)
{
    const regx_counters_t *counters = &component->counters;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    if (out == NULL) {
        return NULL;
    }
    if (form == JSON) {
        write_json_fields(out, component);
    } else {
        write_head(out, component);
    }
    if (form == TABLE || form == JSON) {
        fputs(form == TABLE ? "\n" : "", out);
        for (const regx_counter_t *row = regx_counter_table; row->name != NULL; row++) {
            write_count(out, form, row->name, regx_counter_value(counters, row), row->help);
        }
        write_tallies(out, form, "fallbacks", counters->fallbacks);
        write_tallies(out, form, "ports", counters->ports);
    }
    if (form == EXPLANATION || form == JSON) {
        fputs(form == JSON ? ", \"explain\": [" : "\n" TABLE_TITLES, out);
        write_rows(out, component, form == JSON);
        fputs(form == JSON ? "]}\n" : "", out);
    }
    fclose(out);
    return text;
}

/* ---- where it goes ---- */

/* To a file, of whose name %h, %r and %p are replaced. One write, so that the lines of several processes do
 * not mix. Neither open nor write waits for the reader of a pipe. */
static void append(const char *pattern, const char *line, size_t length)
{
    char name[4096];
    size_t used = 0;

    for (; *pattern != '\0' && used + 1 < sizeof(name); pattern++) {
        const char letter = *pattern == '%' ? pattern[1] : '\0';
        char *end = name + used;
        const size_t room = sizeof(name) - used;

        switch (letter) {
        case 'h':
            used += (size_t)snprintf(end, room, "%s", regx_compat_host());
            break;
        case 'r':
            used += (size_t)snprintf(end, room, "%u", regx_compat_rank());
            break;
        case 'p':
            used += (size_t)snprintf(end, room, "%d", (int)getpid());
            break;
        default:
            name[used++] = *pattern;
            continue;
        }
        pattern++;
    }
    name[regx_min(used, sizeof(name) - 1)] = '\0';
    const int fd = regx_descriptor_move(
        open(name, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666));
    const ssize_t written = fd < 0 ? -1 : write(fd, line, length);
    if (written != (ssize_t)length) {
        regx_compat_output_for_node("report", "btl_regx_report=%s: %s", name,
                                    written < 0 ? strerror(errno) : "no space for the whole line");
    }
    if (fd >= 0) {
        close(fd);
    }
}

void regx_report(regx_component_t *component)
{
    const regx_component_settings_t *settings = &component->params.settings.component;
    const bool first = regx_compat_rank() == 0, table = strcmp(settings->report, "stderr") == 0;

    regx_registry_count_all(component);
    if (settings->explain && first) {
        char *text = write_all(component, EXPLANATION), *rest = text, *line;

        while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
            regx_compat_output("%s", line);
        }
        free(text);
    }
    if (settings->report[0] == '\0' || (table && !first)) {
        return;
    }
    char *text = write_all(component, table ? TABLE : JSON);
    if (text != NULL && table) {
        fputs(text, stderr);
    } else if (text != NULL) {
        append(settings->report, text, strlen(text));
    }
    free(text);
}

void regx_verbose_choice(const regx_component_t *component)
{
    char *text = write_all(component, HEAD);

    regx_trace(&component->trace, REGX_TRACE_CHOICE, "%s", text != NULL ? text : "out of memory");
    free(text);
}

/* ---- for tools ---- */

static regx_component_t *counted;

/* Open MPI holds its own lock. A count begins at zero in each handle; Open MPI subtracts. What is
 * found in the caches is added up when it is asked for. */
static int read_counter(const struct mca_base_pvar_t *variable, void *value, void *object)
{
    const regx_counter_t *counter = variable->ctx;

    (void)object;
    if (strcmp(counter->name, "hits") == 0) {
        regx_registry_count_all(counted);
    }
    *(unsigned long long *)value = regx_counter_value(&counted->counters, counter);
    return OPAL_SUCCESS;
}

void regx_variables_register(regx_component_t *component)
{
    counted = component;
    for (const regx_counter_t *row = regx_counter_table; row->name != NULL; row++) {
        mca_base_component_pvar_register(
            &component->super.btl_version, row->name, row->help, OPAL_INFO_LVL_4,
            row->kind == REGX_LEVEL ? MCA_BASE_PVAR_CLASS_LEVEL : MCA_BASE_PVAR_CLASS_COUNTER,
            MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
            MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_counter, NULL, NULL,
            (void *)(uintptr_t)row);
    }
}
