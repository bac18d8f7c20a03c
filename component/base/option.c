/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/option.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void show(const regx_option_range_t *range, uint64_t value, char *text, size_t length)
{
    if (range->size) {
        regx_option_show_size(value, text, length);
    } else if (range->hexadecimal) {
        snprintf(text, length, "0x%04" PRIx64, value);
    } else {
        snprintf(text, length, "%" PRIu64, value);
    }
}

/* Reads digits and, for a size, one suffix. false: something else is there, or it is too large. */
static bool parse(const char *text, const regx_option_range_t *range, uint64_t *value)
{
    const bool prefixed = range->hexadecimal && text[0] == '0' && (text[1] | 0x20) == 'x';
    char *end;

    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    errno = 0;
    *value = strtoull(text, &end, prefixed ? 16 : 10);
    if (errno != 0) {
        return false;
    }
    if (range->size && *end != '\0') {
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

bool regx_option_number(const char *name, const char *text, const regx_option_range_t *range,
                        uint64_t *value, char error[REGX_OPTION_ERROR])
{
    const char *fault = NULL;
    char min[24], max[24], step[24];

    if (!parse(text, range, value)) {
        fault = range->size ? "is not a size" : "is not a number";
    } else if (*value > range->max) {
        fault = "is above the cap";
    } else if (*value < range->min) {
        fault = "is too small";
    } else if (*value % range->step != 0) {
        fault = "does not divide evenly";
    }
    if (fault == NULL) {
        return true;
    }
    show(range, range->min, min, sizeof(min));
    show(range, range->max, max, sizeof(max));
    show(range, range->step, step, sizeof(step));
    snprintf(error, REGX_OPTION_ERROR, "%s=%s %s; allowed: %s to %s%s%s%s%s", name, text, fault,
             min, max, range->step > 1 ? ", multiples of " : "", range->step > 1 ? step : "",
             range->words != NULL ? ", " : "", range->words != NULL ? range->words : "");
    return false;
}

void regx_option_refuse(const char *name, const char *text, const char *allowed,
                        char error[REGX_OPTION_ERROR])
{
    snprintf(error, REGX_OPTION_ERROR, "%s=%s is not known; allowed: %s", name, text, allowed);
}

bool regx_option_listed(const char *list, const char *element)
{
    const size_t length = strlen(element);

    while (list != NULL && *list != '\0') {
        const size_t size = strcspn(list, ",");

        if (size == length && strncmp(list, element, length) == 0) {
            return true;
        }
        list += size + (list[size] == ',');
    }
    return false;
}
