/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transports this process opens, and what each gets of the pool.
 *
 * btl_regx_transport names one, or is auto: then that of the node is opened, and beside it that
 * between nodes, if the job has processes on other nodes and a device is usable. Why it is not is
 * traced and in the report only; a setting that is wrong is shown to the user in any case. Who
 * talks to whom by what is in address.h.
 */
#ifndef REGX_BTL_TRANSPORTS_H
#define REGX_BTL_TRANSPORTS_H

#include "btl/component.h"

/* Opens the modules, which begin as `face`; sets transport_reason. false: a warning was printed;
 * some modules may be open. */
bool regx_transports_open(regx_component_t *component, const mca_btl_base_module_t *face);

/* The names of the transports that are open, each once, with commas between them. */
void regx_transports_name(const regx_component_t *component, char *text, size_t size);

#endif
