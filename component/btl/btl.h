/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the user asked for.
 */
#ifndef REGX_BTL_BTL_H
#define REGX_BTL_BTL_H

#include "compat/compat.h"

#include "registration/backend.h"
#include "registration/cache.h"
#include "rendezvous/rendezvous.h"
#include "transport/transport.h"
#include "transport/verbs/settings.h"

/* What the user asked for, checked (params.c). */
typedef struct regx_params {
    const char *transport; /* its name, or "auto" */
    const regx_strategy_t *strategy;
    const char *backend; /* its name, or "auto" */
    bool leave_pinned;   /* false: the backend is none, because Open MPI was told so */
    regx_check_t check;
    const regx_hook_source_t *hooks;
    regx_prefetch_t prefetch;
    regx_cache_config_t cache; /* but for what is called */
    bool verify;
    size_t chunk_size;
    unsigned chunk_depth;
    size_t pool_size;
    bool pool_given;    /* by the user, for all transports together; else each may have as much */
    size_t pool_wanted; /* … if the limit of locked memory were none */
    size_t slot_size;
    bool rts_contiguous; /* rndv_eager_limit is of contiguous data, too */
    const char *if_include;
    const char *if_exclude;
    const char *uct_tls;
    regx_verbs_settings_t verbs;
    char report[1024]; /* "": none */
} regx_params_t;

/* params.c: registers all; later reads and checks them, and what Open MPI registered for the
 * module. false: the user was told why. */
void regx_params_register(const mca_base_component_t *component);
bool regx_params_read(regx_params_t *params, mca_btl_base_module_t *btl);
/* Whether the user named regx (or enabled it). `named` is set if the btl list names it. */
bool regx_params_asked(bool *named);

#endif
