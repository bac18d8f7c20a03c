/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Finding and opening UCT's components by name.
 */
#ifndef REGX_TRANSPORT_UCT_COMPONENT_H
#define REGX_TRANSPORT_UCT_COMPONENT_H

#include <uct/api/uct.h>

#include "base/status.h"

/* UCT's component of that name, or NULL. It is UCT's and lives as long as the process. */
uct_component_h regx_uct_component(const char *name);

/* Opens the memory domain that has its component's name. REGX_OK; REGX_UNREACHABLE. */
regx_status_t regx_uct_open_md(uct_component_h component, const char *name, uct_md_h *md);

#endif
