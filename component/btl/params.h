/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters btl_regx_* as Open MPI has them: all are strings for it, so that regx can check
 * them itself. Their tables are the rooms' (settings.h). A function here that returns false has
 * printed a warning with the reason, once per application; where that is right, each node of which
 * the same is wrong says so, or a rank of it.
 */
#ifndef REGX_BTL_PARAMS_H
#define REGX_BTL_PARAMS_H

#include "compat/compat.h"

#include "btl/settings.h"
#include "opal/mca/base/mca_base_var.h"
#include "rendezvous/rendezvous.h"

/* What the user asked for, checked, and what follows from it. */
typedef struct regx_params {
    regx_settings_t settings; /* no "auto" in pool_size, cache_bytes and once_bytes */
    const regx_strategy_t *strategy;
    const regx_hook_source_t *hooks;
    bool leave_pinned;   /* false: the backend is none, because Open MPI was set so */
    bool pool_given;     /* the user gave pool_size: for all transports of auto together */
    size_t pool_wanted;  /* the pool's size if the limit of locked memory were none */
    bool rts_contiguous; /* rndv_eager_limit is of contiguous data, too */
} regx_params_t;

/* Registers all with Open MPI. */
void regx_params_register(const mca_base_component_t *component);

/* Whether the user named regx (or enabled it). `named` is set if the btl list names it. */
bool regx_params_asked(bool *named);

/* Reads and checks all, also what Open MPI registered for `btl`. */
bool regx_params_read(regx_params_t *params, mca_btl_base_module_t *btl);

/* A value that Open MPI keeps, and where it is from; NULL if there is none. */
const void *regx_param_stored(const char *project, const char *framework, const char *component,
                              const char *variable, mca_base_var_source_t *source);
/* Whether the user has set one of btl_regx_*. */
bool regx_param_given(const char *name);

/* What regx.conf says of each, which is made into params_text.c; the last has no name. */
typedef struct regx_param_text {
    const char *name, *initial, *help;
} regx_param_text_t;

extern const regx_param_text_t regx_param_texts[];

#endif
