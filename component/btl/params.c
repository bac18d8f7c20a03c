/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/params.h"

bool regx_params_read(regx_params_t *params, mca_btl_base_module_t *btl)
{
    regx_params_warn_of_gone();
    return regx_params_read_tables(&params->settings) && regx_params_check(params) &&
           regx_params_check_inherited(params, btl);
}
