/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Tracing (base/trace.h) to Open MPI's verbose stream of the btl framework.
 */
#ifndef REGX_BTL_VERBOSE_H
#define REGX_BTL_VERBOSE_H

#include "btl/component.h"

/* Starts tracing at the level that btl_base_verbose asks for. */
void regx_verbose_start(regx_component_t *component);

/* Traces what this process uses, once all of its modules have started. */
void regx_verbose_choice(const regx_component_t *component);

/* Traces what auto found, while the modules are still open. */
void regx_verbose_outcome(const regx_component_t *component);

#endif
