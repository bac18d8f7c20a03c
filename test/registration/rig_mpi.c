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

const regx_hook_source_t *rig_hooks(void)
{
    return regx_hooks_by_default(regx_compat_links_ucx(), &regx_compat_hooks);
}
