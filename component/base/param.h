/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Parameters as tables. Each layer has a structure of its settings, and a table with a row for each of
 * its fields (REGX_PARAM_ROW). btl/settings.c lists all tables. The default and what the user reads
 * of a parameter are in mca-params/regx.conf alone.
 *
 * A value is a string for Open MPI, so that regx checks it itself: right as a whole, or refused
 * with one line that names the parameter, the value and what is allowed. (Open MPI's own integers
 * read "4Q" as 4.)
 */
#ifndef REGX_BASE_PARAM_H
#define REGX_BASE_PARAM_H

#include "base/util.h"

#define REGX_PREFIX "btl_regx_" /* before each name, as the user writes it */

/* What a value is, and the C type of the field that takes it. */
typedef enum regx_param_type {
    REGX_PARAM_WORD,   /* one of the words: an integer, an enum or a bool, the word's value */
    REGX_PARAM_NAME,   /* one of the words: const char *, the table's own word */
    REGX_PARAM_NUMBER, /* a number, or one of the words: an integer; the word's value */
    REGX_PARAM_SIZE,   /* bytes, with K, M or G, or one of the words: the same */
    REGX_PARAM_LIST,   /* anything, with commas between: const char *, NULL if empty */
    REGX_PARAM_TEXT    /* an array of char; empty for the word "none" */
} regx_param_type_t;

/* A word that a parameter allows. All strings are valid for good. */
typedef struct regx_param_word {
    const char *word;
    uint64_t value;  /* of WORD, NUMBER and SIZE */
    bool absent;     /* not in this build: refused */
    const void *row; /* what it names in another table, if it is a row of one */
} regx_param_word_t;

typedef struct regx_param {
    const char *name; /* without REGX_PREFIX */
    regx_param_type_t type;
    int level; /* of ompi_info, 1 to 9 */

    /* The range of NUMBER and SIZE. */
    uint64_t min, max;
    bool pages;       /* a multiple of the page size, and at least one page */
    bool hexadecimal; /* shown as 0x0001, and may be written so */
    /* Not NULL: names the least number in place of `min`, by the layer's settings of the rows above,
     * which are read already. */
    uint64_t (*at_least)(const void *settings);

    const regx_param_word_t *words; /* ended by one without a word; NULL: none */

    size_t offset, size; /* of the field in the layer's settings */
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

/* A row: the structure of settings, what users write before the field's name, the type, the field,
 * the level, and further fields of regx_param_t. The table ends with a row without a name. */
#define REGX_PARAM_ROW(settings, prefix, kind, field, info_level, ...)                             \
    {                                                                                              \
        .name = prefix #field, .type = REGX_PARAM_##kind, .level = info_level,                     \
        .offset = offsetof(settings, field), .size = sizeof(((settings *)NULL)->field),            \
        ##__VA_ARGS__                                                                              \
    }

/* That word's row. NULL: it is not among them, or has none. */
const void *regx_param_row(const regx_param_word_t *words, const char *text);
/* "hooks, notifier": those of the words that this build has and that are allowed where others are not
 * (NULL: all are), as far as they fit. No words (NULL): "". */
void regx_param_list(const regx_param_word_t *words, bool (*allows)(const char *word), char *list,
                     size_t size);

/* Checks `text` (NULL counts as empty) and stores the value in the layer's settings. A LIST keeps
 * the pointer. false: `error` holds the refusal. */
bool regx_param_read(const regx_param_t *param, const char *text, void *settings,
                     regx_error_t error);

/* Writes bytes as a person would: 65536 as 64K, 65537 as it is. */
void regx_option_show_size(uint64_t bytes, char *text, size_t length);

/* The line for a value that is none of those allowed (comma-separated). */
void regx_option_refuse(const char *name, const char *text, const char *allowed,
                        regx_error_t error);

/* Whether a comma-separated list has this element. */
bool regx_option_listed(const char *list, const char *element);

#endif
