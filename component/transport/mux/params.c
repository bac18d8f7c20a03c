/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mux/params.h"

static const regx_param_t params[] = {
#define REGX_PARAM(type, ctype, field, ...)                                                        \
    REGX_PARAM_ROW(regx_mux_settings_t, "uct_", type, field, __VA_ARGS__)
#include "transport/mux/params.def"
#undef REGX_PARAM
};

static const regx_param_table_t table = {.title = "The wires of btl_regx_transport uct",
                                         .params = params,
                                         .count = sizeof(params) / sizeof(params[0])};

const regx_catalog_entry_t regx_mux_entry = {
    .word = {.word = "uct",
             .help = "shared memory between processes of one node, and tcp between nodes",
             .more = "Which of them: btl_regx_uct_tls. Which network: btl_regx_if_include, "
                     "btl_regx_if_exclude."},
    .params = &table,
    .remedy = "btl_regx_if_include, btl_regx_if_exclude and btl_regx_uct_tls must leave a network "
              "that leads there",
    .everywhere = true};
