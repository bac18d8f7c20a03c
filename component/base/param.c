/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/param.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALLOWED_MAX 160 /* room for the words of one parameter */

/* ---- numbers and lists ---- */

void regx_option_show_size(uint64_t bytes, char *text, size_t length)
{
    static const char suffixes[] = "GMK";

    for (unsigned i = 0; i < 3; i++) {
        const unsigned shift = 30 - 10 * i;

        if (bytes >> shift != 0 && (bytes & ((UINT64_C(1) << shift) - 1)) == 0) {
            snprintf(text, length, "%" PRIu64 "%c", bytes >> shift, suffixes[i]);
            return;
        }
    }
    snprintf(text, length, "%" PRIu64, bytes);
}

static void show(const regx_param_t *param, uint64_t value, char *text, size_t length)
{
    if (param->type == REGX_PARAM_SIZE) {
        regx_option_show_size(value, text, length);
    } else {
        snprintf(text, length, param->hexadecimal ? "0x%04" PRIx64 : "%" PRIu64, value);
    }
}

/* Reads digits and, for a size, one suffix. false: something else is there, or it is too large; or it begins
 * with 0, as numbers do that Open MPI, for its own parameters, takes for octal. */
static bool parse(const char *text, const regx_param_t *param, uint64_t *value)
{
    const bool prefixed = param->hexadecimal && text[0] == '0' && (text[1] | 0x20) == 'x';
    char *end;

    if (!isdigit((unsigned char)text[0]) || (text[0] == '0' && isdigit((unsigned char)text[1]))) {
        return false;
    }
    errno = 0;
    *value = strtoull(text, &end, prefixed ? 16 : 10);
    if (errno != 0) {
        return false;
    }
    if (param->type == REGX_PARAM_SIZE && *end != '\0') {
        const char *const suffixes = "KMG";
        const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
        const unsigned shift = suffix != NULL ? 10 * (unsigned)(suffix - suffixes + 1) : 0;

        if (shift == 0 || *value > UINT64_MAX >> shift) {
            return false;
        }
        *value <<= shift;
        end++;
    }
    return *end == '\0';
}

void regx_option_refuse(const char *name, const char *text, const char *allowed, regx_error_t error)
{
    snprintf(error, REGX_ERROR, "%s=%s is not known; allowed: %s", name, text, allowed);
}

bool regx_option_listed(const char *list, const char *element)
{
    while (list != NULL && *list != '\0') {
        const size_t length = strcspn(list, ",");

        if (strlen(element) == length && strncmp(element, list, length) == 0) {
            return true;
        }
        list += length + (list[length] == ',');
    }
    return false;
}

/* ---- words ---- */

void regx_param_list(const regx_param_word_t *words, bool (*allows)(const char *word), char *list,
                     size_t size)
{
    size_t used = 0;

    list[0] = '\0';
    for (; words != NULL && words->word != NULL; words++) {
        if (!words->absent && (allows == NULL || allows(words->word)) && used < size) {
            used += (size_t)snprintf(list + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     words->word);
        }
    }
}

/* NULL: it is none of them. */
static const regx_param_word_t *find_word(const regx_param_word_t *words, const char *text)
{
    for (; words != NULL && words->word != NULL; words++) {
        if (!words->absent && strcmp(words->word, text) == 0) {
            return words;
        }
    }
    return NULL;
}

const void *regx_param_row(const regx_param_word_t *words, const char *text)
{
    const regx_param_word_t *word = find_word(words, text);

    return word != NULL ? word->row : NULL;
}

/* ---- reading ---- */

/* Stores the lower bytes of a number, as many as the field has. */
static void store(const regx_param_t *param, uint64_t value, char *field)
{
    const size_t first = htole64(1) == 1 ? 0 : sizeof(value) - param->size;

    memcpy(field, (const char *)&value + first, param->size);
}

static bool read_number(const regx_param_t *param, const char *name, const char *text,
                        void *settings, regx_error_t error)
{
    const uint64_t step = param->pages ? regx_page_size() : 1;
    uint64_t min = param->pages ? regx_max(param->min, step) : param->min;
    char least[24], most[24], unit[24], words[64]; /* beside numbers there are few */
    const char *fault = NULL;
    uint64_t value;

    if (param->at_least != NULL) {
        min = param->at_least(settings);
    }
    if (!parse(text, param, &value)) {
        fault = param->type == REGX_PARAM_SIZE ? "is not a size" : "is not a number";
    } else if (value > param->max) {
        fault = "is above the cap";
    } else if (value < min) {
        fault = "is too small";
    } else if (value % step != 0) {
        fault = "does not divide evenly";
    }
    if (fault == NULL) {
        store(param, value, (char *)settings + param->offset);
        return true;
    }
    show(param, min, least, sizeof(least));
    show(param, param->max, most, sizeof(most));
    show(param, step, unit, sizeof(unit));
    regx_param_list(param->words, NULL, words, sizeof(words));
    snprintf(error, REGX_ERROR, "%s=%s %s; allowed: %s to %s%s%s%s%s", name, text, fault, least,
             most, step > 1 ? ", multiples of " : "", step > 1 ? unit : "",
             words[0] != '\0' ? ", " : "", words);
    return false;
}

bool regx_param_read(const regx_param_t *param, const char *text, void *settings,
                     regx_error_t error)
{
    char *field = (char *)settings + param->offset, name[64], words[ALLOWED_MAX];

    text = text != NULL ? text : "";
    snprintf(name, sizeof(name), REGX_PREFIX "%s", param->name);
    if (param->type == REGX_PARAM_LIST) {
        text = text[0] != '\0' ? text : NULL;
        memcpy(field, &text, sizeof(text));
        return true;
    }
    if (param->type == REGX_PARAM_TEXT) {
        if (strlen(text) >= param->size) {
            snprintf(error, REGX_ERROR, "%s is too long; allowed: %zu characters", name,
                     param->size - 1);
            return false;
        }
        strcpy(field, strcmp(text, "none") == 0 ? "" : text);
        return true;
    }
    const regx_param_word_t *word = find_word(param->words, text);
    if (word != NULL && param->type == REGX_PARAM_NAME) {
        memcpy(field, &word->word, sizeof(word->word));
        return true;
    }
    if (word != NULL) {
        store(param, word->value, field);
        return true;
    }
    if (param->type == REGX_PARAM_NUMBER || param->type == REGX_PARAM_SIZE) {
        return read_number(param, name, text, settings, error);
    }
    regx_param_list(param->words, NULL, words, sizeof(words));
    regx_option_refuse(name, text, words, error);
    return false;
}
