/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The programs that are not of MPI: Open MPI's hooks all the same, from its lowest layer alone.
 */
#include "rig.h"

#include "compat/compat.h"

#include "opal/mca/memory/base/base.h"
#include "opal/runtime/opal.h"

/* Open MPI's leaks are not ours. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libopen-pal\n";
}

void rig_begin(void)
{
    /* Open for good: once closed, Open MPI's hooks do not work again in this process. */
    if (opal_init(NULL, NULL) != OPAL_SUCCESS ||
        mca_base_framework_open(&opal_memory_base_framework, 0) != OPAL_SUCCESS) {
        fprintf(stderr, "rig: Open MPI's lowest layer does not start\n");
        exit(2);
    }
}

void rig_end(void)
{
    opal_finalize();
}

void rig_hooks(regx_monitor_config_t *config)
{
    config->hooks = &regx_compat_hooks;
}
