/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The report: what this process did, one JSON object on one line, or a table for people. The keys
 * are promised to scripts. Written with printf: the names are regx's own, and the few strings from
 * outside are escaped here.
 */
#include "config.h"

#include "btl/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "btl/module.h"
#include "btl/say.h"
#include "btl/transports.h"

static const char *const path_names[] = {
#define PATH_NAME(name) #name,
    REGX_PATHS(PATH_NAME)
#undef PATH_NAME
};

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

static void write_field(FILE *out, const char *key, const char *text)
{
    fprintf(out, "\"%s\": ", key);
    write_string(out, text);
    fputs(", ", out);
}

static void write_tallies(FILE *out, const char *key, const regx_tally_t *tallies)
{
    const char *separator = "";

    fprintf(out, "\"%s\": {", key);
    for (int i = 0; i < REGX_REASONS_MAX && tallies[i].reason[0] != '\0'; i++) {
        fputs(separator, out);
        write_string(out, tallies[i].reason);
        fprintf(out, ": %" PRIu64, tallies[i].count);
        separator = ", ";
    }
    fputc('}', out);
}

/* Ports of one kind of transport lead to the same processes, different kinds to different ones. */
static unsigned count_peers(const regx_component_t *component)
{
    unsigned all = 0, most = 0;

    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        if (i > 0 && module->transport->ops != component->modules[i - 1]->transport->ops) {
            all += most;
            most = 0;
        }
        most = (unsigned)regx_max(most, module->endpoints_high);
    }
    return all + most;
}

static void write_json(FILE *out, const regx_component_t *component)
{
    const regx_counters_t *counters = &component->counters;
    char transports[64];

    regx_transports_name(component, transports, sizeof(transports));
    fprintf(out, "{\"rank\": %u, ", regx_compat_rank());
    write_field(out, "host", regx_compat_host());
    write_field(out, "version", REGX_VERSION);
    write_field(out, "openmpi", regx_compat_version());
    write_field(out, "transport", transports);
    write_field(out, "transport_reason", component->transport_reason);
    write_field(out, "backend", component->choice.backend->name);
    write_field(out, "backend_reason", component->choice.reason);
    write_field(out, "rendezvous", regx_strategy_name(component->params.strategy));
    fprintf(out, "\"peers\": %u, ", count_peers(component));
    for (int i = 0; i < REGX_PATH_COUNT; i++) {
        fprintf(out, "\"messages_%s\": %" PRIu64 ", \"bytes_%s\": %" PRIu64 ", ", path_names[i],
                counters->messages[i], path_names[i], counters->bytes[i]);
    }
#define WRITE_COUNTER(name, help) fprintf(out, "\"%s\": %" PRIu64 ", ", #name, counters->name);
    REGX_COUNTERS(WRITE_COUNTER)
#undef WRITE_COUNTER
    write_tallies(out, "decisions", counters->decisions);
    fputs(", ", out);
    write_tallies(out, "fallbacks", counters->fallbacks);
    fputs(", ", out);
    write_tallies(out, "ports", counters->ports);
    fputs("}\n", out);
}

static void write_row(FILE *out, const char *name, uint64_t value, const char *help)
{
    if (value > 0) {
        fprintf(out, "  %-24s %14" PRIu64 "  %s\n", name, value, help);
    }
}

/* Counters that are zero are left out. */
static void write_table(FILE *out, const regx_component_t *component)
{
    const regx_counters_t *counters = &component->counters;
    char transports[64];

    regx_transports_name(component, transports, sizeof(transports));
    fprintf(out, "regx %s, rank %u on %s: transport %s (", REGX_VERSION, regx_compat_rank(),
            regx_compat_host(), transports);
    for (unsigned i = 0; i < component->module_count; i++) {
        fprintf(out, "%s%s", i > 0 ? ", " : "", component->modules[i]->transport->wires);
    }
    fprintf(out, "; %s), rendezvous %s, backend %s (%s)\n", component->transport_reason,
            regx_strategy_name(component->params.strategy), component->choice.backend->name,
            component->choice.reason);
    for (int i = 0; i < REGX_PATH_COUNT; i++) {
        char name[40];

        snprintf(name, sizeof(name), "messages_%s", path_names[i]);
        write_row(out, name, counters->messages[i], "sent this way");
        snprintf(name, sizeof(name), "bytes_%s", path_names[i]);
        write_row(out, name, counters->bytes[i], "");
    }
#define WRITE_COUNTER(name, help) write_row(out, #name, counters->name, help);
    REGX_COUNTERS(WRITE_COUNTER)
#undef WRITE_COUNTER
    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        write_row(out, "decision", counters->decisions[i].count, counters->decisions[i].reason);
    }
    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        write_row(out, "fallback", counters->fallbacks[i].count, counters->fallbacks[i].reason);
    }
    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        write_row(out, "bytes by port", counters->ports[i].count, counters->ports[i].reason);
    }
}

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
    char name[4096], message[4200];

    expand(pattern, name, sizeof(name));
    const int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const ssize_t written = fd < 0 ? -1 : write(fd, line, length);
    if (written != (ssize_t)length) {
        snprintf(message, sizeof(message), "btl_regx_report=%s: %s", name,
                 written < 0 ? strerror(errno) : "no space for the whole line");
        regx_say_of_node(message);
    }
    if (fd >= 0) {
        close(fd);
    }
}

void regx_report(regx_component_t *component)
{
    const char *where = component->params.report;
    const bool table = strcmp(where, "stderr") == 0;
    char *text = NULL;
    size_t length;
    FILE *out;

    if (where[0] == '\0' || (table && regx_compat_rank() != 0) ||
        (out = open_memstream(&text, &length)) == NULL) {
        return;
    }
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_registry_count(&component->modules[i]->registry);
    }
    if (table) {
        write_table(out, component);
    } else {
        write_json(out, component);
    }
    fclose(out);
    if (table) {
        fputs(text, stderr);
    } else {
        append(where, text, length);
    }
    free(text);
}
