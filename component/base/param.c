/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/param.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define ALLOWED_MAX 160 /* room for the words of one parameter */

bool regx_param_word_at(const regx_param_t *param, unsigned index, regx_param_word_t *word)
{
    if (param->word_at != NULL) {
        return param->word_at(index, word);
    }
    if (param->words == NULL || param->words[index].word == NULL) {
        return false;
    }
    *word = param->words[index];
    return true;
}

/* Returns how long the list then is, or would be if there were room. */
static size_t append_word(char *list, size_t size, size_t used, const char *word)
{
    return used < size ? used + (size_t)snprintf(list + used, size - used, "%s%s",
                                                 used > 0 ? ", " : "", word)
                       : used;
}

/* "auto, none": the words that this build has. */
static void list_words(const regx_param_t *param, char text[ALLOWED_MAX])
{
    regx_param_word_t word;
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
        used = word.absent ? used : append_word(text, ALLOWED_MAX, used, word.word);
    }
}

void regx_param_list(bool (*word_at)(unsigned index, regx_param_word_t *word),
                     bool (*allows)(const char *word), char *list, size_t size)
{
    regx_param_word_t word;
    size_t used = 0;

    list[0] = '\0';
    for (unsigned i = 0; word_at(i, &word); i++) {
        used = allows(word.word) ? append_word(list, size, used, word.word) : used;
    }
}

static bool is(const char *word, const char *text, size_t length)
{
    return word != NULL && strlen(word) == length && strncmp(word, text, length) == 0;
}

static bool find_word(const regx_param_t *param, const char *text, size_t length,
                      regx_param_word_t *word)
{
    for (unsigned i = 0; regx_param_word_at(param, i, word); i++) {
        if (!word->absent && (is(word->word, text, length) || is(word->former, text, length))) {
            return true;
        }
    }
    return false;
}

static void full_name(const regx_param_t *param, char *name, size_t size)
{
    snprintf(name, size, REGX_PREFIX "%s", param->name);
}

static void store(const regx_param_t *param, uint64_t value, char *field)
{
    const uint8_t value8 = (uint8_t)value;
    const uint16_t value16 = (uint16_t)value;
    const uint32_t value32 = (uint32_t)value;

    switch (param->size) {
    case sizeof(value8):
        memcpy(field, &value8, sizeof(value8));
        break;
    case sizeof(value16):
        memcpy(field, &value16, sizeof(value16));
        break;
    case sizeof(value32):
        memcpy(field, &value32, sizeof(value32));
        break;
    default:
        assert(param->size == sizeof(value));
        memcpy(field, &value, sizeof(value));
    }
}

static void store_pointer(const char *text, char *field)
{
    memcpy(field, &text, sizeof(text));
}

static bool refuse_word(const regx_param_t *param, const char *text, const char *suffix,
                        char error[REGX_OPTION_ERROR])
{
    char name[64], words[ALLOWED_MAX], allowed[ALLOWED_MAX + 32];

    full_name(param, name, sizeof(name));
    list_words(param, words);
    snprintf(allowed, sizeof(allowed), "%s%s", words, suffix);
    if (param->gone != NULL && strcmp(text, param->gone) == 0) {
        snprintf(error, REGX_OPTION_ERROR, "%s=%s: %s", name, param->gone, param->instead);
        return false;
    }
    regx_option_refuse(name, text, allowed, error);
    return false;
}

static regx_option_range_t range_of(const regx_param_t *param)
{
    const uint64_t page = regx_page_size();

    return (regx_option_range_t){.min = param->pages && param->min < page ? page : param->min,
                                 .max = param->max,
                                 .step = param->pages ? page : 1,
                                 .size = param->type == REGX_PARAM_SIZE,
                                 .hexadecimal = param->hexadecimal};
}

static bool read_number(const regx_param_t *param, const char *text, void *settings, char *field,
                        char error[REGX_OPTION_ERROR])
{
    regx_option_range_t range = range_of(param);
    char name[64], words[ALLOWED_MAX];
    uint64_t value;

    if (param->narrow != NULL) {
        param->narrow(settings, &range);
    }
    full_name(param, name, sizeof(name));
    list_words(param, words);
    range.words = words[0] != '\0' ? words : NULL;
    if (!regx_option_number(name, text, &range, &value, error)) {
        return false;
    }
    store(param, value, field);
    return true;
}

/* Each element must be one of the words, if there are any. */
static bool check_list(const regx_param_t *param, const char *list, char error[REGX_OPTION_ERROR])
{
    regx_param_word_t word;
    char element[64];

    if (!regx_param_word_at(param, 0, &word)) {
        return true;
    }
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");

        if (!find_word(param, list, length, &word)) {
            snprintf(element, sizeof(element), "%.*s", (int)length, list);
            return refuse_word(param, element, ", comma-separated", error);
        }
        list += length + (list[length] == ',');
    }
    return true;
}

static bool read_text(const regx_param_t *param, const char *text, char *field,
                      char error[REGX_OPTION_ERROR])
{
    if (strlen(text) >= param->size) {
        snprintf(error, REGX_OPTION_ERROR, REGX_PREFIX "%s is too long; allowed: %zu characters",
                 param->name, param->size - 1);
        return false;
    }
    strcpy(field, strcmp(text, "none") == 0 ? "" : text);
    return true;
}

bool regx_param_read(const regx_param_t *param, const char *text, void *settings,
                     char error[REGX_OPTION_ERROR])
{
    char *field = (char *)settings + param->offset;
    regx_param_word_t word = {.word = NULL};

    if (text == NULL) {
        text = "";
    }
    switch (param->type) {
    case REGX_PARAM_WORD:
    case REGX_PARAM_NAME:
    case REGX_PARAM_NUMBER:
    case REGX_PARAM_SIZE:
        if (find_word(param, text, strlen(text), &word)) {
            if (param->type == REGX_PARAM_NAME) {
                store_pointer(word.word, field);
            } else {
                store(param, word.value, field);
            }
            return true;
        }
        return param->type == REGX_PARAM_NUMBER || param->type == REGX_PARAM_SIZE
                   ? read_number(param, text, settings, field, error)
                   : refuse_word(param, text, "", error);
    case REGX_PARAM_LIST:
        store_pointer(text[0] != '\0' ? text : NULL, field);
        return check_list(param, text, error);
    case REGX_PARAM_TEXT:
        return read_text(param, text, field, error);
    case REGX_PARAM_INHERITED:
        break;
    }
    return true;
}

void regx_param_write_range(const regx_param_t *param, FILE *out)
{
    const bool size = param->type == REGX_PARAM_SIZE;
    char min[24], max[24];

    if (!size && param->type != REGX_PARAM_NUMBER) {
        return;
    }
    if (size) {
        regx_option_show_size(param->min, min, sizeof(min));
        regx_option_show_size(param->max, max, sizeof(max));
    } else {
        const char *const form = param->hexadecimal ? "0x%04" PRIx64 : "%" PRIu64;

        snprintf(min, sizeof(min), form, param->min);
        snprintf(max, sizeof(max), form, param->max);
    }
    fprintf(out, "%s to %s%s%s%s",
            param->min_name != NULL           ? param->min_name
            : param->pages && param->min == 0 ? "a page"
                                              : min,
            max, param->unit != NULL ? " " : "", param->unit != NULL ? param->unit : "",
            param->pages ? ", a multiple of the page size" : "");
}

char *regx_param_help(const regx_param_t *param)
{
    const bool number = param->type == REGX_PARAM_NUMBER || param->type == REGX_PARAM_SIZE;
    const char *separator = number ? "; " : "";
    regx_param_word_t word;
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    if (out == NULL) {
        return NULL;
    }
    fputs(param->help, out);
    if (number || regx_param_word_at(param, 0, &word)) {
        fputs(param->type == REGX_PARAM_LIST ? " Allowed, comma-separated: " : " Allowed: ", out);
        regx_param_write_range(param, out);
        for (unsigned i = 0; regx_param_word_at(param, i, &word); i++) {
            fprintf(out, "%s%s%s%s%s", separator, word.word, word.help != NULL ? " (" : "",
                    word.help != NULL ? word.help : "", word.help != NULL ? ")" : "");
            separator = "; ";
        }
        fputc('.', out);
    }
    return fclose(out) == 0 ? text : NULL;
}
