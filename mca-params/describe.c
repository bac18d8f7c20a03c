/* SPDX-License-Identifier: BSD-3-Clause
 *
 * describe conf|reference|json: prints what the tables of parameters and counters say. The files
 * regx.conf and reference.md beside this one are its output (make reference writes them anew), and
 * the tests read the JSON. Not installed.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "btl/report_fields.h"
#include "btl/settings.h"

#define WIDTH 100

/* Calls `each` for the table of each room, then for that of the inherited parameters. */
static void for_each_table(void (*each)(const regx_param_table_t *table))
{
    regx_settings_room_t room;

    for (unsigned i = 0; regx_settings_room(i, &room); i++) {
        each(room.table);
    }
    each(&regx_inherited_params);
}

static const char *default_of(const regx_param_t *param)
{
    return param->initial != NULL ? param->initial : "";
}

static bool has_range(const regx_param_t *param)
{
    return param->type == REGX_PARAM_NUMBER || param->type == REGX_PARAM_SIZE;
}

static bool has_words(const regx_param_t *param)
{
    regx_param_word_t word;

    return regx_param_word_at(param, 0, &word);
}

/* "4K to 2M, ...". The caller frees it. */
static char *range_text(const regx_param_t *param)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    if (out == NULL) {
        abort();
    }
    regx_param_write_range(param, out);
    fclose(out);
    return text;
}

/* --- regx.conf --- */

/* Prints the words of `text` behind the column where the line stands, further lines from `indent`;
 * returns the column. */
static unsigned wrap(const char *text, unsigned column, unsigned indent)
{
    while (*text != '\0') {
        const unsigned length = (unsigned)strcspn(text, " ");
        unsigned shown = length; /* some letters are of two bytes */

        for (unsigned i = 0; i < length; i++) {
            shown -= ((unsigned char)text[i] & 0xc0) == 0x80;
        }
        if (column > indent && column + 1 + shown > WIDTH) {
            printf("\n#%*s", (int)indent - 1, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, text);
        column += shown;
        text += length + (text[length] == ' ');
    }
    return column;
}

static void conf_paragraph(const char *first, const char *second, const char *third)
{
    unsigned column = (unsigned)printf("# ");

    column = wrap(first, column, 2);
    column = wrap(second != NULL ? second : "", column, 2);
    wrap(third != NULL ? third : "", column, 2);
    putchar('\n');
}

/* The help of a word as a sentence begins with what it is: no full stop, unless more follows. */
static void conf_word(const char *name, const char *help, const char *more, unsigned width)
{
    const unsigned indent = 2 + 2 + width + 2;
    char *sentence = NULL;

    printf("#   %-*s", help != NULL ? (int)width : 0, name);
    if (help != NULL) {
        fputs("  ", stdout);
        if (asprintf(&sentence, "%s%s", help, more != NULL ? "." : "") < 0) {
            abort();
        }
        const unsigned column = wrap(sentence, indent, indent);
        wrap(more != NULL ? more : "", column, indent);
        free(sentence);
    }
    putchar('\n');
}

static const char *range_name(const regx_param_t *param)
{
    return param->type == REGX_PARAM_SIZE ? "SIZE" : "NUMBER";
}

static void conf_words(const regx_param_t *param)
{
    unsigned width = has_range(param) ? (unsigned)strlen(range_name(param)) : 0;
    regx_param_word_t word;

    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        width = strlen(word.word) > width ? (unsigned)strlen(word.word) : width;
    }
    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        conf_word(word.word, word.help, word.more, width);
    }
    if (has_range(param)) {
        char *range = range_text(param);

        conf_word(range_name(param), range, NULL, width);
        free(range);
    }
}

static void conf_param(const regx_param_t *param)
{
    char *range = range_text(param), *allowed = NULL;

    if (param->help != NULL) {
        putchar('\n');
        if (has_range(param) && !has_words(param) &&
            asprintf(&allowed, "Allowed: %s.", range) < 0) {
            abort();
        }
        if (has_words(param)) {
            conf_paragraph(param->help, NULL, NULL);
            conf_words(param);
            if (param->more != NULL) {
                conf_paragraph(param->more, NULL, NULL);
            }
        } else {
            conf_paragraph(param->help, allowed, param->more);
        }
    }
    printf("#" REGX_PREFIX "%s =%s%s\n", param->name, param->initial != NULL ? " " : "",
           default_of(param));
    free(range);
    free(allowed);
}

static void conf_table(const regx_param_table_t *table)
{
    int column = printf("\n# --- %s ", table->title);

    for (; column < WIDTH; column++) {
        putchar('-');
    }
    putchar('\n');
    if (table->intro != NULL) {
        printf("#\n");
        conf_paragraph(table->intro, NULL, NULL);
    }
    for (size_t i = 0; i < table->count; i++) {
        conf_param(&table->params[i]);
    }
}

static void print_conf(void)
{
    fputs(
        "# SPDX-License-Identifier: BSD-3-Clause\n"
        "#\n"
        "# regx's parameters, each with its default. Remove the # in front of a line to change it\n"
        "# here. (Made by `make reference` from the tables component/*/params.def.)\n"
        "#\n"
        "# For one job, in place of a line of this file:\n"
        "#\n"
        "#   mpirun --mca btl_regx_chunk_size 512K ...\n"
        "#\n"
        "# For everything that mpirun starts with this file as a further file of defaults:\n"
        "#\n"
        "#   export OMPI_MCA_mca_base_param_files=/path/to/regx.conf,/etc/openmpi/"
        "openmpi-mca-params.conf\n"
        "#\n"
        "# (The second name is that of your Open MPI's own file; without it, its defaults are "
        "lost.\n"
        "# What is on the command line or in the environment goes before both.) The values in\n"
        "# force, and where they come from, are shown by `ompi_info --param btl regx --level 9`.\n"
        "#\n"
        "# Sizes take K, M and G (1024, 1024² and 1024³ bytes). A value that is not allowed is\n"
        "# refused with one line that names the parameter and what is allowed; regx then takes no\n"
        "# part in the job.\n",
        stdout);
    for_each_table(conf_table);
}

/* --- reference.md --- */

/* A cell of a table, in which | would end it. */
static void cell(const char *text)
{
    for (; *text != '\0'; text++) {
        printf(*text == '|' ? "\\|" : "%c", *text);
    }
}

static void reference_param(const regx_param_t *param)
{
    const char *separator = "";
    regx_param_word_t word;

    printf("| `" REGX_PREFIX "%s` | ", param->name);
    if (param->initial != NULL) {
        printf("`%s`", param->initial);
    }
    printf(" | ");
    if (has_range(param)) {
        char *range = range_text(param);

        printf("%s", range);
        separator = "; ";
        free(range);
    }
    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        printf("%s`%s`", separator, word.word);
        separator = ", ";
    }
    printf(" | ");
    cell(param->help != NULL ? param->help : "See the row above.");
    printf(" |\n");
}

static void reference_words(const regx_param_t *param)
{
    regx_param_word_t word;

    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        printf("| `%s` | ", word.word);
        cell(word.help != NULL ? word.help : "");
        printf(" |\n");
    }
}

static void reference_table(const regx_param_table_t *table)
{
    printf("\n### %s\n\n", table->title);
    if (table->intro != NULL) {
        printf("%s\n\n", table->intro);
    }
    printf("| name | default | allowed | |\n|---|---|---|---|\n");
    for (size_t i = 0; i < table->count; i++) {
        reference_param(&table->params[i]);
    }
}

static void reference_choices(const char *title, const char *parameter)
{
    printf("\n## %s (`" REGX_PREFIX "%s`)\n\n| value | |\n|---|---|\n", title, parameter);
    reference_words(regx_settings_find(parameter));
}

static void reference_counters(const regx_counter_t *row)
{
    for (; row->name != NULL; row++) {
        printf("| `%s` | ", row->name);
        cell(row->help);
        printf(" |\n");
    }
}

static void print_reference(void)
{
    printf("<!-- SPDX-License-Identifier: BSD-3-Clause -->\n"
           "<!-- Made by `make reference` from the tables in component/. -->\n"
           "# Reference\n\n"
           "What regx understands and what it reports, as its own tables say. `regx.conf` says "
           "more of each parameter, `ompi_info --param btl regx --level 9` what is in force.\n\n"
           "## Parameters\n");
    for_each_table(reference_table);
    reference_choices("Strategies", "rendezvous");
    reference_choices("Backends", "backend");
    reference_choices("Transports", "transport");
    printf("\n## The report\n\n"
           "`btl_regx_report` names a file, to which each rank appends a line: a JSON object with "
           "these keys.\n\n"
           "| key | |\n|---|---|\n");
#define FIELD(key, type, help) printf("| `%s` | %s |\n", #key, help);
    REGX_REPORT_FIELDS(FIELD)
#undef FIELD
    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        printf("| `messages_%s`, `bytes_%s` | messages %s |\n", path->name, path->name, path->help);
    }
    reference_counters(regx_counter_table);
    reference_counters(regx_transport_counter_table);
#define TALLIES(key, row, help) printf("| `%s` | an object: %s |\n", #key, help);
    REGX_REPORT_TALLIES(TALLIES)
#undef TALLIES
}

/* --- JSON --- */

static void json_string(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            putchar('\\');
        }
        putchar(*text);
    }
    putchar('"');
}

static void json_field(const char *key, const char *text)
{
    printf("\"%s\": ", key);
    if (text != NULL) {
        json_string(text);
    } else {
        printf("null");
    }
}

static const char *const types[] = {[REGX_PARAM_INHERITED] = "inherited",
                                    [REGX_PARAM_WORD] = "word",
                                    [REGX_PARAM_NAME] = "word",
                                    [REGX_PARAM_NUMBER] = "number",
                                    [REGX_PARAM_SIZE] = "size",
                                    [REGX_PARAM_LIST] = "list",
                                    [REGX_PARAM_TEXT] = "text"};

static bool first; /* nothing stands before in the object or list that is printed */

static void separate(void)
{
    fputs(first ? "\n  " : ",\n  ", stdout);
    first = false;
}

static void json_param(const regx_param_table_t *table, const regx_param_t *param)
{
    const char *separator = "";
    regx_param_word_t word;

    separate();
    json_string(param->name);
    printf(": {");
    json_field("type", types[param->type]);
    printf(", ");
    json_field("section", table->title);
    printf(", ");
    json_field("default", param->initial);
    printf(", \"level\": %d, ", param->level);
    if (has_range(param)) {
        printf("\"min\": %llu, \"max\": %llu, \"pages\": %s, ", (unsigned long long)param->min,
               (unsigned long long)param->max, param->pages ? "true" : "false");
    }
    printf("\"words\": [");
    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        printf("%s", separator);
        json_string(word.word);
        separator = ", ";
    }
    printf("], \"built\": [");
    separator = "";
    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        if (!word.absent) {
            printf("%s", separator);
            json_string(word.word);
            separator = ", ";
        }
    }
    printf("]}");
}

static void json_table(const regx_param_table_t *table)
{
    for (size_t i = 0; i < table->count; i++) {
        json_param(table, &table->params[i]);
    }
}

static void json_key(const char *key, const char *type)
{
    separate();
    json_field(key, type);
}

static void json_counters(const regx_counter_t *row)
{
    for (; row->name != NULL; row++) {
        json_key(row->name, "NUMBER");
    }
}

/* The keys of the report in its order, and the type of each. */
static void json_report(void)
{
    char name[64];

#define FIELD(key, type, help) json_key(#key, #type);
    REGX_REPORT_FIELDS(FIELD)
#undef FIELD
    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        snprintf(name, sizeof(name), "messages_%s", path->name);
        json_key(name, "NUMBER");
        snprintf(name, sizeof(name), "bytes_%s", path->name);
        json_key(name, "NUMBER");
    }
    json_counters(regx_counter_table);
    json_counters(regx_transport_counter_table);
#define TALLIES(key, row, help) json_key(#key, "OBJECT");
    REGX_REPORT_TALLIES(TALLIES)
#undef TALLIES
}

static void print_json(void)
{
    printf("{\"parameters\": {");
    first = true;
    for_each_table(json_table);
    printf("},\n\"report\": {");
    first = true;
    json_report();
    printf("},\n\"paths\": [");
    first = true;
    for (const regx_counter_t *path = regx_paths; path->name != NULL; path++) {
        separate();
        json_string(path->name);
    }
    printf("],\n\"gone\": {");
    first = true;
#define REGX_GONE(name, sentence) json_key(#name, sentence);
#include "btl/params_gone.def"
#undef REGX_GONE
    printf("}}\n");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } kinds[] = {{"conf", print_conf}, {"reference", print_reference}, {"json", print_json}};

    for (size_t i = 0; argc == 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(argv[1], kinds[i].name) == 0) {
            kinds[i].print();
            return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
        }
    }
    fprintf(stderr, "usage: describe conf|reference|json\n");
    return EXIT_FAILURE;
}
