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
#include "btl/output.h"
#include "btl/registry.h"
#include "btl/report_fields.h"
#include "btl/transports.h"

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
    unsigned all = 0, max = 0;

    for (unsigned i = 0; i < component->module_count; i++) {
        const regx_module_t *module = component->modules[i];

        if (i > 0 && module->transport->ops != component->modules[i - 1]->transport->ops) {
            all += max;
            max = 0;
        }
        max = (unsigned)regx_max(max, module->endpoints_high);
    }
    return all + max;
}

/* A field of the report; NULL text: it is the number. */
typedef struct field {
    const char *text;
    uint64_t number;
} field_t;

enum {
#define FIELD(key, type, help) FIELD_##key,
    REGX_REPORT_FIELDS(FIELD)
#undef FIELD
        FIELDS
};

#define TRANSPORTS 64 /* room for the names of all */

static const char *const keys[FIELDS] = {
#define KEY(key, type, help) #key,
    REGX_REPORT_FIELDS(KEY)
#undef KEY
};

/* What the fields point to. */
typedef struct texts {
    char transports[TRANSPORTS];
    char auto_choice[REGX_AUTO_CHOICE];
} texts_t;

/* Of the first module that found something: that of the node, if there is one. */
const char *regx_report_auto_choice(const regx_component_t *component, char text[REGX_AUTO_CHOICE])
{
    for (unsigned i = 0; i < component->module_count; i++) {
        regx_rndv_t *rndv = component->modules[i]->rndv;

        if (rndv != NULL && regx_auto_choice_write(rndv, text)) {
            return text;
        }
    }
    return "none";
}

/* `texts` is used as long as the fields are. */
static void fill(const regx_component_t *component, texts_t *texts, field_t fields[FIELDS])
{
    regx_transports_name(component, texts->transports, TRANSPORTS);
    fields[FIELD_rank].number = regx_compat_rank();
    fields[FIELD_host].text = regx_compat_host();
    fields[FIELD_version].text = REGX_VERSION;
    fields[FIELD_openmpi].text = regx_compat_version();
    fields[FIELD_transport].text = texts->transports;
    fields[FIELD_transport_reason].text = component->transport_reason;
    fields[FIELD_backend].text = component->choice.backend->name;
    fields[FIELD_backend_reason].text = component->choice.reason;
    fields[FIELD_rendezvous].text = regx_strategy_name(component->params.strategy);
    fields[FIELD_auto_choice].text = regx_report_auto_choice(component, texts->auto_choice);
    fields[FIELD_eager_limit].number = component->modules[0]->super.btl_eager_limit;
    fields[FIELD_peers].number = count_peers(component);
}

static void write_counters(FILE *out, const regx_counters_t *counters, const regx_counter_t *row)
{
    for (; row->name != NULL; row++) {
        fprintf(out, "\"%s\": %" PRIu64 ", ", row->name, regx_counter_value(counters, row));
    }
}

static void write_json(FILE *out, const regx_component_t *component)
{
    const regx_counters_t *counters = &component->counters;
    field_t fields[FIELDS] = {{.text = NULL}};
    texts_t texts;

    fill(component, &texts, fields);
    fputc('{', out);
    for (int i = 0; i < FIELDS; i++) {
        if (fields[i].text != NULL) {
            write_field(out, keys[i], fields[i].text);
        } else {
            fprintf(out, "\"%s\": %" PRIu64 ", ", keys[i], fields[i].number);
        }
    }
    for (int i = 0; i < REGX_PATH_COUNT; i++) {
        fprintf(out, "\"messages_%s\": %" PRIu64 ", \"bytes_%s\": %" PRIu64 ", ",
                regx_paths[i].name, counters->messages[i], regx_paths[i].name, counters->bytes[i]);
    }
    write_counters(out, counters, regx_counter_table);
    write_counters(out, counters, regx_transport_counter_table);
    const char *separator = "";
#define WRITE_TALLIES(key, row, help)                                                              \
    fputs(separator, out);                                                                         \
    write_tallies(out, #key, counters->key);                                                       \
    separator = ", ";
    REGX_REPORT_TALLIES(WRITE_TALLIES)
#undef WRITE_TALLIES
    fputs("}\n", out);
}

static void write_row(FILE *out, const char *name, uint64_t value, const char *help)
{
    if (value > 0) {
        fprintf(out, "  %-24s %14" PRIu64 "  %s\n", name, value, help);
    }
}

static void write_counter_rows(FILE *out, const regx_counters_t *counters,
                               const regx_counter_t *row)
{
    for (; row->name != NULL; row++) {
        write_row(out, row->name, regx_counter_value(counters, row), row->help);
    }
}

static void write_tally_rows(FILE *out, const char *name, const regx_tally_t *tallies)
{
    for (int i = 0; i < REGX_REASONS_MAX; i++) {
        write_row(out, name, tallies[i].count, tallies[i].reason);
    }
}

/* Counters that are zero are left out. */
static void write_table(FILE *out, const regx_component_t *component)
{
    const regx_counters_t *counters = &component->counters;
    field_t fields[FIELDS] = {{.text = NULL}};
    texts_t texts;

    fill(component, &texts, fields);
    fprintf(out, "regx %s, rank %" PRIu64 " on %s: transport %s (", fields[FIELD_version].text,
            fields[FIELD_rank].number, fields[FIELD_host].text, fields[FIELD_transport].text);
    for (unsigned i = 0; i < component->module_count; i++) {
        fprintf(out, "%s%s", i > 0 ? ", " : "", component->modules[i]->transport->wires);
    }
    fprintf(out, "; %s), rendezvous %s, backend %s (%s)\n", fields[FIELD_transport_reason].text,
            fields[FIELD_rendezvous].text, fields[FIELD_backend].text,
            fields[FIELD_backend_reason].text);
    if (strcmp(fields[FIELD_auto_choice].text, "none") != 0) {
        fprintf(out, "  auto found " REGX_PREFIX "auto_choice=%s\n",
                fields[FIELD_auto_choice].text);
    }
    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        char name[40];

        snprintf(name, sizeof(name), "messages_%s", path->name);
        write_row(out, name, counters->messages[path->offset], path->help);
        snprintf(name, sizeof(name), "bytes_%s", path->name);
        write_row(out, name, counters->bytes[path->offset], "");
    }
    write_counter_rows(out, counters, regx_counter_table);
    write_counter_rows(out, counters, regx_transport_counter_table);
#define WRITE_ROWS(key, row, help) write_tally_rows(out, row, counters->key);
    REGX_REPORT_TALLIES(WRITE_ROWS)
#undef WRITE_ROWS
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
        regx_output_once_per_node(message);
    }
    if (fd >= 0) {
        close(fd);
    }
}

void regx_report(regx_component_t *component)
{
    const char *where = component->params.settings.component.report;
    const bool table = strcmp(where, "stderr") == 0;
    char *text = NULL;
    size_t length;
    FILE *out;

    if (where[0] == '\0' || (table && regx_compat_rank() != 0) ||
        (out = open_memstream(&text, &length)) == NULL) {
        return;
    }
    regx_registry_count_all(component);
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
