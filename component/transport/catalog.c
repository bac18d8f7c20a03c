/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/catalog.h"

#include "transport/counters.h"
#include "transport/shm/shm.h"

const regx_catalog_entry_t *const regx_catalog[REGX_TRANSPORT_KINDS] = {
    [REGX_ON_NODE] = &regx_shm_entry, [REGX_BETWEEN_NODES] = &regx_verbs_entry};

const regx_counter_t regx_transport_counter_table[] = {
#define REGX_COUNTER(name, help)                                                                   \
    {#name, help, REGX_COUNT, offsetof(regx_counters_t, transport[REGX_COUNTER_##name])},
#include "transport/counters.def"
#undef REGX_COUNTER
    {NULL, NULL, REGX_COUNT, 0}};

bool regx_transport_word(unsigned index, regx_param_word_t *word)
{
    if (index > REGX_TRANSPORT_KINDS) {
        return false;
    }
    *word = index > 0 ? regx_catalog[index - 1]->word : (regx_param_word_t){.word = "auto"};
    return true;
}
