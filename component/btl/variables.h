/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Each counter as a performance variable of MPI_T: btl_regx_NAME, by the report's names. A tool can
 * find them from MPI_T_init_thread on, before MPI_Init as well. They are gone when Open MPI closes
 * the component, in MPI_Finalize; until then any thread may read them. (MPI 4.0, 15.3.7.)
 */
#ifndef REGX_BTL_VARIABLES_H
#define REGX_BTL_VARIABLES_H

#include "btl/component.h"

/* Once per opening of the component, when its parameters are registered and the job asks for it. A
 * variable that Open MPI has no memory for is left out. */
void regx_variables_register(regx_component_t *component);

#endif
