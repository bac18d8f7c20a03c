/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parameters as tables. Each room describes its own in one file, ROOM/params.def, a row per
 * parameter:
 *
 *   REGX_PARAM(type, C type, name, default, level, help, further fields of regx_param_t...)
 *
 * The file is included twice: ROOM/params.h makes the structure of the room's settings from it (a
 * field per row), and ROOM/params.c the table. Everything else is read from the tables: what Open
 * MPI registers and ompi_info shows, how a value is checked and the message of a refusal, the files
 * in mca-params/, and the lists of the tests. btl/settings.c has the list of all tables.
 *
 * A value is a string for Open MPI, so that regx checks it itself: right as a whole, or refused
 * with one line that names the parameter, the value and what is allowed.
 */
#ifndef REGX_BASE_PARAM_H
#define REGX_BASE_PARAM_H

#include <stddef.h>
#include <stdio.h>

#include "base/option.h"

#define REGX_PREFIX "btl_regx_" /* before each name, as the user writes it */

/* What a value is, and the C type of the field that takes it. */
typedef enum regx_param_type {
    REGX_PARAM_INHERITED, /* Open MPI registers and reads it; here for the documentation */
    REGX_PARAM_WORD,      /* one of the words: an integer, an enum or a bool, the word's value */
    REGX_PARAM_NAME,      /* one of the words: const char *, the table's own word */
    REGX_PARAM_NUMBER,    /* a number, or one of the words: an integer; the word's value */
    REGX_PARAM_SIZE,      /* bytes, with K, M or G, or one of the words: likewise */
    REGX_PARAM_LIST,      /* words with commas between them: const char *, NULL if empty */
    REGX_PARAM_TEXT       /* an array of char; empty for the word "none" */
} regx_param_type_t;

/* A word that a parameter allows. All strings are valid for good. */
typedef struct regx_param_word {
    const char *word;
    uint64_t value;     /* of WORD, NUMBER and SIZE */
    const char *help;   /* what it means */
    const char *more;   /* for the documentation only, or NULL */
    bool absent;        /* not in this build: documented, and refused */
    const char *former; /* an old word for it: accepted for one release, and not shown; or NULL */
} regx_param_word_t;

typedef struct regx_param {
    const char *name; /* without REGX_PREFIX */
    regx_param_type_t type;
    const char *initial; /* the default; NULL: nothing */
    int level;           /* of ompi_info, 1 to 9 */
    const char *help;    /* full sentences; NULL: the row above is about this one, too */
    const char *more;    /* for the documentation only, or NULL */
    const char *unit;    /* of a number, or NULL */

    /* The range of NUMBER and SIZE. */
    uint64_t min, max;
    bool pages;           /* a multiple of the page size, and at least one page */
    bool hexadecimal;     /* shown as 0x0001, and may be written so */
    const char *min_name; /* how the documentation names the minimum, if not by number */
    /* Narrows the range by the room's settings of the rows above, which are read already. */
    void (*narrow)(const void *settings, regx_option_range_t *range);

    /* The words, ended by one without a word; or the function that names them, by their index
     * from 0 (false: there are no more), where they are the rows of another table. */
    const regx_param_word_t *words;
    bool (*word_at)(unsigned index, regx_param_word_t *word);
    /* A word that is refused with a sentence of its own, which names what replaces it; or NULL. */
    const char *gone, *instead;

    size_t offset, size; /* of the field in the room's settings */
} regx_param_t;

/* The words of a row. */
#define REGX_WORDS(...)                                                                            \
    (const regx_param_word_t[])                                                                    \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .word = NULL                                                                           \
        }                                                                                          \
    }

/* For ROOM/params.h and ROOM/params.c: what a row becomes there. */
#define REGX_PARAM_FIELD(ctype, field) ctype field;
#define REGX_PARAM_ROW(settings, prefix, kind, field, text, info_level, help_text, ...)            \
    {.name = prefix #field,                                                                        \
     .type = REGX_PARAM_##kind,                                                                    \
     .initial = text,                                                                              \
     .level = info_level,                                                                          \
     .help = help_text,                                                                            \
     .offset = offsetof(settings, field),                                                          \
     .size = sizeof(((settings *)NULL)->field),                                                    \
     ##__VA_ARGS__},

/* The parameters of a room. */
typedef struct regx_param_table {
    const char *title; /* of their section in the documentation */
    const char *intro; /* said of all of them, or NULL */
    const regx_param_t *params;
    size_t count;
} regx_param_table_t;

/* false: there are no more words. */
bool regx_param_word_at(const regx_param_t *param, unsigned index, regx_param_word_t *word);
/* "hooks, notifier": those of the words that are allowed where others are not, as far as they fit.
 */
void regx_param_list(bool (*word_at)(unsigned index, regx_param_word_t *word),
                     bool (*allows)(const char *word), char *list, size_t size);

/* Checks `text` (NULL counts as empty) and stores the value in the room's settings. A LIST keeps
 * the pointer. false: `error` holds the refusal. */
bool regx_param_read(const regx_param_t *param, const char *text, void *settings,
                     char error[REGX_OPTION_ERROR]);

/* What is allowed besides words: "4K to 2M, a multiple of the page size", or nothing. */
void regx_param_write_range(const regx_param_t *param, FILE *out);

/* The help as ompi_info shows it: the sentences, then what is allowed. The caller frees it; NULL:
 * no memory. */
char *regx_param_help(const regx_param_t *param);

#endif
