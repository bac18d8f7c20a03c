/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The same as an MPI program.
 */
#include "rig.h"

#include <mpi.h>

#include "compat/compat.h"

void rig_begin(void)
{
    MPI_Init(NULL, NULL);
}

void rig_end(void)
{
    MPI_Finalize();
}

void rig_hooks(regx_monitor_config_t *config)
{
    config->hooks = &regx_compat_hooks;
}
