/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Auto's choice as text, "32K:together,1M:read": from which size on which strategy. What is written
 * can be given as btl_regx_auto_choice, and is then read.
 */
#include <stdio.h>
#include <string.h>

#include "rendezvous/auto.h"
#include "rendezvous/strategy.h"

#define NAME REGX_PREFIX "auto_choice"

static uint64_t size_of(unsigned number)
{
    return REGX_AUTOTUNE_SMALLEST << number;
}

/* "together"; NULL: no strategy that always takes the same path. */
static const regx_strategy_t *find(const char *name)
{
    const regx_strategy_t *strategy = regx_strategy_find(name);

    return strategy != NULL && strategy->protocol != NULL ? strategy : NULL;
}

/* "32K:together" */
static bool read_one(const char *element, unsigned *number, regx_path_t *path)
{
    static const regx_option_range_t range = {.min = REGX_AUTOTUNE_SMALLEST,
                                              .max = REGX_AUTOTUNE_SMALLEST
                                                     << (REGX_AUTOTUNE_SIZES - 1),
                                              .step = 1,
                                              .size = true};
    const char *colon = strchr(element, ':');
    const regx_strategy_t *strategy = colon != NULL ? find(colon + 1) : NULL;
    char size[32], error[REGX_OPTION_ERROR];
    uint64_t bytes;

    if (strategy == NULL || (size_t)(colon - element) >= sizeof(size)) {
        return false;
    }
    snprintf(size, sizeof(size), "%.*s", (int)(colon - element), element);
    if (!regx_option_number(NAME, size, &range, &bytes, error)) {
        return false;
    }
    *number = regx_autotune_size(bytes);
    *path = strategy->path;
    return size_of(*number) == bytes;
}

static void refuse(const char *element, char error[REGX_OPTION_ERROR])
{
    regx_param_word_t word;
    char allowed[REGX_OPTION_ERROR], min[24], max[24];
    size_t used = 0;

    regx_option_show_size(size_of(0), min, sizeof(min));
    regx_option_show_size(size_of(REGX_AUTOTUNE_SIZES - 1), max, sizeof(max));
    used +=
        (size_t)snprintf(allowed, sizeof(allowed),
                         "SIZE:STRATEGY, ascending, a power of two from %s to %s and", min, max);
    for (unsigned i = 0; regx_strategy_word(i, &word); i++) {
        if (find(word.word) != NULL && used < sizeof(allowed)) {
            used += (size_t)snprintf(allowed + used, sizeof(allowed) - used, " %s", word.word);
        }
    }
    regx_option_refuse(NAME, element, allowed, error);
}

bool regx_auto_choice_read(const char *text, regx_auto_choice_t *choice,
                           char error[REGX_OPTION_ERROR])
{
    unsigned before = 0;

    memset(choice, 0, sizeof(*choice));
    while (text != NULL && *text != '\0') {
        const size_t length = strcspn(text, ",");
        char element[64];
        unsigned number;
        regx_path_t path;

        snprintf(element, sizeof(element), "%.*s", (int)length, text);
        if (!read_one(element, &number, &path) || (choice->path[before] != 0 && number <= before)) {
            refuse(element, error);
            return false;
        }
        memset(choice->path + number, (int)path, REGX_AUTOTUNE_SIZES - number);
        before = number;
        text += length + (text[length] == ',' && text[length + 1] != '\0');
    }
    return true;
}

/* Of a kind of wire; false: nothing was found. */
static bool write_locked(const regx_rndv_t *rndv, regx_auto_wire_t wire,
                         char text[REGX_AUTO_CHOICE])
{
    regx_path_t before = REGX_PATH_COUNT;
    size_t used = 0;
    unsigned candidate;

    text[0] = '\0';
    for (unsigned i = 0; i < REGX_AUTOTUNE_SIZES && used < REGX_AUTO_CHOICE; i++) {
        char size[24];

        if (!regx_autotune_outcome(&rndv->autotune[wire][i], &candidate) ||
            regx_auto_path(wire, candidate) == before) {
            continue;
        }
        before = regx_auto_path(wire, candidate);
        regx_option_show_size(size_of(i), size, sizeof(size));
        used += (size_t)snprintf(text + used, REGX_AUTO_CHOICE - used, "%s%s:%s",
                                 used > 0 ? "," : "", size, regx_path_name(before));
    }
    return used > 0;
}

bool regx_auto_choice_write(regx_rndv_t *rndv, char text[REGX_AUTO_CHOICE])
{
    regx_lock(&rndv->lock);
    const bool found =
        write_locked(rndv, REGX_AUTO_NODE, text) || write_locked(rndv, REGX_AUTO_APART, text);
    regx_unlock(&rndv->lock);
    return found;
}
