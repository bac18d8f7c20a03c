/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Other BTLs beside regx. One of lower exclusivity carries no message of a peer that regx has, but
 * if it can put or get Open MPI still counts it in (bml/r2: "always add rdma endpoints"): it takes
 * the sum of all their min_rdma_pipeline_size for the size from which a message goes by rendezvous,
 * and that of vader and sm is larger than any message. All would go in fragments.
 */
#include "btl/btl.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "opal/mca/btl/base/base.h"

static bool hinders(const mca_btl_base_module_t *other, const mca_btl_base_module_t *btl)
{
    return other->btl_component != btl->btl_component &&
           other->btl_exclusivity < btl->btl_exclusivity &&
           strcmp(other->btl_component->btl_version.mca_component_name, "self") != 0 &&
           (other->btl_flags & (MCA_BTL_FLAGS_PUT | MCA_BTL_FLAGS_GET)) != 0 &&
           other->btl_min_rdma_pipeline_size >= INT32_MAX;
}

void regx_say_what_hinders(const mca_btl_base_module_t *btl)
{
    mca_btl_base_selected_module_t *selected;
    char line[384];

    if (!regx_compat_speaker()) {
        return;
    }
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
