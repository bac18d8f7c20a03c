/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Which transports this process opens, and what each gets of the pool.
 *
 * btl_regx_transport names one, or is auto: then that is opened which reaches every peer, for peers
 * on the node and whoever is reached in no other way; and beside it the others, for peers on other
 * nodes, if there are such and a device is usable. Which those are, and how to ask whether a device
 * is there, is in transport/catalog.h. Why one is not taken is traced and in the report only;
 * a setting that is wrong is shown to the user in any case.
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
