/* SPDX-License-Identifier: BSD-3-Clause */
#include "btl/other_btls.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "opal/mca/btl/base/base.h"

/* self has a peer of its own alone. */
static bool hinders(const mca_btl_base_module_t *other, const mca_btl_base_module_t *btl)
{
    const uint32_t needed = MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET | MCA_BTL_FLAGS_ATOMIC_FOPS;

    return other->btl_component != btl->btl_component &&
           other->btl_exclusivity < btl->btl_exclusivity &&
           strcmp(other->btl_component->btl_version.mca_component_name, "self") != 0 &&
           (other->btl_flags & needed) == needed && other->btl_min_rdma_pipeline_size >= INT32_MAX;
}

void regx_warn_of_other_btls(const mca_btl_base_module_t *btl)
{
    static bool warned;
    mca_btl_base_selected_module_t *selected;
    char line[384];

    if (warned || !regx_compat_speaker()) {
        return;
    }
    warned = true;
    OPAL_LIST_FOREACH(selected, &mca_btl_base_modules_initialized, mca_btl_base_selected_module_t)
    {
        const char *name = selected->btl_component->btl_version.mca_component_name;

        if (hinders(selected->btl_module, btl)) {
            snprintf(line, sizeof(line),
                     "btl_regx_exclusivity=%u: beside %s, Open MPI sends large messages in "
                     "fragments; leave %s out of btl, or set btl_%s_flags=send",
                     (unsigned)btl->btl_exclusivity, name, name, name);
            regx_compat_say(line);
        }
    }
}
