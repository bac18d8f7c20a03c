/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parameters whose names nobody registered: a misspelt btl_regx_rendevous changes nothing, and Open
 * MPI does not say so. What mpirun was given is in the environment; Open MPI keeps what it read from
 * files to itself, so they are read again. A name may be of another release, in a file for a whole
 * site: the job goes on.
 */
#include <stdlib.h>
#include <string.h>

#include "btl/component.h"

#define IN_ENVIRONMENT "OMPI_MCA_"
#define NAME 64    /* room for a name; a longer one is cut off, and known to nobody */
#define TOLD_MAX 8 /* names that are told of */

typedef struct told {
    const mca_base_component_t *component; /* regx's */
    char names[TOLD_MAX][NAME];
    unsigned count;
} told_t;

/* How many characters have to be put in, taken out or replaced to make one name of the other. */
static unsigned distance(const char *one, const char *other)
{
    const size_t length = strlen(other);
    unsigned row[NAME];

    for (unsigned j = 0; j <= length; j++) {
        row[j] = j;
    }
    for (; *one != '\0'; one++) {
        unsigned diagonal = row[0]++;

        for (size_t j = 0; j < length; j++) {
            const unsigned above = row[j + 1], changed = diagonal + (*one != other[j]);

            row[j + 1] = (unsigned)regx_min(regx_min(above, row[j]) + 1, changed);
            diagonal = above;
        }
    }
    return row[length];
}

static bool is_ours(const char *name)
{
    return strncmp(name, REGX_PREFIX, strlen(REGX_PREFIX)) == 0;
}

/* Of all that are registered, also by Open MPI for every BTL. */
static const char *nearest(const char *name)
{
    const char *best = REGX_PREFIX "rendezvous";
    const mca_base_var_t *variable;

    for (int i = 0; i < mca_base_var_get_count(); i++) {
        if (mca_base_var_get(i, &variable) == OPAL_SUCCESS && is_ours(variable->mbv_full_name) &&
            strlen(variable->mbv_full_name) < NAME &&
            distance(name, variable->mbv_full_name) < distance(name, best)) {
            best = variable->mbv_full_name;
        }
    }
    return best;
}

/* Each name once: it may be in the environment and in several files. */
static void tell(told_t *told, const char *text, size_t length)
{
    regx_error_t line;
    char name[NAME];

    snprintf(name, sizeof(name), "%.*s", (int)regx_min(length, NAME), text);
    if (!is_ours(name) || told->count == TOLD_MAX ||
        mca_base_var_find("opal", "btl", "regx", name + strlen(REGX_PREFIX)) >= 0) {
        return;
    }
    for (unsigned i = 0; i < told->count; i++) {
        if (strcmp(told->names[i], name) == 0) {
            return;
        }
    }
    strcpy(told->names[told->count++], name);
    snprintf(line, sizeof(line), "%s is not a parameter, and is ignored; the nearest name is %s",
             name, nearest(name));
    if (regx_compat_has_to_print(told->component, line)) {
        regx_compat_output("%s", line);
    }
}

/* NAME = VALUE, or as mpirun has it (--tune): --mca NAME VALUE, several of them and of other options.
 * All else is a comment, or empty. */
static void read_line(told_t *told, char *line)
{
    char *rest = NULL, *word = strtok_r(line, " \t\n", &rest);

    if (word != NULL && *word != '-') {
        tell(told, word, strcspn(word, "="));
        return;
    }
    while (word != NULL) {
        const bool names = strcmp(word, "-mca") == 0 || strcmp(word, "--mca") == 0;

        word = strtok_r(NULL, " \t\n", &rest);
        if (names && word != NULL) {
            tell(told, word, strlen(word));
        }
    }
}

/* One that cannot be read Open MPI does not read either. */
static void read_file(told_t *told, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t size = 0;

    while (file != NULL && getline(&line, &size, file) >= 0) {
        read_line(told, line);
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
}

/* Open MPI writes a list with commas, and reads one with colons, too. */
static void read_files(told_t *told, const char *variable)
{
    mca_base_var_source_t source;
    const char *const *stored = regx_param_stored("opal", "mca", "base", variable, &source);
    char *list = stored != NULL && *stored != NULL ? strdup(*stored) : NULL, *rest = list, *path;

    while ((path = strsep(&rest, ",:")) != NULL) {
        read_file(told, path);
    }
    free(list);
}

void regx_params_warn_of_unknown(const mca_base_component_t *component)
{
    told_t told = {.component = component};

    if (!regx_compat_prints()) {
        return;
    }
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, IN_ENVIRONMENT, strlen(IN_ENVIRONMENT)) == 0) {
            const char *name = *entry + strlen(IN_ENVIRONMENT);

            tell(&told, name, strcspn(name, "="));
        }
    }
    read_files(&told, "param_files");
    read_files(&told, "override_param_file");
    read_files(&told, "envar_file_prefix"); /* mpirun --tune, where it hands on no more */
}
