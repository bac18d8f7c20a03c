/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What Open MPI registers for every BTL keeps its meaning or is refused by name, never ignored.
 */
#include "btl/params.h"

#include <stdio.h>

#define FRAME_MAX 16448u    /* bytes that every transport takes as one frame: 16 KiB and headers */
#define FRAGMENT_MAX 65536u /* bytes that every transport sends without a copy at once */

/* What goes along with an RTS. */
static bool check_rts(regx_params_t *params, mca_btl_base_module_t *btl)
{
    mca_base_var_source_t source;
    char error[REGX_OPTION_ERROR];

    regx_param_stored("opal", "btl", "regx", "rndv_eager_limit", &source);
    params->rts_contiguous = source != MCA_BASE_VAR_SOURCE_DEFAULT;
    if (!params->rts_contiguous && btl->btl_rndv_eager_limit > btl->btl_eager_limit) {
        btl->btl_rndv_eager_limit = btl->btl_eager_limit;
    }
    if (btl->btl_rndv_eager_limit > btl->btl_eager_limit) {
        snprintf(error, sizeof(error),
                 REGX_PREFIX "rndv_eager_limit=%zu; allowed: 0 to " REGX_PREFIX "eager_limit (%zu)",
                 btl->btl_rndv_eager_limit, btl->btl_eager_limit);
        return regx_param_refuse(error);
    }
    return true;
}

bool regx_params_check_inherited(regx_params_t *params, mca_btl_base_module_t *btl)
{
    const size_t slot = params->settings.pool.slot_size;
    const size_t bounded = slot < FRAGMENT_MAX ? slot : FRAGMENT_MAX;
    const size_t max = bounded > FRAME_MAX ? bounded : FRAME_MAX;
    mca_base_var_source_t source;
    char error[REGX_OPTION_ERROR];

    if (btl->btl_eager_limit < 256 || btl->btl_eager_limit > FRAME_MAX) {
        snprintf(error, sizeof(error), REGX_PREFIX "eager_limit=%zu; allowed: 256 to %u",
                 btl->btl_eager_limit, FRAME_MAX);
        return regx_param_refuse(error);
    }
    regx_param_stored("opal", "btl", "regx", "max_send_size", &source);
    if (source == MCA_BASE_VAR_SOURCE_DEFAULT && btl->btl_max_send_size > max) {
        btl->btl_max_send_size = max;
    }
    if (btl->btl_max_send_size < 1024 || btl->btl_max_send_size > max) {
        snprintf(error, sizeof(error), REGX_PREFIX "max_send_size=%zu; allowed: 1024 to %zu",
                 btl->btl_max_send_size, max);
        return regx_param_refuse(error);
    }
    /* Open MPI raises this to the eager limit, and counts the header into the one and not into the
     * other: a message just below the limit would go as a lone fragment. */
    regx_param_stored("opal", "btl", "regx", "min_rdma_pipeline_size", &source);
    if (source == MCA_BASE_VAR_SOURCE_DEFAULT) {
        btl->btl_min_rdma_pipeline_size = 0;
    }
    regx_param_stored("opal", "btl", "regx", "put_limit", &source);
    if (source != MCA_BASE_VAR_SOURCE_DEFAULT) {
        snprintf(error, sizeof(error),
                 REGX_PREFIX
                 "put_limit=%zu: Open MPI puts each message at once and heeds no limit; "
                 "use " REGX_PREFIX "chunk_size",
                 btl->btl_put_limit);
        return regx_param_refuse(error);
    }
    regx_param_stored("opal", "btl", "regx", "get_limit", &source);
    if (source != MCA_BASE_VAR_SOURCE_DEFAULT) {
        snprintf(error, sizeof(error),
                 REGX_PREFIX "get_limit=%zu: regx gets each message at once, in steps of its own",
                 btl->btl_get_limit);
        return regx_param_refuse(error);
    }
    return check_rts(params, btl);
}
