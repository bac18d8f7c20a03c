/* SPDX-License-Identifier: BSD-3-Clause
 *
 * describe json|manual: what the tables of parameters and counters say, for the tests, and the
 * report's keys for the manual page. Not installed.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "btl/settings.h"

/* type: number, text, object or list. */
typedef void (*each_key_t)(const char *key, const char *type, const char *help);

/* Calls `each` for every key of the report, in its order. */
static void for_each_key(each_key_t each)
{
#define FIELD(key, type, help_text) each(#key, #type, help_text);
    REGX_REPORT_FIELDS(FIELD)
#undef FIELD
    for (const regx_counter_t *row = regx_counter_table; row->name != NULL; row++) {
        each(row->name, "number", row->help);
    }
    each("fallbacks", "object", REGX_REPORT_FALLBACKS);
    each("ports", "object", REGX_REPORT_PORTS);
    each("explain", "list", REGX_REPORT_EXPLAIN);
}

/* Nothing here begins with a point or has a backslash, which troff would take for its own. */
static void manual_key(const char *key, const char *type, const char *help)
{
    (void)type;
    printf(".TP\n.B %s\n%s\n", key, help);
}

static const char *separator; /* before the next element of what is printed */

static void json_string(const char *text)
{
    printf("%s\"", separator);
    for (; *text != '\0'; text++) {
        printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    putchar('"');
    separator = ", ";
}

static void report_key(const char *key, const char *type, const char *help)
{
    (void)help;
    json_string(key);
    separator = ": ";
    json_string(type);
}

/* A parameter's words in this build, in their order, and up to what its numbers may be. */
static void json_param(const regx_param_t *param)
{
    const regx_param_word_t *word = param->words;
    char max[24];

    json_string(param->name);
    printf(": {\"max\": ");
    separator = "";
    if (param->type == REGX_PARAM_SIZE) {
        regx_option_show_size(param->max, max, sizeof(max));
    } else {
        snprintf(max, sizeof(max), param->hexadecimal ? "0x%llx" : "%llu",
                 (unsigned long long)param->max);
    }
    json_string(max);
    printf(", \"words\": [");
    separator = "";
    for (; word != NULL && word->word != NULL; word++) {
        if (!word->absent) {
            json_string(word->word);
        }
    }
    printf("]}");
    separator = ",\n";
}

static void print_json(void)
{
    const regx_param_t *param;
    size_t layer;

    printf("{\"parameters\": {");
    separator = "\n";
    for (unsigned i = 0; (param = regx_settings_param(i, &layer)) != NULL; i++) {
        json_param(param);
    }
    printf("},\n\"report\": {");
    separator = "";
    for_each_key(report_key);
    printf("},\n\"paths\": [");
    separator = "";
    for (unsigned path = 0; path < REGX_PATH_COUNT; path++) {
        json_string(regx_path_names[path]);
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "json") == 0) {
        print_json();
    } else if (argc == 2 && strcmp(argv[1], "manual") == 0) {
        for_each_key(manual_key);
    } else {
        fprintf(stderr, "usage: describe json|manual\n");
        return EXIT_FAILURE;
    }
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
