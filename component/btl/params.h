/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The parameters by number, and how their values are read. For the files of btl/ that check them:
 *
 *   params.c               the table, and what is asked for of transport, rendezvous and pool
 *   params_registration.c  the backend, and what it keeps
 *   params_verbs.c         the verbs transport
 *   params_inherited.c     what Open MPI registers for every BTL
 *
 * A value that is not allowed is told of here; `false` then means that it was.
 */
#ifndef REGX_BTL_PARAMS_H
#define REGX_BTL_PARAMS_H

#include "btl/btl.h"

#include "base/option.h"
#include "opal/mca/base/mca_base_var.h"

#define REGX_PREFIX "btl_regx_"

typedef enum regx_param {
    REGX_PARAM_ENABLE,
    REGX_PARAM_TRANSPORT,
    REGX_PARAM_RENDEZVOUS,
    REGX_PARAM_BACKEND,
    REGX_PARAM_CHUNK_SIZE,
    REGX_PARAM_CHUNK_DEPTH,
    REGX_PARAM_POOL_SIZE,
    REGX_PARAM_SLOT_SIZE,
    REGX_PARAM_CACHE_BYTES,
    REGX_PARAM_CACHE_COUNT,
    REGX_PARAM_ADMIT,
    REGX_PARAM_INUSE,
    REGX_PARAM_HOOKS,
    REGX_PARAM_NOTIFIER_CHECK,
    REGX_PARAM_ODP_PREFETCH,
    REGX_PARAM_IF_INCLUDE,
    REGX_PARAM_IF_EXCLUDE,
    REGX_PARAM_UCT_TLS,
    REGX_PARAM_VERBS_GID_INDEX,
    REGX_PARAM_VERBS_PKEY,
    REGX_PARAM_VERBS_SERVICE_LEVEL,
    REGX_PARAM_VERBS_TRAFFIC_CLASS,
    REGX_PARAM_VERBS_TIMEOUT,
    REGX_PARAM_VERBS_RETRY_COUNT,
    REGX_PARAM_VERBS_RNR_RETRY,
    REGX_PARAM_VERBS_MTU,
    REGX_PARAM_VERIFY,
    REGX_PARAM_REPORT,
    REGX_PARAMS
} regx_param_t;

/* What was given, or the default; NULL: nothing. Open MPI frees it before finalize. */
const char *regx_param_text(regx_param_t param);

/* The value as one of `words`, by its place among `count`. */
bool regx_param_word(regx_param_t param, const char *const *words, unsigned count, unsigned *which);

bool regx_param_is(regx_param_t param, const char *word);

bool regx_param_number(regx_param_t param, const regx_option_range_t *range, uint64_t *value);

/* Says what is wrong, once per application; where that is right, each node of which the same is
 * wrong says so, or a rank of it; false. */
bool regx_param_refuse(const char *error);

/* A value that Open MPI keeps, and where it is from; NULL if there is none. */
const void *regx_param_stored(const char *project, const char *framework, const char *component,
                              const char *variable, mca_base_var_source_t *source);

/* params_registration.c */
bool regx_params_read_registration(regx_params_t *params);
/* params_verbs.c */
bool regx_params_read_verbs(regx_verbs_settings_t *verbs);
/* params_inherited.c: they keep their meaning or are refused by name. */
bool regx_params_check_inherited(regx_params_t *params, mca_btl_base_module_t *btl);

#endif
