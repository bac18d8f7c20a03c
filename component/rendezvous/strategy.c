/* SPDX-License-Identifier: BSD-3-Clause */
#include "rendezvous/strategy.h"

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

const regx_strategy_t *regx_strategy_copying(const regx_strategy_t *strategy,
                                             const regx_auto_choice_t *choice)
{
    if (strategy->copies) {
        return strategy;
    }
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strategies[i]->protocol != NULL && strategies[i]->copies &&
            memchr(choice->path, (int)strategies[i]->path, sizeof(choice->path)) != NULL) {
            return strategies[i];
        }
    }
    return NULL;
}

const char *regx_strategy_name(const regx_strategy_t *strategy)
{
    return strategy->name;
}

bool regx_strategy_is_revocable(const regx_strategy_t *strategy)
{
    return strategy->revocable;
}

void regx_strategy_protocols(const regx_protocol_t *protocols[REGX_PATH_COUNT])
{
    memset(protocols, 0, REGX_PATH_COUNT * sizeof(protocols[0]));
    for (size_t i = 0; i < STRATEGIES; i++) {
        if (strategies[i]->protocol != NULL) {
            protocols[strategies[i]->path] = strategies[i]->protocol;
        }
    }
}
