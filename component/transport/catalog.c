/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include "transport/catalog.h"

#include "transport/counters.h"

static const regx_catalog_entry_t entries[] = {
    {.word = {.word = "uct",
              .help = "shared memory between processes of one node, and tcp between nodes",
              .more = "Which of them: btl_regx_uct_tls. Which network: btl_regx_if_include, "
                      "btl_regx_if_exclude."},
     .params = &regx_mux_params,
     .offset = offsetof(regx_transports_settings_t, uct),
     .remedy = "btl_regx_if_include, btl_regx_if_exclude and btl_regx_uct_tls must leave a network "
               "that leads there"},
    {.word = {.word = "verbs",
              .absent = !REGX_HAVE_VERBS,
              .help = "ports of RDMA devices: InfiniBand, RoCE, Soft-RoCE; also between processes "
                      "of one node",
              .more = "Which: btl_regx_if_include, btl_regx_if_exclude. How: btl_regx_verbs_*. "
                      "Several carry each message together. It pins 5.4 MB for each port, 2.2 MB "
                      "where less than 256 MiB may be locked, and the pool, in each process. "
                      "Where regx was built without rdma-core (libibverbs), or the machine has no "
                      "device, one line says so and regx is not used."},
     .params = &regx_verbs_params,
     .offset = offsetof(regx_transports_settings_t, verbs),
     .remedy = "btl_regx_if_include and btl_regx_if_exclude must leave two ports that share a "
               "subnet (InfiniBand prefix, RoCE network; or set btl_regx_verbs_any_subnet=1), a "
               "partition (btl_regx_verbs_pkey) and a kind of GID (btl_regx_verbs_gid_index)"},
};

const regx_counter_t regx_transport_counter_table[] = {
#define REGX_COUNTER(name, help)                                                                   \
    {#name, help, REGX_COUNT, offsetof(regx_counters_t, transport[REGX_COUNTER_##name])},
#include "transport/counters.def"
#undef REGX_COUNTER
    {NULL, NULL, REGX_COUNT, 0}};

const regx_catalog_entry_t *regx_catalog_entry(unsigned index)
{
    return index < sizeof(entries) / sizeof(entries[0]) ? &entries[index] : NULL;
}

bool regx_transport_word(unsigned index, regx_param_word_t *word)
{
    const regx_catalog_entry_t *entry = index > 0 ? regx_catalog_entry(index - 1) : NULL;

    if (index == 0) {
        *word = (regx_param_word_t){
            .word = "auto",
            .help = "uct; and beside it verbs for peers on other nodes, where the job has such and "
                    "a port of an RDMA device is usable and leads there",
            .more = "Whether verbs was taken, and why not, is in the report (transport, "
                    "transport_reason) and is shown by --mca btl_base_verbose 10; which wire leads "
                    "to which peer by 20."};
    } else if (entry != NULL) {
        *word = entry->word;
    }
    return index == 0 || entry != NULL;
}
