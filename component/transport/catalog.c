/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/catalog.h"

#include <string.h>

#include "transport/counters.h"

static const regx_catalog_row_t rows[REGX_TRANSPORT_KINDS] = {
#define REGX_TRANSPORT_ROW(word, settings, entry)                                                  \
    {&entry, offsetof(regx_transports_settings_t, word)},
    REGX_TRANSPORTS(REGX_TRANSPORT_ROW)
#undef REGX_TRANSPORT_ROW
};

const regx_counter_t regx_transport_counter_table[] = {
#define REGX_COUNTER(name, help)                                                                   \
    {#name, help, REGX_COUNT, offsetof(regx_counters_t, transport[REGX_COUNTER_##name])},
#include "transport/counters.def"
#undef REGX_COUNTER
    {NULL, NULL, REGX_COUNT, 0}};

const regx_catalog_row_t *regx_catalog_row(unsigned index)
{
    return index < REGX_TRANSPORT_KINDS ? &rows[index] : NULL;
}

const regx_catalog_row_t *regx_catalog_find(const char *word)
{
    const regx_catalog_row_t *row;

    for (unsigned i = 0; (row = regx_catalog_row(i)) != NULL; i++) {
        if (strcmp(row->entry->word.word, word) == 0) {
            return row;
        }
    }
    return NULL;
}

const regx_catalog_row_t *regx_catalog_everywhere(void)
{
    const regx_catalog_row_t *row;

    for (unsigned i = 0; (row = regx_catalog_row(i)) != NULL; i++) {
        if (row->entry->everywhere) {
            return row;
        }
    }
    return NULL;
}

bool regx_transport_word(unsigned index, regx_param_word_t *word)
{
    const regx_catalog_row_t *row = index > 0 ? regx_catalog_row(index - 1) : NULL;

    if (index == 0) {
        *word = (regx_param_word_t){
            .word = "auto",
            .help = "uct, and verbs for peers on other nodes if there are any and a port of an "
                    "RDMA device reaches them",
            .more = "The report (transport, transport_reason) and --mca btl_base_verbose 10 show "
                    "whether verbs is used, and the reason; btl_base_verbose 20 shows which "
                    "transport is used for which peer."};
    } else if (row != NULL) {
        *word = row->entry->word;
    }
    return index == 0 || row != NULL;
}
