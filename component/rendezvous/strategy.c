/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/recv.h"

#include <string.h>

static const regx_strategy_t *const strategies[] = {&regx_strategy_auto,
#define STRATEGY(name, help) &regx_strategy_##name,
                                                    REGX_RENDEZVOUS_PATHS(STRATEGY)
#undef STRATEGY
};

enum { STRATEGIES = sizeof(strategies) / sizeof(strategies[0]) };

bool regx_strategy_word(unsigned index, regx_param_word_t *word)
{
    if (index >= STRATEGIES) {
        return false;
    }
    *word = (regx_param_word_t){.word = strategies[index]->name};
    return true;
}

const regx_strategy_t *regx_strategy_find(const char *name)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strcmp(strategies[i]->name, name) == 0) {
            return strategies[i];
        }
    }
    return NULL;
}

const regx_strategy_t *const regx_strategy_of_path[REGX_PATH_COUNT] = {
#define STRATEGY(name, help) [REGX_PATH_##name] = &regx_strategy_##name,
    REGX_RENDEZVOUS_PATHS(STRATEGY)
#undef STRATEGY
};

/* ---- parameters ---- */

const regx_param_t regx_rndv_params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_rndv_settings_t, "", type, field, __VA_ARGS__)
#include "rendezvous/rendezvous_params.def"
    {.name = NULL}};
